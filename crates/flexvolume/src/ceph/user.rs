//! Ceph users.

use std::fmt;

/// The name of a Ceph user, without the `client.` in front of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CephUser(String);

impl CephUser {
    /// Takes letters, digits, `_`, `.` and `-`, all of ASCII: what needs no
    /// escaping wherever a user's name is passed on.
    /// The `client.` that Ceph's own tools print goes.
    pub fn parse(text: &str) -> Result<Self, UserError> {
        let text = text.strip_prefix("client.").unwrap_or(text);
        if text.is_empty() {
            return Err(UserError::Empty);
        }
        match text.chars().find(|&c| !is_harmless(c)) {
            Some(character) => Err(UserError::Character(character)),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_harmless(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

impl Default for CephUser {
    /// `admin`, as for Ceph's own tools.
    fn default() -> Self {
        Self("admin".to_owned())
    }
}

impl fmt::Display for CephUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no [`CephUser`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserError {
    /// There is nothing.
    Empty,
    /// It has a character that a user's name cannot have.
    Character(char),
}

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::Character(character) => {
                write!(f, "has a character that no user's name has, {character:?}")
            }
        }
    }
}

impl std::error::Error for UserError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_of_cephs_own_tools_goes() {
        assert_eq!(CephUser::parse("client.u0").unwrap().as_str(), "u0");
    }

    #[test]
    fn users_are_plain_words() {
        for text in ["libvirt", "csi-rbd_node.1"] {
            assert_eq!(CephUser::parse(text).unwrap().as_str(), text);
        }
        assert_eq!(CephUser::default().to_string(), "admin");
        assert_eq!(CephUser::parse(""), Err(UserError::Empty));
        for (text, character) in [("a:b", ':'), ("a b", ' '), ("a,b", ','), ("ä", 'ä')] {
            assert_eq!(CephUser::parse(text), Err(UserError::Character(character)));
        }
    }
}
