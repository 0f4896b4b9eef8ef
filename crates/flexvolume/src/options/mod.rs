//! What a FlexVolume is, read from its options.

use std::fmt;

use crate::capacity::Capacity;
use crate::ceph::{Ceph, CephUser, Key, Monitor, RbdName};
use crate::given::{Given, value};
use crate::keys::Name;
use crate::partition::Partition;
use crate::problem::{OptionError, Problem, ValueError};
use crate::unprintable::is_unprintable;

/// The options of a FlexVolume, by its type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Options {
    /// A volume that is made for the VM and goes with it.
    Qcow2(Qcow2),
    /// A block device of the node.
    Raw(Raw),
    /// An image on a Ceph cluster.
    Ceph(Ceph),
}

/// A volume that is made for the VM and goes with it. It has one partition, with
/// a filesystem on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qcow2 {
    /// What of it the guest mounts.
    pub part: Partition,
    /// Its size.
    pub capacity: Capacity,
}

impl Qcow2 {
    /// The filesystem that is made on it.
    pub const FILESYSTEM: &str = "ext4";

    /// Room for a partition table and the smallest filesystem worth the name.
    /// Virtlet's own tests use volumes of a megabyte.
    const LEAST_BYTES: u64 = 512 << 10;

    /// The filesystem is made in a file, and ext4, on which most pools are, has
    /// none of this size.
    const TOO_MANY_BYTES: u64 = 16 << 40;

    /// The capacities that it may have.
    pub(crate) const CAPACITIES: &str = "512KiB and more, but less than 16TiB";

    fn capacity(text: &str) -> Result<Capacity, ValueError> {
        let capacity = Capacity::parse(text)?;
        if (Self::LEAST_BYTES..Self::TOO_MANY_BYTES).contains(&capacity.bytes()) {
            Ok(capacity)
        } else {
            Err(ValueError::NoSuchNewVolume)
        }
    }

    fn part(text: &str) -> Result<Partition, ValueError> {
        match Partition::parse(text)? {
            part if part == Partition::default() => Ok(part),
            _ => Err(ValueError::NoSuchNewPartition),
        }
    }
}

/// A block device of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// What of it the guest mounts.
    pub part: Partition,
    /// The device's path as it was written, not empty and not checked
    /// further: see [`Raw::is_of_device`], and which devices may be used is the
    /// node's policy.
    pub path: String,
}

impl Raw {
    /// The paths that a device may have.
    pub const PATHS: &str =
        "a path below /dev without \".\", \"..\", empty components and invisible characters";

    /// Whether a text is a path below `/dev` that stays there.
    #[must_use]
    pub fn is_device_path(path: &str) -> bool {
        path.strip_prefix("/dev/").is_some_and(|below| {
            !below.is_empty()
                && !below.split('/').any(|part| matches!(part, "" | "." | ".."))
                && !below.chars().any(is_unprintable)
        })
    }

    /// Whether its path can be one of a device.
    #[must_use]
    pub fn is_of_device(&self) -> bool {
        Self::is_device_path(&self.path)
    }
}

impl Options {
    /// Reads a FlexVolume's options, or says everything that is wrong with
    /// them; there is at least one error then.
    ///
    /// Keys may be written in any case. Keys that the kubelet adds are
    /// ignored; any other key that is no option is an error.
    pub fn parse<'a>(
        entries: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, Vec<OptionError>> {
        let mut given = Given::collect(entries);
        let kind = given.required(Name::Type, None, value(Kind::parse));
        given.refuse_strangers(kind);
        let options = match kind {
            Some(Kind::Qcow2) => qcow2(&mut given).map(Self::Qcow2),
            Some(Kind::Raw) => raw(&mut given).map(Self::Raw),
            Some(Kind::Ceph) => ceph(&mut given).map(Self::Ceph),
            None => {
                check_values(&mut given);
                None
            }
        };
        let problems = given.into_problems();
        match options {
            Some(options) if problems.is_empty() => Ok(options),
            _ => Err(problems),
        }
    }

    /// What is wrong with the path of a device. Manifests are read all the same, and
    /// judged by the node.
    pub(crate) fn path_problem(&self) -> Option<OptionError> {
        match self {
            Self::Raw(raw) if !raw.is_of_device() => Some(OptionError {
                key: Name::Path.as_str().to_owned(),
                problem: Problem::BadValue {
                    found: raw.path.clone(),
                    why: ValueError::NoDevice,
                },
            }),
            _ => None,
        }
    }

    /// The type of volume.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Qcow2(_) => Kind::Qcow2,
            Self::Raw(_) => Kind::Raw,
            Self::Ceph(_) => Kind::Ceph,
        }
    }

    /// The options again, as keys and values that [`Options::parse`] reads as
    /// the same. The key of a Ceph user is among them.
    #[must_use]
    pub fn expose(&self) -> Vec<(&'static str, String)> {
        let mut entries = vec![
            (Name::Type, self.kind().to_string()),
            (Name::Part, self.part().to_string()),
        ];
        match self {
            Self::Qcow2(volume) => entries.push((Name::Capacity, volume.capacity.to_string())),
            Self::Raw(volume) => entries.push((Name::Path, volume.path.clone())),
            Self::Ceph(volume) => entries.extend(ceph_entries(volume)),
        }
        let named = entries.into_iter();
        named.map(|(name, value)| (name.as_str(), value)).collect()
    }

    /// What of the volume the guest mounts.
    #[must_use]
    pub const fn part(&self) -> Partition {
        match self {
            Self::Qcow2(volume) => volume.part,
            Self::Raw(volume) => volume.part,
            Self::Ceph(volume) => volume.part,
        }
    }
}

// The readers below take every value before they give up on a bad one, so
// that no problem hides another.

fn qcow2(given: &mut Given<'_>) -> Option<Qcow2> {
    let part = given.optional(Name::Part, Partition::default(), value(Qcow2::part));
    let capacity = given.optional(Name::Capacity, Capacity::DEFAULT, value(Qcow2::capacity));
    Some(Qcow2 {
        part: part?,
        capacity: capacity?,
    })
}

fn raw(given: &mut Given<'_>) -> Option<Raw> {
    let part = part(given);
    let path = given.required(Name::Path, Some(Kind::Raw), value(path));
    Some(Raw {
        part: part?,
        path: path?,
    })
}

fn ceph(given: &mut Given<'_>) -> Option<Ceph> {
    let kind = Some(Kind::Ceph);
    let part = part(given);
    let monitors = given.required(Name::Monitor, kind, value(Monitor::parse_list));
    let pool = given.required(Name::Pool, kind, value(RbdName::parse));
    let volume = given.required(Name::Volume, kind, value(RbdName::parse));
    let user = given.optional(Name::User, CephUser::default(), value(CephUser::parse));
    let secret = given.optional(Name::Secret, None, secret);
    let protocol = given.optional(Name::Protocol, (), value(protocol));
    protocol?;
    Some(Ceph {
        part: part?,
        monitors: monitors?,
        pool: pool?,
        volume: volume?,
        user: user?,
        secret: secret?,
    })
}

fn ceph_entries(volume: &Ceph) -> Vec<(Name, String)> {
    let monitors: Vec<_> = volume.monitors.iter().map(Monitor::to_string).collect();
    let mut entries = vec![
        (Name::Monitor, monitors.join(",")),
        (Name::Pool, volume.pool.as_str().to_owned()),
        (Name::Volume, volume.volume.as_str().to_owned()),
        (Name::User, volume.user.as_str().to_owned()),
    ];
    if let Some(key) = &volume.secret {
        entries.push((Name::Secret, key.expose().to_owned()));
    }
    entries
}

/// Without a type, what must be there is not known; what is there can be
/// checked all the same.
fn check_values(given: &mut Given<'_>) {
    part(given);
    given.optional(Name::Capacity, Capacity::DEFAULT, value(Capacity::parse));
    given.optional(Name::Path, String::new(), value(path));
    given.optional(Name::Monitor, Vec::new(), value(Monitor::parse_list));
    for name in [Name::Pool, Name::Volume] {
        given.optional(name, (), value(|text| RbdName::parse(text).map(drop)));
    }
    given.optional(Name::User, CephUser::default(), value(CephUser::parse));
    given.optional(Name::Secret, None, secret);
    given.optional(Name::Protocol, (), value(protocol));
}

fn part(given: &mut Given<'_>) -> Option<Partition> {
    given.optional(Name::Part, Partition::default(), value(Partition::parse))
}

fn path(text: &str) -> Result<String, ValueError> {
    if text.is_empty() {
        return Err(ValueError::EmptyPath);
    }
    Ok(text.to_owned())
}

fn secret(text: &str) -> Result<Option<Key>, Problem> {
    Key::parse(text).map(Some).map_err(Problem::BadSecret)
}

/// Virtlet read `protocol` and made no use of it, so manifests have it. Its
/// one true value is harmless; any other asks for what would not be done.
fn protocol(text: &str) -> Result<(), ValueError> {
    match text {
        "rbd" => Ok(()),
        _ => Err(ValueError::UnknownProtocol),
    }
}

/// The `type` option: the type of volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// See [`Options::Qcow2`].
    Qcow2,
    /// See [`Options::Raw`].
    Raw,
    /// See [`Options::Ceph`].
    Ceph,
}

impl Kind {
    /// All types.
    pub const ALL: [Self; 3] = [Self::Qcow2, Self::Raw, Self::Ceph];

    /// As it stands in the option.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Raw => "raw",
            Self::Ceph => "ceph",
        }
    }

    fn parse(text: &str) -> Result<Self, ValueError> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.as_str() == text)
            .ok_or(ValueError::UnknownType)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests;
