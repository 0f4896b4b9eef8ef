//! Reading what `-f` names: files, directories, standard input.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::sync::Arc;

use disklet_core::diag::{Diagnostic, Diagnostics, FieldPath, Origin, Place, Pos};
use disklet_core::manifest::{Input, MAX_INPUT_BYTES, MAX_RUN_BYTES};

use super::ManifestArgs;

/// Reads inputs one by one, and no more than a run may take.
#[derive(Debug, Default)]
pub(super) struct Reader {
    bytes_read: u64,
}

impl Reader {
    /// Reads every input in turn and hands it on; one at a time is in memory.
    pub(super) fn read_all(
        &mut self,
        args: &ManifestArgs,
        facts: Option<&Path>,
        diags: &mut Diagnostics,
        mut take: impl FnMut(Input, &mut Diagnostics),
    ) {
        // Facts and configuration may lie in the directory of the manifests.
        let others: Vec<_> = [facts, args.config.as_deref()]
            .into_iter()
            .filter_map(|path| fs::canonicalize(path?).ok())
            .collect();
        for path in &args.files {
            if path.as_os_str() == "-" {
                if let Some(input) = self.read("<stdin>".into(), &mut io::stdin().lock(), diags) {
                    take(input, diags);
                }
                continue;
            }
            let mut files = Vec::new();
            collect(path, args.recursive, true, &mut files, diags);
            for file in files {
                let real = || fs::canonicalize(&file).ok();
                if !others.is_empty() && real().is_some_and(|real| others.contains(&real)) {
                    continue;
                }
                if let Some(input) = self.read_file(&file, diags) {
                    take(input, diags);
                }
                if self.bytes_read > MAX_RUN_BYTES {
                    return;
                }
            }
        }
    }

    /// Reads one file.
    pub(super) fn read_file(&mut self, path: &Path, diags: &mut Diagnostics) -> Option<Input> {
        let name = shown(path);
        match File::open(path) {
            Ok(mut file) => self.read(name, &mut file, diags),
            Err(error) => {
                diags.push(unreadable(&name, &error));
                None
            }
        }
    }

    fn read(
        &mut self,
        name: Arc<str>,
        source: &mut impl Read,
        diags: &mut Diagnostics,
    ) -> Option<Input> {
        let mut bytes = Vec::new();
        let limited = source.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes);
        if let Err(error) = limited {
            diags.push(unreadable(&name, &error));
            return None;
        }
        self.bytes_read += bytes.len() as u64;
        for (size, most, what) in [
            (
                bytes.len() as u64,
                MAX_INPUT_BYTES,
                "the input is too large",
            ),
            (
                self.bytes_read,
                MAX_RUN_BYTES,
                "all inputs together are too large",
            ),
        ] {
            if size > most {
                diags.push(
                    Diagnostic::error(&whole(&name), what)
                        .found(format!("more than {} MiB", most >> 20))
                        .help("give only the objects that VMs need, or plan some of the VMs at a time"),
                );
                return None;
            }
        }
        match String::from_utf8(bytes) {
            Ok(text) => Some(Input {
                name: name.into(),
                text,
            }),
            Err(error) => {
                diags.push(not_text(&name, &error));
                None
            }
        }
    }
}

fn not_text(name: &Arc<str>, error: &FromUtf8Error) -> Diagnostic {
    let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line = 1 + sound.iter().filter(|byte| **byte == b'\n').count();
    let mut place = whole(name);
    place.pos = Pos {
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: 1,
    };
    Diagnostic::error(&place, "not text in UTF-8")
        .help("give a manifest in YAML or JSON, saved as UTF-8; iconv -t UTF-8 converts other text")
}

/// The manifests below a path, in the order of their names. As with kubectl,
/// a directory's files count by their ending, a named file in any case.
pub(super) fn collect(
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
            Diagnostic::error(&whole(&shown(path)), "the directory has no manifests")
                .allowed("files that end in .yaml, .yml or .json"),
        );
    }
}

fn unreadable(name: &Arc<str>, error: &io::Error) -> Diagnostic {
    let problem = Diagnostic::error(&whole(name), format!("cannot be read: {error}"));
    match error.kind() {
        io::ErrorKind::NotFound => problem.help("check the path"),
        _ => problem,
    }
}

/// A file as such: what is wrong is on none of its lines.
fn whole(name: &Arc<str>) -> Place {
    Place {
        file: Origin::from(name.clone()),
        pos: Pos { line: 0, column: 0 },
        path: FieldPath::default(),
    }
}

/// A file's name as messages show it.
fn shown(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}
