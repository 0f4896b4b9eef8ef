//! What can be wrong with options, in words for the person who wrote them.

use std::fmt;

use crate::capacity::CapacityError;
use crate::ceph::{KeyError, MonitorError, NameError, UserError};
use crate::keys::Name;
use crate::nearest::nearest;
use crate::options::{Kind, Qcow2, Raw};
use crate::partition::PartitionError;

/// A problem with one option.
///
/// It never holds the value of `secret`, nor that of an unknown key: a
/// misspelt `secrett` has the key in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionError {
    /// The option's key as it was written; its usual spelling if it is missing.
    pub key: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with an option. As text, it continues a sentence that begins
/// with the option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// It must be there; because of the type if there is one.
    Missing {
        /// The type that requires it.
        kind: Option<Kind>,
    },
    /// No volume has such an option, or none of this type.
    UnknownKey {
        /// The volume's type, if it is known.
        kind: Option<Kind>,
    },
    /// It is an option of another type of volume.
    OfOtherType {
        /// The volume's type.
        kind: Kind,
        /// The type that has the option.
        owner: Kind,
    },
    /// It is something else than an option.
    NotAnOption {
        /// The volume's type, if it is known.
        kind: Option<Kind>,
        /// What it is, and what to do about it.
        remedy: &'static str,
    },
    /// It is given more than once.
    Repeated {
        /// How the first one is spelt.
        first: String,
    },
    /// Its value cannot be used.
    BadValue {
        /// The value.
        found: String,
        /// Why.
        why: ValueError,
    },
    /// The value of `secret` cannot be used.
    BadSecret(KeyError),
}

/// Why the value of an option cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueError {
    /// There is no such type of volume.
    UnknownType,
    /// It is no partition.
    Partition(PartitionError),
    /// It is no size.
    Capacity(CapacityError),
    /// It is a size that no new volume can have.
    NoSuchNewVolume,
    /// It is a partition that no new volume has.
    NoSuchNewPartition,
    /// The path is empty.
    EmptyPath,
    /// No device has such a path.
    NoDevice,
    /// It is no list of monitors.
    Monitor(MonitorError),
    /// It is no name of a pool or an image.
    Name(NameError),
    /// It is no name of a user.
    User(UserError),
    /// Only `rbd` is spoken.
    UnknownProtocol,
}

impl OptionError {
    /// What is wrong, in one sentence without the value and the remedies.
    #[must_use]
    pub fn message(&self) -> String {
        format!("option {:?} {}", self.key, self.problem)
    }

    /// The value that was found, if it may be shown.
    #[must_use]
    pub fn found(&self) -> Option<&str> {
        match &self.problem {
            Problem::BadValue { found, .. } => Some(found),
            Problem::Missing { .. }
            | Problem::UnknownKey { .. }
            | Problem::OfOtherType { .. }
            | Problem::NotAnOption { .. }
            | Problem::Repeated { .. }
            | Problem::BadSecret(_) => None,
        }
    }

    /// What is allowed in its place.
    #[must_use]
    pub fn allowed(&self) -> String {
        match &self.problem {
            Problem::UnknownKey { kind } | Problem::NotAnOption { kind, .. } => keys_of(*kind),
            Problem::OfOtherType { kind, .. } => keys_of(Some(*kind)),
            Problem::Repeated { .. } => "each option once, in one spelling".to_owned(),
            Problem::BadValue {
                why: ValueError::NoSuchNewVolume,
                ..
            } => Qcow2::CAPACITIES.to_owned(),
            Problem::BadValue {
                why: ValueError::NoSuchNewPartition,
                ..
            } => "\"1\", or no part at all".to_owned(),
            Problem::BadValue {
                why: ValueError::NoDevice,
                ..
            } => Raw::PATHS.to_owned(),
            Problem::Missing { .. } | Problem::BadValue { .. } | Problem::BadSecret(_) => {
                Name::of_key(&self.key).map_or_else(|| keys_of(None), Name::allowed)
            }
        }
    }

    /// What was probably meant: a key, a type, or the unit of a capacity.
    #[must_use]
    pub fn suggestion(&self) -> Option<&str> {
        match &self.problem {
            Problem::UnknownKey { kind } => nearest(&self.key, Name::keys_of(*kind)),
            Problem::BadValue { found, why } => match why {
                ValueError::UnknownType => nearest(found, Kind::ALL.map(Kind::as_str)),
                ValueError::Capacity(error) => error.suggestion(),
                _ => None,
            },
            _ => None,
        }
    }
}

fn keys_of(kind: Option<Kind>) -> String {
    Name::keys_of(kind).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for OptionError {
    /// All on one line, for places that have no more room, and where others read it than
    /// who wrote the value: a key in the wrong option is not to be shown. So nothing of the
    /// value is there.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::BadValue {
                why:
                    ValueError::Capacity(CapacityError::UnknownUnit(_) | CapacityError::SubByteUnit(_)),
                ..
            } => write!(f, "option {:?} has an unknown unit", self.key)?,
            _ => f.write_str(&self.message())?,
        }
        if let Some(suggestion) = self.suggestion() {
            write!(f, ", did you mean {suggestion:?}?")?;
        }
        write!(f, " (allowed: {})", self.allowed())
    }
}

impl std::error::Error for OptionError {}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { kind: None } => f.write_str("is missing"),
            Self::Missing { kind: Some(kind) } => {
                write!(f, "is missing: a volume of type {kind} needs it")
            }
            Self::UnknownKey { kind: None } => f.write_str("is unknown"),
            Self::UnknownKey { kind: Some(kind) } => {
                write!(f, "is unknown to volumes of type {kind}")
            }
            Self::OfOtherType { kind, owner } => {
                write!(
                    f,
                    "belongs to type {owner}, and this volume is of type {kind}"
                )
            }
            Self::NotAnOption { remedy, .. } => f.write_str(remedy),
            Self::Repeated { first } => write!(f, "is given twice, before as {first:?}"),
            Self::BadValue { why, .. } => why.fmt(f),
            Self::BadSecret(why) => why.fmt(f),
        }
    }
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownType => f.write_str("is no type of volume"),
            Self::Partition(why) => why.fmt(f),
            Self::Capacity(why) => why.fmt(f),
            Self::NoSuchNewVolume => f.write_str("is no size that a new volume can have"),
            Self::NoSuchNewPartition => {
                f.write_str("is another partition than the one that a qcow2 volume has")
            }
            Self::EmptyPath => f.write_str("is empty"),
            Self::NoDevice => f.write_str("is not a path of a device"),
            Self::Monitor(why) => why.fmt(f),
            Self::Name(why) => why.fmt(f),
            Self::User(why) => why.fmt(f),
            Self::UnknownProtocol => f.write_str("is a protocol other than rbd"),
        }
    }
}

impl From<PartitionError> for ValueError {
    fn from(why: PartitionError) -> Self {
        Self::Partition(why)
    }
}

impl From<CapacityError> for ValueError {
    fn from(why: CapacityError) -> Self {
        Self::Capacity(why)
    }
}

impl From<MonitorError> for ValueError {
    fn from(why: MonitorError) -> Self {
        Self::Monitor(why)
    }
}

impl From<NameError> for ValueError {
    fn from(why: NameError) -> Self {
        Self::Name(why)
    }
}

impl From<UserError> for ValueError {
    fn from(why: UserError) -> Self {
        Self::User(why)
    }
}
