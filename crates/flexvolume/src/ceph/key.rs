//! The key of a Ceph user.

use std::fmt;

use crate::base64;

/// A cephx key in base64, as it stands in a Ceph keyring.
///
/// It has no `Display`, and its `Debug` shows nothing: it cannot get into a
/// message by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl Key {
    /// Under which name a Kubernetes Secret holds it: that of Kubernetes' own RBD
    /// volumes.
    pub const IN_SECRET: &str = "key";

    /// Takes padded base64 of the standard alphabet. Blanks around it go: a
    /// YAML block ends with a line break, which Virtlet's decoder skipped.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        base64::decode(text).ok_or(KeyError::NotBase64)?;
        Ok(Self(text.to_owned()))
    }

    /// The key itself in base64, for the component that hands it to Ceph.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Why a text is no [`Key`]. It tells nothing about the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// There is nothing.
    Empty,
    /// It is not base64.
    NotBase64,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty",
            Self::NotBase64 => "is not base64",
        })
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "AQDTwuVY8rA8HxAAthwOKaQPr0hRc7kCmR/9Qg==";

    #[test]
    fn a_key_is_kept_as_written_and_shown_to_nobody() {
        let key = Key::parse(SEED).unwrap();
        assert_eq!(key.expose(), SEED);
        assert_eq!(
            format!("{key:?} {:?}", Some(&key)),
            "<redacted> Some(<redacted>)"
        );
        assert_eq!(Key::parse(&format!("{SEED}\n")), Ok(key));
    }

    #[test]
    fn only_canonical_base64_is_a_key() {
        for text in ["Zm9v", "Zm8=", "Zg==", "+/+/"] {
            assert_eq!(Key::parse(text).map(|key| key.0), Ok(text.to_owned()));
        }
        for text in [
            "Zm9", "Zm9vY", "Zg=", "Zg===", "=", "====", "Zm=v", "Zm-_", "Zm 9v", "Zh==", "Zm9=",
            "Zm9é",
        ] {
            assert_eq!(Key::parse(text), Err(KeyError::NotBase64), "{text}");
        }
        assert_eq!(Key::parse(" \n"), Err(KeyError::Empty));
    }
}
