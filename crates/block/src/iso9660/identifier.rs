//! What names become in a directory: the identifiers of ISO 9660, level 2, and
//! those of Joliet.

use std::collections::BTreeSet;

/// The letters of an identifier, without the dot and the version.
const ROOM: usize = 30;
/// Of these, at most so many after the dot.
const EXTENSION_ROOM: usize = 8;
const VERSION: &[u8] = b";1";

/// The two hierarchies of directories over the same files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// Identifiers of ISO 9660, with Rock Ridge beside them.
    Primary,
    Joliet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
}

/// An identifier without a version, which is what the standard sorts by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identifier(Vec<u8>);

impl Identifier {
    /// The name itself, in big-endian UCS-2.
    pub(super) fn joliet(name: &str) -> Self {
        Self(ucs2(name))
    }

    /// As it is written in a record. Joliet's files have no version: readers
    /// differ on whether it is part of the name.
    pub(super) fn recorded(&self, naming: Naming, kind: Kind) -> Vec<u8> {
        let mut bytes = self.0.clone();
        if (naming, kind) == (Naming::Primary, Kind::File) {
            bytes.extend(VERSION);
        }
        bytes
    }
}

/// Gives the names of one directory their identifiers in the primary
/// hierarchy. Names that become alike are numbered as they come.
#[derive(Debug, Default)]
pub(super) struct PrimaryIdentifiers {
    taken: BTreeSet<(String, String)>,
}

impl PrimaryIdentifiers {
    pub(super) fn next(&mut self, name: &str, kind: Kind) -> Identifier {
        let (stem, extension) = match name.rsplit_once('.') {
            Some((stem, extension)) if kind == Kind::File && !stem.is_empty() => (stem, extension),
            _ => (name, ""),
        };
        let extension = shortened(extension, EXTENSION_ROOM);
        let room = ROOM - extension.len();
        let mut candidate = (shortened(stem, room), extension);
        let mut number = 0;
        while self.taken.contains(&candidate) {
            let digits = format!("_{number}");
            candidate.0 = shortened(stem, room - digits.len()) + &digits;
            number += 1;
        }
        let (stem, extension) = &candidate;
        let identifier = match kind {
            Kind::File => format!("{stem}.{extension}"),
            Kind::Directory => stem.clone(),
        };
        self.taken.insert(candidate);
        Identifier(identifier.into_bytes())
    }
}

fn shortened(name: &str, room: usize) -> String {
    let fitting = |letter: char| match letter.to_ascii_uppercase() {
        upper @ ('A'..='Z' | '0'..='9') => upper,
        _ => '_',
    };
    name.chars().take(room).map(fitting).collect()
}

/// Text in big-endian UCS-2.
pub(super) fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(names: &[(&str, Kind)]) -> Vec<String> {
        let mut identifiers = PrimaryIdentifiers::default();
        names
            .iter()
            .map(|(name, kind)| {
                identifiers
                    .next(name, *kind)
                    .recorded(Naming::Primary, *kind)
            })
            .map(|record| String::from_utf8(record).unwrap())
            .collect()
    }

    #[test]
    fn names_keep_what_level_2_can_say() {
        use Kind::{Directory, File};
        let names = [
            ("user-data", File, "USER_DATA.;1"),
            ("meta_data.json", File, "META_DATA.JSON;1"),
            ("archive.tar.gz", File, "ARCHIVE_TAR.GZ;1"),
            (".hidden", File, "_HIDDEN.;1"),
            ("2018-08-27", Directory, "2018_08_27"),
            ("conf.d", Directory, "CONF_D"),
        ];
        for (name, kind, identifier) in names {
            assert_eq!(primary(&[(name, kind)]), [identifier]);
        }
    }

    #[test]
    fn long_names_are_cut() {
        let long = "a".repeat(40);
        let cut = "A".repeat(30);
        assert_eq!(primary(&[(&long, Kind::File)]), [format!("{cut}.;1")]);
        let json = format!("{long}.json");
        let cut = "A".repeat(26);
        assert_eq!(primary(&[(&json, Kind::File)]), [format!("{cut}.JSON;1")]);
        let identifier = primary(&[("a.extension", Kind::File)]);
        assert_eq!(identifier, ["A.EXTENSIO;1"]);
    }

    #[test]
    fn names_that_become_alike_are_numbered() {
        use Kind::{Directory, File};
        let names = [("a-b", File), ("a+b", File), ("a_b", Directory)];
        assert_eq!(primary(&names), ["A_B.;1", "A_B_0.;1", "A_B_1"]);
        let long = ["x".repeat(31), "x".repeat(32)];
        let names = [(&*long[0], File), (&*long[1], File)];
        let cut = "X".repeat(28);
        assert_eq!(
            primary(&names),
            [format!("{cut}XX.;1"), format!("{cut}_0.;1")]
        );
    }

    #[test]
    fn joliet_keeps_names() {
        let identifier = Identifier::joliet("a-B");
        for kind in [Kind::File, Kind::Directory] {
            assert_eq!(identifier.recorded(Naming::Joliet, kind), b"\0a\0-\0B");
        }
    }
}
