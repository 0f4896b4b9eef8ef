//! Names of pools and images.

use std::fmt;

use crate::is_unprintable;

/// The name of a RADOS pool or of an image in it.
///
/// Both end up in `pool/image@snapshot:option=value`, which libvirt and QEMU
/// take apart again, and some of it may travel as `key=value,key=value` or as
/// a word of a command. A name that could be taken for more than a name is
/// refused rather than escaped: each of these places escapes differently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RbdName(String);

const SEPARATORS: [char; 6] = ['/', '@', ':', '=', ',', '\\'];

const LONGEST: usize = 255;

impl RbdName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        if text.is_empty() {
            return Err(NameError::Empty);
        }
        if text.len() > LONGEST {
            return Err(NameError::TooLong);
        }
        if text.starts_with('-') {
            return Err(NameError::LeadingDash);
        }
        for character in text.chars() {
            if SEPARATORS.contains(&character) {
                return Err(NameError::Separator(character));
            }
            if is_unprintable(character) {
                return Err(NameError::Unprintable(character));
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RbdName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no [`RbdName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// There is nothing.
    Empty,
    /// It is longer than 255 bytes.
    TooLong,
    /// It begins with `-`, as options of commands do.
    LeadingDash,
    /// It has a character that separates a name from what follows it.
    Separator(char),
    /// It has a control character, or one that does not show.
    Unprintable(char),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::TooLong => write!(f, "is longer than {LONGEST} bytes"),
            Self::LeadingDash => f.write_str("begins with \"-\""),
            Self::Separator(character) => {
                write!(f, "has {character:?} in it, which would end the name")
            }
            Self::Unprintable(character) => {
                write!(
                    f,
                    "has a control or invisible character in it, {character:?}"
                )
            }
        }
    }
}

impl std::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_are_taken_as_they_are() {
        for text in [
            "libvirt-pool",
            "rbd-test-image",
            ".rgw.root",
            "a b",
            "größe",
            "x#1%",
        ] {
            assert_eq!(RbdName::parse(text).unwrap().as_str(), text);
        }
        assert_eq!(
            RbdName::parse(&"x".repeat(255)).unwrap().as_str().len(),
            255
        );
    }

    #[test]
    fn names_that_could_be_more_than_names_are_refused() {
        for (text, problem) in [
            ("", NameError::Empty),
            ("-p", NameError::LeadingDash),
            ("ns/image", NameError::Separator('/')),
            ("image@snap", NameError::Separator('@')),
            ("image:conf=/tmp/evil", NameError::Separator(':')),
            ("a=b", NameError::Separator('=')),
            ("a,readonly", NameError::Separator(',')),
            ("a\\:b", NameError::Separator('\\')),
            ("a\n", NameError::Unprintable('\n')),
            ("a\0", NameError::Unprintable('\0')),
            ("a\u{202e}b", NameError::Unprintable('\u{202e}')),
            ("a\u{ffff}", NameError::Unprintable('\u{ffff}')),
        ] {
            assert_eq!(RbdName::parse(text), Err(problem), "{text:?}");
        }
        assert_eq!(RbdName::parse(&"x".repeat(256)), Err(NameError::TooLong));
    }
}
