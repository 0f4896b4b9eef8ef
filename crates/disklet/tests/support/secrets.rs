//! The secret values of a fixture, found in its manifests without the
//! program's own idea of what is secret.

use std::fmt;

use disklet_core::yaml::{Limits, Node, Value, documents};

use super::{Fixture, base64};

/// A secret value to look for.
#[derive(Debug)]
pub(crate) struct Needle {
    place: String,
    kind: Kind,
    /// All spellings of the value; one that shows is one too many.
    spellings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// In a Secret; a guest gets it.
    Data,
    /// In a Secret, under a key whose name begins with `unused`: no volume, no
    /// variable and no annotation leads to it.
    Unused,
    /// A key of Ceph's, for a libvirt secret.
    LibvirtKey,
}

/// Shorter texts cannot be told from words that stand there anyway.
const LEAST: usize = 8;

impl Needle {
    fn new(place: String, kind: Kind, value: &[u8]) -> Self {
        let mut spellings = vec![base64::encode(value)];
        if let Ok(text) = std::str::from_utf8(value) {
            // Line by line: a document may indent or escape them. Truth values
            // stay in their YAML: there are two of them, and both are known.
            let is_truth = |line: &str| line.ends_with(": true") || line.ends_with(": false");
            let lines = text.lines().filter(|line| !is_truth(line));
            spellings.extend(lines.map(str::to_owned));
            if let Some(inner) = base64::decode(text) {
                spellings.extend(String::from_utf8(inner));
            }
        }
        let spellings = spellings
            .iter()
            .map(|text| packed(text))
            .filter(|text| text.len() >= LEAST)
            .collect();
        Self {
            place,
            kind,
            spellings,
        }
    }

    /// Whether any spelling of the value is in a text.
    pub(crate) fn shows_in(&self, text: &str) -> bool {
        let text = packed(text);
        self.spellings.iter().any(|value| text.contains(value))
    }

    /// Whether `--show-secrets` must show it; if not, nothing may.
    pub(crate) fn shows_on_request(&self) -> bool {
        self.kind == Kind::Data
    }
}

impl fmt::Display for Needle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.place, self.kind)
    }
}

/// Without what writers of YAML and JSON put between or before characters.
fn packed(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_whitespace() && *c != '\\')
        .collect()
}

/// The secret values of a fixture: all of its Secrets, and Ceph's keys.
pub(crate) fn of(fixture: &Fixture) -> Vec<Needle> {
    let mut needles = Vec::new();
    let mut keys = Vec::new();
    for manifest in fixture.manifests() {
        let text = fixture.read(&manifest).unwrap();
        for document in documents(&text, Limits::default()) {
            let root = document.unwrap();
            objects(&root, &mut needles);
            options(&root, &manifest, &mut needles, &mut keys);
        }
    }
    // Where a file goes is no secret even if a Secret says so: the plan is there
    // to tell it.
    needles.retain(|needle| !needle.place.ends_with("_path"));
    // Nor is who one is to a server.
    needles.retain(|needle| !needle.place.ends_with("username"));
    // Ceph's key is a libvirt secret also where it comes out of a Secret.
    for needle in &mut needles {
        if keys.contains(&needle.place) {
            needle.kind = Kind::LibvirtKey;
        }
    }
    needles.retain(|needle| !needle.spellings.is_empty());
    needles
}

fn objects(node: &Node, needles: &mut Vec<Needle>) {
    match node.get("kind").and_then(Node::as_str) {
        Some("List") => items(node.get("items"), |item| objects(item, needles)),
        Some("Secret") => {
            let name = node.get("metadata").and_then(|meta| meta.get("name"));
            let name = name.and_then(Node::as_str).unwrap();
            for (field, is_encoded) in [("data", true), ("stringData", false)] {
                entries(node.get(field), |key, text| {
                    let value = if is_encoded {
                        base64::decode(text).unwrap()
                    } else {
                        text.into()
                    };
                    let kind = if key.starts_with("unused") {
                        Kind::Unused
                    } else {
                        Kind::Data
                    };
                    needles.push(Needle::new(format!("Secret {name}/{key}"), kind, &value));
                });
            }
        }
        _ => {}
    }
}

/// Ceph's keys: in the options of flexvolumes, wherever those stand, and the
/// places of those in Secrets that flexvolumes refer to.
fn options(node: &Node, file: &str, needles: &mut Vec<Needle>, keys: &mut Vec<String>) {
    match &node.value {
        Value::Seq(all) => all
            .iter()
            .for_each(|item| options(item, file, needles, keys)),
        Value::Map(all) => {
            let is_storage = ["options", "monitors", "targetPortal", "auth"]
                .iter()
                .any(|key| node.get(key).is_some());
            let secret = node.get("auth").unwrap_or(node).get("secretRef");
            if let (true, Some(secret)) = (is_storage, secret) {
                let name = secret.get("name").unwrap_or(secret).as_str().unwrap();
                for key in ["key", "node.session.auth.password", "password"] {
                    keys.push(format!("Secret {name}/{key}"));
                }
            }
            for entry in all {
                match entry.node.as_str() {
                    Some(key) if entry.key.eq_ignore_ascii_case("secret") => {
                        let place = format!("{file}:{}", entry.node.pos.line);
                        needles.push(Needle::new(place, Kind::LibvirtKey, key.as_bytes()));
                    }
                    _ => options(&entry.node, file, needles, keys),
                }
            }
        }
        _ => {}
    }
}

fn items(list: Option<&Node>, mut take: impl FnMut(&Node)) {
    if let Some(Value::Seq(all)) = list.map(|list| &list.value) {
        all.iter().for_each(&mut take);
    }
}

fn entries(map: Option<&Node>, mut take: impl FnMut(&str, &str)) {
    if let Some(Value::Map(all)) = map.map(|map| &map.value) {
        for entry in all {
            take(&entry.key, entry.node.as_str().unwrap());
        }
    }
}
