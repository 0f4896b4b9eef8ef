//! Why a volume cannot be had.

use std::fmt;

use super::{READ_WRITE, Volume};
use crate::contradiction::Contradiction;
use crate::json::JsonError;
use crate::problem::OptionError;

/// Why a text describes no [`Volume`]. It tells no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VolumeError {
    /// It is no JSON object of texts.
    Json(JsonError),
    /// These options are wrong; there is at least one.
    Options(Vec<OptionError>),
    /// Something beside the options does not go with them.
    Contradiction(Contradiction),
    /// The Secret that the volume names is of no use.
    Secret(SecretError),
    /// The kubelet always says this, and here it is not said.
    Missing(&'static str),
    /// It is said neither that it may be written to nor that it may not.
    ReadWrite,
    /// The file is of another version, or says none.
    Version(Option<String>),
}

/// Why a Secret is of no use to a Ceph volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretError {
    /// There is nothing under the name that a key has.
    NoKey,
    /// What is there is no Ceph key.
    NotAKey,
}

impl fmt::Display for VolumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(why) => write!(f, "not a JSON object of texts: {why}"),
            Self::Options(errors) => {
                for (index, error) in errors.iter().enumerate() {
                    let between = if index == 0 { "" } else { "; " };
                    write!(f, "{between}{error}")?;
                }
                Ok(())
            }
            Self::Contradiction(problem) => write!(f, "{problem}: {}", problem.remedy()),
            Self::Secret(why) => write!(f, "{why} (allowed: a key as ceph auth get-key prints it)"),
            Self::Missing(key) => write!(f, "{key} is missing, which the kubelet always says"),
            Self::ReadWrite => write!(f, "{READ_WRITE} is neither \"rw\" nor \"ro\""),
            Self::Version(Some(found)) => write!(
                f,
                "the file has version {found:?}, and only {:?} is known",
                Volume::VERSION
            ),
            Self::Version(None) => f.write_str("the file has no version"),
        }
    }
}

impl std::error::Error for VolumeError {}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKey => "the Secret has nothing under \"key\"",
            Self::NotAKey => "the Secret's \"key\" is not a Ceph key",
        })
    }
}

impl From<JsonError> for VolumeError {
    fn from(why: JsonError) -> Self {
        Self::Json(why)
    }
}

impl From<Vec<OptionError>> for VolumeError {
    fn from(errors: Vec<OptionError>) -> Self {
        Self::Options(errors)
    }
}
