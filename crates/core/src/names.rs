//! Names as types: each is checked once, at the edge, and cannot leave its
//! directory, break a domain's XML or be mistaken for another kind of name
//! afterwards.

use std::fmt;

/// A rule that a name must keep.
#[derive(Debug, Clone, Copy)]
pub struct NameRule {
    /// What such a name is called.
    pub what: &'static str,
    /// The rule in words.
    pub allowed: &'static str,
    most: usize,
    valid: fn(&str) -> bool,
}

impl NameRule {
    fn accepts(&self, text: &str) -> bool {
        !text.is_empty() && text.len() <= self.most && (self.valid)(text)
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident: $rule:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The rule that such names keep.
            pub const RULE: NameRule = $rule;

            /// Checks a text against the rule.
            pub fn parse(text: &str) -> Result<Self, NameRule> {
                if Self::RULE.accepts(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(Self::RULE)
                }
            }

            /// As text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

/// Names that something can stand in for where they were refused, so that the
/// rest can be read and all problems reported; no plan comes of it.
macro_rules! stand_ins {
    ($($name:ident)*) => {$(
        impl $name {
            pub(crate) fn stand_in() -> Self {
                Self("refused".to_owned())
            }
        }
    )*};
}

stand_ins!(ContainerName ObjectName);

names! {
    /// The name of a Kubernetes object (RFC 1123 subdomain), such as `vm-1.prod`.
    ObjectName: NameRule {
        what: "an object name",
        allowed: "at most 253 lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit",
        most: 253,
        valid: |text| text.split('.').all(is_lower_case_name),
    };
    /// The name of a namespace (RFC 1123 label), such as `default`.
    Namespace: NameRule {
        what: "a namespace",
        allowed: LABEL,
        most: 63,
        valid: is_label,
    };
    /// The name of a volume in a pod (RFC 1123 label), such as `vol1`.
    VolumeName: NameRule {
        what: "a volume name",
        allowed: LABEL,
        most: 63,
        valid: is_label,
    };
    /// The name of a container (RFC 1123 label), such as `ubuntu-vm`.
    ContainerName: NameRule {
        what: "a container name",
        allowed: LABEL,
        most: 63,
        valid: is_label,
    };
    /// A host name (RFC 1123 label), such as `web-0`.
    HostName: NameRule {
        what: "a host name",
        allowed: LABEL,
        most: 63,
        valid: is_label,
    };
    /// The UID of a pod, which the kubelet's directory of it is called by.
    PodUid: NameRule {
        what: "a pod's UID",
        allowed: LABEL,
        most: 63,
        valid: is_label,
    };
    /// The name of a storage pool, such as `volumes` or `fast`.
    PoolName: NameRule {
        what: "a pool name",
        allowed: LABEL,
        most: 63,
        valid: is_label,
    };
    /// A key of a ConfigMap or a Secret, such as `authorized_keys`.
    DataKey: NameRule {
        what: "a key of a ConfigMap or Secret",
        allowed: "at most 253 letters, digits, '-', '_' and '.', not beginning with '..' and not '.'",
        most: 253,
        valid: |text| {
            text != "." && !text.starts_with("..")
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        },
    };
    /// The name of an environment variable.
    EnvName: NameRule {
        what: "a name of an environment variable",
        allowed: "letters, digits and '_', not beginning with a digit",
        most: 1024,
        valid: |text| {
            !text.as_bytes()[0].is_ascii_digit()
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        },
    };
}

const LABEL: &str =
    "at most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit";

fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_lower_case_name(text)
}

fn is_lower_case_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let edge = |b: Option<&u8>| b.is_some_and(|b| *b != b'-' && inner(b));
    bytes.iter().all(inner) && edge(bytes.first()) && edge(bytes.last())
}

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// Reads 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 || digits.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        let nibble = |b: u8| {
            char::from(b)
                .to_digit(16)
                .and_then(|n| u8::try_from(n).ok())
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Some(Self(bytes))
    }

    /// The digest of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

/// The name of a VM image, such as `virtlet.cloud/cirros` or
/// `download.cirros-cloud.net/0.3.4/cirros.img@sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName {
    written: String,
    digest: Option<Sha256>,
}

/// Why a text is no [`ImageName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageNameError {
    /// Nothing there.
    Empty,
    /// A character that no image name has.
    Character(char),
    /// An empty, `.` or `..` component.
    Component,
    /// A user, a password or a token before an `@`.
    Credentials,
    /// Something after `@` that is not `sha256:` and 64 hexadecimal digits.
    Digest,
    /// Longer than any name should be.
    TooLong,
}

impl fmt::Display for ImageNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::Character(c) => write!(f, "has the character {c:?} in it"),
            Self::Component => f.write_str("has an empty, \".\" or \"..\" component"),
            Self::Credentials => f.write_str(
                "has something before an \"@\" that may be a password: credentials are refused there",
            ),
            Self::Digest => {
                f.write_str("has a digest that is not sha256: and 64 lower-case hexadecimal digits")
            }
            Self::TooLong => f.write_str("is longer than 1024 characters"),
        }
    }
}

impl ImageName {
    /// The prefix by which Virtlet's users tell VM images from container
    /// images; it is no part of the image's own name.
    const PREFIX: &str = "virtlet.cloud/";

    /// How the names of images in registries begin. A digest in such a name is that
    /// of the image, and of no file.
    const REGISTRY: &str = "docker://";

    /// Checks an image name.
    pub fn parse(text: &str) -> Result<Self, ImageNameError> {
        if text.is_empty() {
            return Err(ImageNameError::Empty);
        }
        if text.len() > 1024 {
            return Err(ImageNameError::TooLong);
        }
        if has_credentials(text) {
            return Err(ImageNameError::Credentials);
        }
        let foreign = |c: &char| !(c.is_ascii_alphanumeric() || "-._/:@%+~=".contains(*c));
        if let Some(c) = text.chars().find(foreign) {
            return Err(ImageNameError::Character(c));
        }
        let (name, digest) = match text.split_once('@') {
            None => (text, None),
            Some((name, digest)) => {
                let hex = digest
                    .strip_prefix("sha256:")
                    .ok_or(ImageNameError::Digest)?;
                (
                    name,
                    Some(Sha256::parse_hex(hex).ok_or(ImageNameError::Digest)?),
                )
            }
        };
        let path = name.split_once("://").map_or(name, |(_, path)| path);
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ImageNameError::Component);
        }
        let bare = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        Ok(Self {
            digest: digest.filter(|_| !bare.starts_with(Self::REGISTRY)),
            written: text.to_owned(),
        })
    }

    /// Stands in for a name that was refused; see the other names.
    pub(crate) fn stand_in() -> Self {
        Self {
            written: "refused".to_owned(),
            digest: None,
        }
    }

    /// As written, digest and all.
    #[must_use]
    pub fn as_written(&self) -> &str {
        &self.written
    }

    /// The name without Virtlet's prefix and without the digest of its file.
    #[must_use]
    pub fn name(&self) -> &str {
        let name = self
            .written
            .strip_prefix(Self::PREFIX)
            .unwrap_or(&self.written);
        if name.starts_with(Self::REGISTRY) {
            return name;
        }
        name.split_once('@').map_or(name, |(name, _)| name)
    }

    /// The digest, if the name pins one.
    #[must_use]
    pub fn digest(&self) -> Option<Sha256> {
        self.digest
    }
}

/// Whether a text could be an address with a user or a password in it. A digest
/// follows the last `@`, is of a known form and has no `/` in it.
fn has_credentials(text: &str) -> bool {
    let Some((before, after)) = text.rsplit_once('@') else {
        return false;
    };
    let address = before.split_once("://").map_or(before, |(_, rest)| rest);
    let in_host = before.contains("://") && !address.contains('/');
    if after.starts_with("sha256:") && !after.contains('/') {
        return has_credentials(before);
    }
    let is_digest = after.split_once(':').is_some_and(|(kind, hex)| {
        kind.bytes().all(|b| b.is_ascii_alphanumeric())
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
    });
    in_host || after.contains('/') || (address.contains(':') && !is_digest)
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_their_directory_are_refused() {
        for bad in [
            "",
            "..",
            "a/b",
            "../x",
            "A",
            "-a",
            "a-",
            "a b",
            "a\0",
            &"x".repeat(64),
        ] {
            assert!(VolumeName::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(VolumeName::parse("vol1").unwrap().as_str(), "vol1");
        ObjectName::parse("vm.prod-1").unwrap();
        ObjectName::parse("vm..prod").unwrap_err();
        DataKey::parse(".bashrc").unwrap();
        DataKey::parse("..data").unwrap_err();
        EnvName::parse("1X").unwrap_err();
    }

    #[test]
    fn image_names_keep_their_digest() {
        let hex = "a8dd75ecffd4cdd96072d60c2237b448e0c8b2bc94d57f10fdbc8c481d9005b8";
        let image = ImageName::parse(&format!("virtlet.cloud/foobar@sha256:{hex}")).unwrap();
        assert_eq!(image.name(), "foobar");
        assert_eq!(image.digest().unwrap().to_string(), hex);
        let pinned = format!("docker://host:5000/x@sha256:{hex}");
        for written in [pinned.clone(), format!("virtlet.cloud/{pinned}")] {
            let image = ImageName::parse(&written).unwrap();
            assert_eq!((image.name(), image.digest()), (pinned.as_str(), None));
        }
        assert_eq!(
            ImageName::parse("https://host/x.img").unwrap().name(),
            "https://host/x.img"
        );
    }

    #[test]
    fn bad_image_names_are_refused_with_a_reason() {
        let reason = |text: &str| ImageName::parse(text).unwrap_err();
        assert_eq!(reason(""), ImageNameError::Empty);
        assert_eq!(reason("a b"), ImageNameError::Character(' '));
        assert_eq!(reason("host/../x"), ImageNameError::Component);
        assert_eq!(reason("x@sha256:12"), ImageNameError::Digest);
        assert_eq!(reason("x@md5:12"), ImageNameError::Digest);
        assert_eq!(reason("host:5000/x@md5:12"), ImageNameError::Digest);
    }

    #[test]
    fn credentials_in_image_names_are_told_from_digests() {
        let digest = format!("sha256:{}", "a".repeat(64));
        ImageName::parse(&format!("https://host:5000/x@{digest}")).unwrap();
        for name in [
            "https://user:word@host/x.img",
            "https://user:w!rd@host/x.img",
            "https://user:w/rd@host/x.img",
            "https://user:w@rd@host/x.img",
            "https://token@host",
            "user:word@host/x.img",
            "virtlet.cloud/user:word@host:80/x",
            "user:word@host",
            "https://user:word@host/x.img?signature=1",
        ] {
            for name in [name.to_owned(), format!("{name}@{digest}")] {
                let error = ImageName::parse(&name).unwrap_err();
                assert_eq!(error, ImageNameError::Credentials, "{name}");
            }
        }
    }
}
