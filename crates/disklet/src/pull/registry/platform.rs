//! For which machine an image is.

use std::fmt;

use disklet_core::diag::shortened;
use serde::Deserialize;

use super::documents::Listed;
use crate::pull::{PullError, PullErrorKind};

/// A system and a processor, in the words of registries: `linux/amd64`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

impl Platform {
    /// Reads `linux/arm64` or `linux/arm64/v8`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_word = |word: &&str| {
            let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            !word.is_empty() && word.bytes().all(known)
        };
        let parts: Vec<_> = text.split('/').filter(is_word).map(str::to_owned).collect();
        if parts.len() != text.split('/').count() {
            return None;
        }
        let mut parts = parts.into_iter();
        let platform = Self {
            os: parts.next()?,
            architecture: parts.next()?,
            variant: parts.next(),
        };
        parts.next().is_none().then_some(platform)
    }

    /// Linux on such a processor as this one.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            other => other,
        };
        Self {
            os: "linux".to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
        }
    }

    fn takes(&self, other: &Self) -> bool {
        self.os == other.os
            && self.architecture == other.architecture
            && (self.variant.is_none() || self.variant == other.variant)
    }

    /// The manifest of a list that is for this platform; a list that says of none
    /// for which it is has one.
    pub(super) fn choose<'l>(
        &self,
        listed: &'l [Listed],
        where_: &str,
    ) -> Result<&'l Listed, PullError> {
        let fits = |it: &&Listed| it.platform.as_ref().is_some_and(|it| self.takes(it));
        if let Some(found) = listed.iter().find(fits) {
            return Ok(found);
        }
        let platforms: Vec<_> = listed
            .iter()
            .filter_map(|it| it.platform.as_ref())
            .collect();
        if let ([one], []) = (listed, platforms.as_slice()) {
            return Ok(one);
        }
        // Attestations and the like are for nobody.
        let real = platforms.iter().filter(|it| it.os != "unknown").take(20);
        let known: Vec<_> = real.map(ToString::to_string).collect();
        let what = match known.as_slice() {
            [] => format!(
                "{where_}: the list has {} images, and says of none for what",
                listed.len()
            ),
            known => format!(
                "{where_}: there is no image for {self}, only for {}",
                known.join(", ")
            ),
        };
        Err(PullError::new(PullErrorKind::NotFound, what)
            .help("say with --platform which one, or name it by its digest: …@sha256:…"))
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}/{}", self.os, self.architecture);
        let text = match &self.variant {
            Some(variant) => format!("{text}/{variant}"),
            None => text,
        };
        f.write_str(&shortened(&text.escape_debug().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use disklet_core::names::Sha256;

    use super::*;

    fn listed(platforms: &[Option<&str>]) -> Vec<Listed> {
        let listed = platforms.iter().zip(0..).map(|(platform, at)| Listed {
            digest: Sha256::from_bytes([at; 32]),
            size: 0,
            platform: platform.map(|text| Platform::parse(text).unwrap()),
        });
        listed.collect()
    }

    #[test]
    fn the_image_of_a_platform_is_chosen() {
        let arm = Platform::parse("linux/arm64").unwrap();
        let chosen = |platforms: &[Option<&str>]| {
            let listed = listed(platforms);
            let found = arm.choose(&listed, "x").map(|it| it.digest);
            found.map_err(|error| error.to_string())
        };
        let at = |at: u8| Ok(Sha256::from_bytes([at; 32]));
        assert_eq!(
            chosen(&[Some("linux/amd64"), Some("linux/arm64/v8")]),
            at(1)
        );
        assert_eq!(chosen(&[None]), at(0));
        assert_eq!(
            chosen(&[Some("linux/amd64"), Some("unknown/unknown")]),
            Err("x: there is no image for linux/arm64, only for linux/amd64".to_owned())
        );
        assert_eq!(
            chosen(&[None, None]),
            Err("x: the list has 2 images, and says of none for what".to_owned())
        );
        for text in ["", "linux", "linux/", "a/b/c/d", "a b/c"] {
            assert_eq!(Platform::parse(text), None, "{text}");
        }
    }
}
