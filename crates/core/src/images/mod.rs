//! Where images come from: an administrator's mapping of names to addresses,
//! in the shape of Virtlet's `VirtletImageMapping`, else the name itself.

mod access;
mod collect;
mod docker_config;
mod keyring;
pub mod layers;
mod objects;
mod read;
mod reference;
mod transport;

use std::collections::BTreeMap;
use std::fmt;

use regex_lite::Regex;

use crate::diag::Place;
use crate::names::{ImageName, Sha256};
use crate::url::{Scheme, Url, UrlError};

pub use access::{Access, Came, Here, PullPolicy, Step, next_step};
pub use collect::{ImageGc, Room, Unused};
pub use docker_config::{DockerConfig, Known};
pub use keyring::{Credential, Keyring, SERVER};
pub use objects::{MappingObjects, Verdict};
pub use read::KIND as MAPPING_KIND;
pub use reference::{Reference, ReferenceError};
pub use transport::{ClientCertificate, Pem, Tls, Transport};

/// What all files of a mapping say.
#[derive(Debug, Clone, Default)]
pub struct ImageMapping {
    names: BTreeMap<String, Rule>,
    /// In the order of files and lines; the first that matches counts.
    patterns: Vec<Pattern>,
}

/// What a name or a pattern stands for. Its address may hold a password.
#[derive(Clone)]
struct Rule {
    place: Place,
    /// An address; with `$1` and the like in it, of a pattern.
    url: String,
    digest: Option<Sha256>,
    transport: Transport,
}

#[derive(Debug, Clone)]
struct Pattern {
    /// The names that it is tried on begin with this, which it does not see.
    prefix: String,
    regexp: Regex,
    rule: Rule,
}

/// Where to get an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Its file.
    pub url: Url,
    /// The digest that the file must have, by the mapping.
    pub digest: Option<Sha256>,
    /// How to fetch it.
    pub transport: Transport,
    /// An administrator has said it, not the image's name.
    pub is_mapped: bool,
}

impl Address {
    /// Whether an administrator has said who we are to the server: then nobody
    /// else is.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        let Transport {
            credentials_file,
            tls,
            ..
        } = &self.transport;
        credentials_file.is_some() || tls.client.is_some() || self.url.login().is_some()
    }
}

/// Why it is not known where to get an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nowhere {
    /// No rule has the name, and it is no address.
    Unknown,
    /// The name is an address to which http would be spoken.
    InTheClear,
    /// The name is that of an image in a registry, which is asked in another way.
    Registry,
    /// The name begins as addresses do to which nothing is spoken here.
    Scheme(String),
    /// The name is no address.
    Name(UrlError),
    /// What a rule gives is no address.
    Rule(Place, UrlError),
}

impl fmt::Display for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("no mapping has the name, and it does not begin with a host")
            }
            Self::InTheClear => f.write_str("a name does not make http be used"),
            Self::Registry => f.write_str("the name is of an image in a registry"),
            Self::Scheme(scheme) => write!(
                f,
                "{scheme}:// is not spoken here, only https:// and http://"
            ),
            Self::Name(error) => write!(f, "the name {error}"),
            Self::Rule(place, error) => write!(f, "{place}: the address for this name {error}"),
        }
    }
}

impl Nowhere {
    /// What the user can do.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::InTheClear => "say it with --from http://…, or in a mapping (imageTranslations)",
            _ => {
                "say with --from where it is, or map the name (imageTranslations, see docs/formats/image-mapping.md)"
            }
        }
    }
}

impl ImageMapping {
    /// Adds what comes after this: names that are mapped here stay as they are.
    pub fn then(&mut self, later: Self) {
        for (name, rule) in later.names {
            self.names.entry(name).or_insert(rule);
        }
        self.patterns.extend(later.patterns);
    }

    /// Where an image comes from: by its whole name, else by the first pattern
    /// that matches, else the name is the address. A tag is tried first and
    /// then left out.
    pub fn find(&self, image: &ImageName) -> Result<Address, Nowhere> {
        let name = image.name();
        let untagged = without_tag(name);
        for name in [name, untagged] {
            if let Some(rule) = self.names.get(name) {
                return rule.address(&rule.url);
            }
        }
        for pattern in &self.patterns {
            let Some(rest) = untagged.strip_prefix(&pattern.prefix) else {
                continue;
            };
            if let Some(captures) = pattern.regexp.captures(rest) {
                let mut url = String::new();
                captures.expand(&pattern.rule.url, &mut url);
                return pattern.rule.address(&url);
            }
        }
        by_name(untagged)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule at {}", self.place)
    }
}

impl Rule {
    fn address(&self, url: &str) -> Result<Address, Nowhere> {
        let url = parse_url(url).map_err(|error| Nowhere::Rule(self.place.clone(), error))?;
        Ok(Address {
            url,
            digest: self.digest,
            transport: self.transport.clone(),
            is_mapped: true,
        })
    }
}

/// An address; https unless it says something else.
fn parse_url(text: &str) -> Result<Url, UrlError> {
    match text.contains("://") {
        true => Url::parse(text),
        false => Url::parse(&format!("https://{text}")),
    }
}

/// A name that begins with a host is an address.
fn by_name(name: &str) -> Result<Address, Nowhere> {
    let url = match name.split_once("://") {
        Some((scheme, _)) => match scheme.to_ascii_lowercase().as_str() {
            "https" | "http" => Url::parse(name).map_err(Nowhere::Name)?,
            "docker" => return Err(Nowhere::Registry),
            other => return Err(Nowhere::Scheme(other.to_owned())),
        },
        None => {
            let (host, _) = name.split_once('/').ok_or(Nowhere::Unknown)?;
            // As container runtimes tell hosts from other words.
            if !host.contains(['.', ':']) && host != "localhost" {
                return Err(Nowhere::Unknown);
            }
            Url::parse(&format!("https://{name}")).map_err(Nowhere::Name)?
        }
    };
    if url.scheme() == Scheme::Http {
        return Err(Nowhere::InTheClear);
    }
    Ok(Address {
        url,
        digest: None,
        transport: Transport::default(),
        is_mapped: false,
    })
}

/// What follows a colon in the last part of a name is a tag, which means
/// nothing of VM images, as with Virtlet.
fn without_tag(name: &str) -> &str {
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    match name[last..].find(':') {
        Some(colon) => &name[..last + colon],
        None => name,
    }
}

#[cfg(test)]
mod tests;
