//! libvirt and QEMU speak of targets, block nodes and paths; users know their
//! disks by name.

use disklet_core::domain::{Layer, Location};
use disklet_core::plan::Plan;
use disklet_core::source::Network;
use serde_json::{Deserializer, Value};

use crate::failure::Failure;
use crate::libvirt::{BlockNode, Libvirt, Storage};

/// Says of each disk that libvirt's words are about which of the plan it is.
pub(crate) fn with_disks(failure: Failure, plan: &Plan, libvirt: &Libvirt) -> Failure {
    failure.reworded(|words| {
        let nodes = match words.contains("libvirt-") {
            true => libvirt.nodes(plan.uuid),
            false => Vec::new(),
        };
        let signs = signs(plan, &nodes);
        explained(&without_arguments(words, &signs), &signs)
    })
}

/// What stands for a disk, or for the image below one.
struct Sign {
    meaning: String,
    /// In words of others.
    words: Vec<Word>,
}

enum Word {
    /// As it is.
    Whole(String),
    /// Whatever follows it.
    Beginning(String),
}

fn signs(plan: &Plan, nodes: &[BlockNode]) -> Vec<Sign> {
    let mut signs = Vec::new();
    for (planned, disk) in plan.disks.iter().zip(&plan.domain.disks) {
        let name = format!("disk {}", planned.name);
        let below = format!("the master below {name}");
        let own = sign(with_server(&name, &disk.top), &opened_by(&disk.top), nodes);
        let target = Word::Whole(disk.target.name());
        signs.push(Sign {
            words: own.words.into_iter().chain([target]).collect(),
            ..own
        });
        let layers = disk.below.iter();
        let meaning = |layer| with_server(&below, layer);
        signs.extend(layers.map(|layer| sign(meaning(layer), &opened_by(layer), nodes)));
    }
    signs
}

/// Whoever reads that a server failed wants to know which.
fn with_server(meaning: &str, layer: &Layer) -> String {
    match &layer.at {
        Location::Network { network, .. } => format!("{meaning}: {network}"),
        _ => meaning.to_owned(),
    }
}

fn sign(meaning: String, opened: &Storage, nodes: &[BlockNode]) -> Sign {
    let numbers = nodes.iter().filter(|node| node.opens == *opened);
    let mut words: Vec<_> = numbers
        .map(|node| Word::Beginning(format!("libvirt-{}-", node.number)))
        .collect();
    if let Storage::Path(path) = opened {
        words.push(Word::Whole(path.clone()));
    }
    Sign { meaning, words }
}

fn opened_by(layer: &Layer) -> Storage {
    match &layer.at {
        Location::File(path) | Location::Block { path, .. } => Storage::Path(path.clone()),
        Location::Network { network, .. } => Storage::Server {
            protocol: network.protocol().to_owned(),
            name: match network {
                Network::Http(_) => network.to_string(),
                network => network.name(),
            },
        },
    }
}

/// Puts disks in the place of the arguments for QEMU that have made them.
fn without_arguments(text: &str, signs: &[Sign]) -> String {
    let mut told = String::new();
    let mut rest = text;
    while let Some((before, option, argument)) = next_argument(rest) {
        told.push_str(before);
        let mut values = Deserializer::from_str(argument).into_iter::<Value>();
        let node = match values.next() {
            Some(Ok(value)) => ["node-name", "drive"]
                .iter()
                .find_map(|key| Some(value.get(key)?.as_str()?.to_owned())),
            _ => None,
        };
        let is_it = |sign: &&Sign| node.as_ref().is_some_and(|node| sign.has_node(node));
        match signs.iter().find(is_it) {
            Some(sign) => {
                told.push_str(&sign.meaning);
                rest = &argument[values.byte_offset()..];
            }
            None => {
                told.push_str(option);
                rest = argument;
            }
        }
    }
    told + rest
}

/// What stands before an argument in JSON, the option that it is of, and all
/// from the argument on.
fn next_argument(text: &str) -> Option<(&str, &str, &str)> {
    let options = ["-blockdev {", "-device {"];
    let found = options.iter().filter_map(|option| {
        let start = text.find(option)?;
        Some((start, start + option.len() - 1))
    });
    let (start, argument) = found.min()?;
    Some((&text[..start], &text[start..argument], &text[argument..]))
}

impl Sign {
    fn has_node(&self, node: &str) -> bool {
        self.words.iter().any(|word| match word {
            Word::Beginning(beginning) => node.starts_with(beginning.as_str()),
            Word::Whole(_) => false,
        })
    }
}

/// Puts the meaning behind the first of each sign's words.
fn explained(text: &str, signs: &[Sign]) -> String {
    let mut found: Vec<(usize, &str)> = signs
        .iter()
        .filter_map(|sign| {
            let ends = sign.words.iter().filter_map(|word| word.end_in(text));
            Some((ends.min()?, sign.meaning.as_str()))
        })
        .collect();
    // From the back, so that what is put in moves nothing that is still to come.
    found.sort_unstable_by(|one, two| two.cmp(one));
    let mut told = text.to_owned();
    for (end, meaning) in found {
        told.insert_str(end, &format!(" ({meaning})"));
    }
    told
}

impl Word {
    /// Where it ends the first time it occurs by itself, a quote behind it
    /// included.
    fn end_in(&self, text: &str) -> Option<usize> {
        let (word, is_whole) = match self {
            Self::Whole(word) => (word, true),
            Self::Beginning(word) => (word, false),
        };
        let mut occurrences = text.match_indices(word.as_str());
        occurrences.find_map(|(start, _)| {
            let end = start + word.len();
            let is_begun = text[..start].ends_with(is_of_a_word);
            let rest = match text[end..].find(|c| !is_of_a_word(c)) {
                Some(length) => length,
                None => text.len() - end,
            };
            // A full stop is of the sentence.
            let rest = text[end..end + rest].trim_end_matches('.').len();
            if is_begun || is_whole && rest > 0 {
                return None;
            }
            let end = end + rest;
            let quote = text[end..].starts_with(['"', '\'', ']']);
            Some(end + usize::from(quote))
        })
    }
}

fn is_of_a_word(c: char) -> bool {
    c.is_alphanumeric() || "-_./".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> String {
        let words = |target: &str, path: &str, node: &str| {
            let whole = [target, path].map(|word| Word::Whole(word.to_owned()));
            let node = Word::Beginning(node.to_owned());
            whole.into_iter().chain([node]).collect()
        };
        let signs = [
            Sign {
                meaning: "disk root".to_owned(),
                words: words("sda", "/pool/root", "libvirt-3-"),
            },
            Sign {
                meaning: "disk data".to_owned(),
                words: words("sdb", "/run/data", "libvirt-2-"),
            },
        ];
        explained(&without_arguments(text, &signs), &signs)
    }

    #[test]
    fn arguments_for_qemu_become_disks() {
        let said =
            r#"qemu: -blockdev {"node-name":"libvirt-3-format","cache":{"direct":false}}: no lock"#;
        assert_eq!(told(said), "qemu: disk root: no lock");
        let said = r#"qemu: -device {"driver":"scsi-hd","drive":"libvirt-2-format"}: no lock"#;
        assert_eq!(told(said), "qemu: disk data: no lock");
        for other in [
            r#"-device {"driver":"VGA"}: no such device"#,
            r#"-blockdev {"node-name":"libvirt-9-format"}: no lock"#,
            r#"-blockdev {"node-name":"cut off"#,
        ] {
            assert_eq!(told(other), other);
        }
    }

    #[test]
    fn nodes_targets_and_paths_are_explained() {
        for (said, explained) in [
            (
                "Node 'libvirt-3-format' is read-only",
                "Node 'libvirt-3-format' (disk root) is read-only",
            ),
            (
                "target 'sdb' is taken, not sda",
                "target 'sdb' (disk data) is taken, not sda (disk root)",
            ),
            (
                "Is another process using the image [/run/data]?",
                "Is another process using the image [/run/data] (disk data)?",
            ),
            (
                "no space for /run/data.",
                "no space for /run/data (disk data).",
            ),
        ] {
            assert_eq!(told(said), explained);
        }
    }

    #[test]
    fn once_is_enough() {
        assert_eq!(
            told("\"libvirt-2-format\" over libvirt-2-storage at /run/data"),
            "\"libvirt-2-format\" (disk data) over libvirt-2-storage at /run/data"
        );
    }

    #[test]
    fn parts_of_other_words_mean_nothing() {
        for said in [
            "/dev/sda is mounted",
            "/run/data-2 is missing",
            "/srv/run/data is missing",
            "libvirt-33-format",
            "sdaz",
        ] {
            assert_eq!(told(said), said);
        }
    }
}
