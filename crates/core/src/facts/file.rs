//! Facts from a file: what is true of a node that is not this machine.
//!
//! The format is described in `docs/formats/node-facts.md`.

use super::{DeviceNumber, Facts, FileId, ImageFact, PathFact};
use crate::config::is_plain_host_path;
use crate::diag::{Diagnostic, Diagnostics, FieldPath, Place, Pos};
use crate::manifest::{DiskSource, Input};
use crate::names::{Namespace, ObjectName, PodUid, Sha256};
use crate::plan::plain_path;
use crate::yaml::{self, Fields, Limits, View};

const KIND: &str = "NodeFacts";
const API_VERSION: &str = "disklet.io/v1alpha1";

impl Facts {
    /// Reads a file of facts. What it does not mention is missing on that
    /// node.
    pub fn read(input: &Input, diags: &mut Diagnostics) -> Self {
        let mut facts = Self {
            looked: true,
            ..Self::default()
        };
        let mut documents = 0;
        diags.begin_file(&input.name);
        for document in yaml::documents(&input.text, Limits::default()) {
            documents += 1;
            match document {
                Ok(root) => facts.take(&View::root(&root, &input.name), diags),
                Err(errors) => {
                    for error in errors {
                        diags.push(error.in_file(&input.name));
                    }
                }
            }
        }
        if documents == 0 {
            let place = Place {
                file: input.name.clone(),
                pos: Pos { line: 1, column: 1 },
                path: FieldPath::default(),
            };
            diags.push(Diagnostic::error(&place, "there are no facts in the file").allowed(KIND));
        }
        facts
    }

    fn take(&mut self, view: &View<'_>, diags: &mut Diagnostics) {
        let Some(mut fields) = view.fields(diags) else {
            return;
        };
        for (key, wanted) in [("kind", KIND), ("apiVersion", API_VERSION)] {
            let Some(text) = fields.required_text(key, diags) else {
                continue;
            };
            if text.value != wanted {
                diags.push(
                    Diagnostic::error(&text.place, "not a file of facts")
                        .found(format!("{:?}", text.value))
                        .allowed(wanted)
                        .help(match key {
                            "kind" => "give manifests with -f instead of --facts",
                            _ => "this version of Disklet reads no other",
                        }),
                );
                // What is wrong with it as facts helps nobody.
                return;
            }
        }
        for (path, view) in fields.entries("paths", diags) {
            if !is_plain_host_path(path) {
                diags.push(Diagnostic::error(
                    &view.place,
                    "not an absolute path without \"..\"",
                ));
            } else if let Some(fact) = path_fact(&view, diags) {
                self.paths.insert(plain_path(path), fact);
            }
        }
        for (name, view) in fields.entries("images", diags) {
            if let Some(fact) = image_fact(&view, diags) {
                self.images.insert(name.to_owned(), fact);
            }
        }
        for (disk, view) in fields.entries("containers", diags) {
            self.take_answer(disk, &view, diags);
        }
        for (vm, view) in fields.entries("launchers", diags) {
            self.take_launcher(vm, &view, diags);
        }
        let known = [
            "kind",
            "apiVersion",
            "paths",
            "images",
            "containers",
            "launchers",
        ];
        fields.no_others(&known, diags);
    }
}

impl Facts {
    /// What a container has answered: one source, as a manifest writes it.
    fn take_answer(&mut self, disk: &str, view: &View<'_>, diags: &mut Diagnostics) {
        let parts: Vec<_> = disk.split('/').collect();
        if parts.len() != 3 || parts.contains(&"") {
            diags.push(
                Diagnostic::error(&view.place, "not a disk of a VM")
                    .found(format!("{disk:?}"))
                    .allowed("NAMESPACE/VM/DISK, such as default/vm1/sda"),
            );
        } else if let Some(source) = DiskSource::read_answer(view, diags) {
            self.answers.insert(disk.to_owned(), source);
        }
    }

    /// A VM object's pod on that node.
    fn take_launcher(&mut self, vm: &str, view: &View<'_>, diags: &mut Diagnostics) {
        let key = vm.split_once('/').and_then(|(namespace, name)| {
            let namespace = Namespace::parse(namespace).ok()?;
            Some((namespace, ObjectName::parse(name).ok()?))
        });
        let Some(uid) = view.text(diags) else { return };
        match (key, PodUid::parse(uid)) {
            (Some(key), Ok(uid)) => drop(self.launchers.insert(key, uid)),
            (None, _) => diags.push(
                Diagnostic::error(&view.place, "not a VM")
                    .found(format!("{vm:?}"))
                    .allowed("NAMESPACE/VM, such as default/vm1"),
            ),
            (_, Err(rule)) => diags.push(
                Diagnostic::error(&view.place, format!("not {}", rule.what))
                    .found(format!("{uid:?}"))
                    .allowed(rule.allowed),
            ),
        }
    }
}

fn path_fact(view: &View<'_>, diags: &mut Diagnostics) -> Option<PathFact> {
    if let Some(word) = view.node.as_str() {
        return match word {
            "missing" => Some(PathFact::Missing),
            "directory" => Some(PathFact::Directory),
            "other" => Some(PathFact::Other),
            "forbidden" => Some(PathFact::Forbidden),
            _ => {
                diags.push(
                    Diagnostic::error(&view.place, "not something a path can be")
                        .found(format!("{word:?}"))
                        .allowed("missing, directory, other, forbidden, {block: \"MAJOR:MINOR\", size: SIZE} or {file: SIZE, device: \"MAJOR:MINOR\", inode: NUMBER}")
                        .did_you_mean(word, ["missing", "directory", "other", "forbidden"]),
                );
                None
            }
        };
    }
    let mut fields = view.fields(diags)?;
    if let Some(view) = fields.get("file") {
        let id = file_id(&mut fields, diags);
        fields.no_others(&["file", "device", "inode"], diags);
        return view.size(diags).map(|size| PathFact::File { size, id });
    }
    let number = fields.required("block", diags)?;
    let seen = fields.get("size").and_then(|view| view.size(diags));
    fields.no_others(&["block", "size"], diags);
    let number = device_number(&number, diags)?;
    Some(PathFact::Block { number, size: seen })
}

/// Either both are written or none.
fn file_id(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<FileId> {
    if fields.get("device").is_none() && fields.get("inode").is_none() {
        return None;
    }
    let device = fields.required("device", diags);
    let device = device.and_then(|view| device_number(&view, diags));
    let inode = fields.required("inode", diags)?;
    let number = u64::try_from(inode.int(diags)?);
    if number.is_err() {
        diags.push(Diagnostic::error(&inode.place, "not a number of a file").allowed("from 0 on"));
    }
    Some(FileId {
        device: device?,
        inode: number.ok()?,
    })
}

fn device_number(view: &View<'_>, diags: &mut Diagnostics) -> Option<DeviceNumber> {
    let text = view.text(diags)?;
    let number = text.split_once(':').and_then(|(major, minor)| {
        Some(DeviceNumber {
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    });
    if number.is_none() {
        diags.push(
            Diagnostic::error(&view.place, "not a device number")
                .found(format!("{text:?}"))
                .allowed("\"MAJOR:MINOR\", such as \"7:0\""),
        );
    }
    number
}

fn image_fact(view: &View<'_>, diags: &mut Diagnostics) -> Option<ImageFact> {
    let mut fields = view.fields(diags)?;
    let digest = fields.required_text("digest", diags);
    let seen = fields
        .required("size", diags)
        .and_then(|view| view.size(diags));
    fields.no_others(&["digest", "size"], diags);
    let digest = digest.and_then(|text| {
        let hex = text.value.strip_prefix("sha256:").unwrap_or(&text.value);
        let digest = Sha256::parse_hex(hex);
        if digest.is_none() {
            diags.push(
                Diagnostic::error(&text.place, "not a digest")
                    .found(format!("{:?}", text.value))
                    .allowed("sha256: and 64 lower-case hexadecimal digits"),
            );
        }
        digest
    });
    Some(ImageFact {
        digest: digest?,
        size: seen?,
    })
}
