//! Names as the guest sees them: paths, and the links under `/dev/disk` by
//! which a disk is found.

use std::fmt;

use crate::diag::is_unprintable;

/// A path in the guest: absolute, without `.`, `..`, empty components and
/// control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GuestPath(String);

/// Why a text is no [`GuestPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestPathError {
    /// It does not begin with `/`.
    Relative,
    /// It has a `..` component.
    Escapes,
    /// It has a control character.
    ControlCharacter,
    /// It is longer than a guest's kernel takes.
    TooLong,
}

impl fmt::Display for GuestPathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Relative => "is not an absolute path",
            Self::Escapes => "has a \"..\" in it",
            Self::ControlCharacter => "has a control or invisible character in it",
            Self::TooLong => "is longer than 4095 bytes",
        })
    }
}

/// PATH_MAX of Linux, less its terminating zero.
const MAX_PATH: usize = 4095;

impl GuestPath {
    /// Checks and normalises: repeated and trailing slashes and `.` go.
    pub fn parse(text: &str) -> Result<Self, GuestPathError> {
        if !text.starts_with('/') {
            return Err(GuestPathError::Relative);
        }
        if text.len() > MAX_PATH {
            return Err(GuestPathError::TooLong);
        }
        if text.chars().any(is_unprintable) {
            return Err(GuestPathError::ControlCharacter);
        }
        let mut clean = String::with_capacity(text.len());
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => return Err(GuestPathError::Escapes),
                part => {
                    clean.push('/');
                    clean.push_str(part);
                }
            }
        }
        if clean.is_empty() {
            clean.push('/');
        }
        Ok(Self(clean))
    }

    /// A path below this one. `relative` is checked like a path.
    pub fn join(&self, relative: &str) -> Result<Self, GuestPathError> {
        Self::parse(&format!("{}/{relative}", self.0))
    }

    /// How many components it has.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.split('/').filter(|part| !part.is_empty()).count()
    }

    /// Whether this is a path below `directory`.
    #[must_use]
    pub fn is_below(&self, directory: &Self) -> bool {
        self.0
            .strip_prefix(directory.0.trim_end_matches('/'))
            .is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The stable links by which a guest with udev finds a disk: first by what it
/// is (its serial), then by where it sits (its address).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDevice {
    /// `/dev/disk/by-id/…` of the whole disk.
    pub by_id: String,
    /// `/dev/disk/by-path/…` of the whole disk.
    pub by_path: String,
}

impl GuestDevice {
    /// The by-id link of the disk (`part` 0) or of one of its partitions.
    #[must_use]
    pub fn by_id_of(&self, part: u32) -> String {
        partition_link(&self.by_id, part)
    }

    /// The by-path link of the disk (`part` 0) or of one of its partitions.
    #[must_use]
    pub fn by_path_of(&self, part: u32) -> String {
        partition_link(&self.by_path, part)
    }
}

fn partition_link(disk: &str, part: u32) -> String {
    match part {
        0 => disk.to_owned(),
        part => format!("{disk}-part{part}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_normalised_and_cannot_climb() {
        let clean = |text| GuestPath::parse(text).map(|path| path.to_string());
        assert_eq!(
            clean("/var//lib/./docker/"),
            Ok("/var/lib/docker".to_owned())
        );
        assert_eq!(clean("/"), Ok("/".to_owned()));
        assert_eq!(clean("var"), Err(GuestPathError::Relative));
        assert_eq!(clean("/var/../etc"), Err(GuestPathError::Escapes));
        assert_eq!(clean("/a\nb"), Err(GuestPathError::ControlCharacter));
        assert_eq!(clean(&"/a".repeat(3000)), Err(GuestPathError::TooLong));
        assert_eq!(
            GuestPath::parse("/etc").unwrap().join("../shadow"),
            Err(GuestPathError::Escapes)
        );
    }

    #[test]
    fn a_path_is_below_its_directories_only() {
        let path = |text| GuestPath::parse(text).unwrap();
        assert!(path("/data/a").is_below(&path("/data")));
        assert!(path("/data").is_below(&path("/")));
        assert!(!path("/data").is_below(&path("/data")));
        assert!(!path("/database").is_below(&path("/data")));
    }

    #[test]
    fn partitions_have_links_of_their_own() {
        let device = GuestDevice {
            by_id: "/dev/disk/by-id/virtio-vol1".to_owned(),
            by_path: "/dev/disk/by-path/pci-0000:00:05.0".to_owned(),
        };
        assert_eq!(device.by_id_of(0), "/dev/disk/by-id/virtio-vol1");
        assert_eq!(
            device.by_path_of(2),
            "/dev/disk/by-path/pci-0000:00:05.0-part2"
        );
    }
}
