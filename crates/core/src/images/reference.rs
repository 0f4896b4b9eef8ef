//! The names of images in registries.

use std::fmt;

use crate::names::Sha256;
use crate::url::{Scheme, Url, UrlError};

/// An image in a registry: `docker://host:5000/team/debian:12@sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    host: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Sha256>,
}

/// Why a text is no [`Reference`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceError {
    /// A host that is none.
    Host,
    /// A repository with a wrong character, or without a name.
    Repository,
    /// A tag that is none.
    Tag,
    /// Something after `@` that is not `sha256:` and 64 hexadecimal digits.
    Digest,
}

impl fmt::Display for ReferenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "has no registry's host in it",
            Self::Repository => {
                "has no repository in it: at most 255 lower-case letters and digits, with '.', '_' and '-' between them, and '/'"
            }
            Self::Tag => {
                "has a tag that is none: at most 128 letters, digits, '_', '.' and '-', not beginning with '.' or '-'"
            }
            Self::Digest => {
                "has a digest that is not sha256: and 64 lower-case hexadecimal digits"
            }
        })
    }
}

impl std::error::Error for ReferenceError {}

/// What images are of that name no registry.
const USUAL: &str = "docker.io";
/// Where that is.
const USUAL_HOST: &str = "registry-1.docker.io";

impl Reference {
    /// How such names begin.
    pub const PREFIX: &str = "docker://";

    /// Reads a name, with or without `docker://`. As everywhere, what names no
    /// registry is of Docker's own.
    pub fn parse(text: &str) -> Result<Self, ReferenceError> {
        let text = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        let (text, digest) = match text.split_once('@') {
            None => (text, None),
            Some((text, digest)) => {
                let hex = digest.strip_prefix("sha256:");
                let digest = hex.and_then(Sha256::parse_hex);
                (text, Some(digest.ok_or(ReferenceError::Digest)?))
            }
        };
        let (host, rest) = match text.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest),
            _ => (USUAL, text),
        };
        let last = rest.rfind('/').map_or(0, |slash| slash + 1);
        let (repository, tag) = match rest[last..].find(':') {
            None => (rest, None),
            Some(colon) => {
                let (repository, tag) = rest.split_at(last + colon);
                (repository, Some(tag[1..].to_owned()))
            }
        };
        let repository = match host == USUAL && !repository.contains('/') {
            true => format!("library/{repository}"),
            false => repository.to_owned(),
        };
        if repository.len() > 255 || !repository.split('/').all(is_component) {
            return Err(ReferenceError::Repository);
        }
        if tag.as_deref().is_some_and(|tag| !is_tag(tag)) {
            return Err(ReferenceError::Tag);
        }
        let reference = Self {
            host: host.to_owned(),
            repository,
            tag,
            digest,
        };
        match reference.url(Scheme::Https, "") {
            Ok(url) if url.path().starts_with("/v2/") && url.login().is_none() => Ok(reference),
            _ => Err(ReferenceError::Host),
        }
    }

    /// The registry as it is written, with its port.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.host
    }

    /// The image's name within the registry.
    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The digest of its manifest, if the name pins one.
    #[must_use]
    pub fn digest(&self) -> Option<Sha256> {
        self.digest
    }

    /// Where its manifest is: by its digest, else by its tag.
    pub fn manifest(&self, scheme: Scheme) -> Result<Url, UrlError> {
        match self.digest {
            Some(digest) => self.manifest_of(scheme, &digest),
            None => {
                let tag = self.tag.as_deref().unwrap_or("latest");
                self.url(scheme, &format!("manifests/{tag}"))
            }
        }
    }

    /// Where a manifest of this digest is.
    pub fn manifest_of(&self, scheme: Scheme, digest: &Sha256) -> Result<Url, UrlError> {
        self.url(scheme, &format!("manifests/sha256:{digest}"))
    }

    /// Where content of this digest is.
    pub fn blob(&self, scheme: Scheme, digest: &Sha256) -> Result<Url, UrlError> {
        self.url(scheme, &format!("blobs/sha256:{digest}"))
    }

    /// By what address the keys of pull secrets know it.
    pub fn known_as(&self) -> Result<Url, UrlError> {
        let host = match self.host.as_str() {
            USUAL => "index.docker.io",
            host => host,
        };
        Url::parse(&format!("https://{host}/{}", self.repository))
    }

    /// The image, pinned to a digest.
    #[must_use]
    pub fn pinned(&self, digest: Sha256) -> Self {
        Self {
            digest: Some(digest),
            ..self.clone()
        }
    }

    fn url(&self, scheme: Scheme, what: &str) -> Result<Url, UrlError> {
        let host = match self.host.as_str() {
            USUAL => USUAL_HOST,
            host => host,
        };
        let (scheme, repository) = (scheme.name(), &self.repository);
        Url::parse(&format!("{scheme}://{host}/v2/{repository}/{what}"))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}/{}", Self::PREFIX, self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match self.digest {
            Some(digest) => write!(f, "@sha256:{digest}"),
            None => Ok(()),
        }
    }
}

/// Letters and digits, with one `.`, one or two `_` or any number of `-` between them.
fn is_component(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let between =
        |run: &str| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|b| b == b'-');
    text.starts_with(is_word) && text.ends_with(is_word) && text.split(is_word).all(between)
}

fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || matches!(b, b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEX: &str = "a8dd75ecffd4cdd96072d60c2237b448e0c8b2bc94d57f10fdbc8c481d9005b8";

    #[test]
    fn names_lead_to_registries() {
        let digest = format!("h.example/a@sha256:{HEX}");
        for (name, written, url) in [
            (
                "docker://h.example:5000/a/b:1",
                "docker://h.example:5000/a/b:1",
                "https://h.example:5000/v2/a/b/manifests/1",
            ),
            (
                "localhost/a",
                "docker://localhost/a",
                "https://localhost/v2/a/manifests/latest",
            ),
            (
                "debian:12",
                "docker://docker.io/library/debian:12",
                "https://registry-1.docker.io/v2/library/debian/manifests/12",
            ),
            (
                "team/a",
                "docker://docker.io/team/a",
                "https://registry-1.docker.io/v2/team/a/manifests/latest",
            ),
            (
                &digest,
                &format!("docker://{digest}"),
                &format!("https://h.example/v2/a/manifests/sha256:{HEX}"),
            ),
        ] {
            let reference = Reference::parse(name).unwrap();
            assert_eq!(reference.to_string(), written, "{name}");
            let manifest = reference.manifest(Scheme::Https).unwrap();
            assert_eq!(manifest.to_string(), url, "{name}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for (name, error) in [
            ("", ReferenceError::Repository),
            ("h.example/", ReferenceError::Repository),
            ("h.example/A", ReferenceError::Repository),
            ("h.example/a//b", ReferenceError::Repository),
            ("h.example/a/../b", ReferenceError::Repository),
            ("h.example/a?x", ReferenceError::Repository),
            ("h.example/a___b", ReferenceError::Repository),
            ("h.example/a:", ReferenceError::Tag),
            ("h.example/a:.x", ReferenceError::Tag),
            ("h.example/a@sha256:12", ReferenceError::Digest),
            ("h.example/a@sha512:12", ReferenceError::Digest),
            ("h.example:x/a", ReferenceError::Host),
            ("h ost.example/a", ReferenceError::Host),
            ("user:word@h.example/a", ReferenceError::Digest),
        ] {
            let found = Reference::parse(name);
            assert_eq!(found, Err(error), "{name}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in "(docker://)?([a-z.]{1,9}(:[0-9]{1,5})?/)?[a-zA-Z0-9._/-]{1,12}(:[a-zA-Z0-9_.-]{0,9})?") {
            if let Ok(reference) = Reference::parse(&text) {
                let again = Reference::parse(&reference.to_string()).unwrap();
                prop_assert_eq!(&again, &reference);
                let url = reference.manifest(Scheme::Https).unwrap();
                let path = format!("/v2/{}/manifests/", reference.repository());
                prop_assert!(url.path().starts_with(&path));
                prop_assert!(url.query().is_none() && url.login().is_none());
            }
        }

        #[test]
        fn nothing_panics(text in "\\PC{0,40}") {
            let _ = Reference::parse(&text);
        }
    }
}
