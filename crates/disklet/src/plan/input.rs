//! Reading what `-f` names: files, directories, standard input.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disklet_core::config::command_line_place;
use disklet_core::diag::{Diagnostic, Diagnostics, FieldPath, Place, Pos};
use disklet_core::manifest::{Input, MAX_INPUT_BYTES};

use super::shown;
use crate::args::PlanArgs;

/// Reads every input in turn and hands it on; one at a time is in memory.
pub(super) fn read_all(
    args: &PlanArgs,
    diags: &mut Diagnostics,
    mut take: impl FnMut(Input, &mut Diagnostics),
) {
    // Facts and configuration may lie in the directory of the manifests.
    let others: Vec<_> = [&args.facts, &args.config]
        .into_iter()
        .filter_map(|path| fs::canonicalize(path.as_deref()?).ok())
        .collect();
    let mut stdin_read = false;
    for path in &args.files {
        if path.as_os_str() == "-" {
            if stdin_read {
                diags.push(Diagnostic::error(
                    &command_line_place("--filename"),
                    "standard input can be read once",
                ));
            } else if let Some(input) = read("<stdin>".into(), &mut io::stdin().lock(), diags) {
                take(input, diags);
            }
            stdin_read = true;
            continue;
        }
        let mut files = Vec::new();
        collect(path, args.recursive, true, &mut files, diags);
        for file in files {
            let real = || fs::canonicalize(&file).ok();
            if !others.is_empty() && real().is_some_and(|real| others.contains(&real)) {
                continue;
            }
            if let Some(input) = read_file(&file, diags) {
                take(input, diags);
            }
        }
    }
}

/// Reads one file.
pub(super) fn read_file(path: &Path, diags: &mut Diagnostics) -> Option<Input> {
    let name = shown(path);
    match File::open(path) {
        Ok(mut file) => read(name, &mut file, diags),
        Err(error) => {
            diags.push(unreadable(&name, &error));
            None
        }
    }
}

fn read(name: Arc<str>, source: &mut impl Read, diags: &mut Diagnostics) -> Option<Input> {
    let mut bytes = Vec::new();
    let limited = source.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes);
    if let Err(error) = limited {
        diags.push(unreadable(&name, &error));
        return None;
    }
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        diags.push(
            Diagnostic::error(&start_of(&name), "the input is too large")
                .found(format!("more than {} MiB", MAX_INPUT_BYTES >> 20))
                .help("give only the objects that VMs need, or split the file"),
        );
        return None;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(Input { name, text }),
        Err(error) => {
            let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + sound.iter().filter(|byte| **byte == b'\n').count();
            let mut place = start_of(&name);
            place.pos.line = u32::try_from(line).unwrap_or(u32::MAX);
            diags.push(Diagnostic::error(&place, "not text in UTF-8"));
            None
        }
    }
}

/// The manifests below a path, in the order of their names. As with kubectl,
/// a directory's files count by their ending, a named file in any case.
fn collect(
    path: &Path,
    recursive: bool,
    named: bool,
    files: &mut Vec<PathBuf>,
    diags: &mut Diagnostics,
) {
    if !path.is_dir() {
        let ending = path.extension().and_then(OsStr::to_str);
        // Of a directory only files are read: a pipe in it would be waited for.
        let special = path.metadata().is_ok_and(|meta| !meta.is_file());
        let listed = matches!(ending, Some("yaml" | "yml" | "json")) && !special;
        if named || listed {
            files.push(path.to_owned());
        }
        return;
    }
    let listed = fs::read_dir(path).and_then(|entries| {
        entries
            .map(|entry| Ok(entry?.path()))
            .collect::<io::Result<Vec<_>>>()
    });
    let mut entries = match listed {
        Ok(entries) => entries,
        Err(error) => {
            diags.push(unreadable(&shown(path), &error));
            return;
        }
    };
    entries.sort();
    let before = files.len();
    for entry in entries {
        // A link to a directory above would lead around in circles.
        let below = recursive && !entry.is_symlink();
        if below || !entry.is_dir() {
            collect(&entry, recursive, false, files, diags);
        }
    }
    if named && files.len() == before {
        diags.push(
            Diagnostic::error(&start_of(&shown(path)), "the directory has no manifests")
                .allowed("files that end in .yaml, .yml or .json"),
        );
    }
}

fn unreadable(name: &Arc<str>, error: &io::Error) -> Diagnostic {
    let problem = Diagnostic::error(&start_of(name), format!("cannot be read: {error}"));
    match error.kind() {
        io::ErrorKind::NotFound => problem.help("check the path"),
        _ => problem,
    }
}

fn start_of(name: &Arc<str>) -> Place {
    Place {
        file: name.clone(),
        pos: Pos { line: 1, column: 1 },
        path: FieldPath::default(),
    }
}
