//! What registries say of images: manifests and lists of them, of Docker's kind
//! and of OCI's. Narrow views: what is not needed is not read.

use std::collections::BTreeMap;

use disklet_core::diag::shortened;
use disklet_core::names::Sha256;
use serde::Deserialize;

use super::platform::Platform;
use crate::pull::{PullError, PullErrorKind};

/// What is asked for.
pub(super) const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";
/// As registries have it.
pub(super) const LONGEST: u64 = 4 << 20;
/// As container runtimes have it.
const MOST_LAYERS: usize = 127;
/// A title may have so many letters.
const LONGEST_TITLE: usize = 4096;
const TITLES: [&str; 2] = ["org.opencontainers.image.title", "io.kubevirt.disk.name"];

/// A manifest, or a list of them.
#[derive(Debug)]
pub(super) enum Said {
    List(Vec<Listed>),
    Layers(Vec<Layer>),
}

/// A manifest in a list.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) digest: Sha256,
    pub(super) size: u64,
    pub(super) platform: Option<Platform>,
}

/// A layer of an image, or a file of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) digest: Sha256,
    pub(super) size: u64,
    pub(super) sort: Sort,
}

/// What a layer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sort {
    /// A part of a filesystem.
    Tar,
    /// A file, with its title.
    File(Option<String>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    schema_version: Option<u64>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Said {
    /// Reads a document; `where_` is where it comes from.
    pub(super) fn read(bytes: &[u8], where_: &str) -> Result<Self, PullError> {
        let wrong = |why: &str| unsound(format!("{where_}: {why}"));
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|error| wrong("the registry sends no manifest").because(error))?;
        match (document.layers, document.manifests) {
            (Some(_), Some(_)) => Err(wrong("is a manifest and a list of manifests at once")),
            (None, None) if document.schema_version == Some(1) => {
                let told = wrong("the image has a manifest of the first kind, as before 2016");
                Err(told.help("push it anew with a tool of today"))
            }
            (None, None) => Err(wrong("is neither a manifest nor a list of manifests")),
            (None, Some(listed)) => {
                let listed = listed.into_iter().map(|it| it.listed(where_));
                listed.collect::<Result<_, _>>().map(Self::List)
            }
            (Some(layers), None) if layers.len() > MOST_LAYERS => Err(wrong(&format!(
                "the image has {} layers, more than {MOST_LAYERS}",
                layers.len()
            ))),
            (Some(layers), None) => {
                let layers = layers.into_iter().map(|it| it.layer(where_));
                layers.collect::<Result<_, _>>().map(Self::Layers)
            }
        }
    }
}

impl Descriptor {
    fn listed(self, where_: &str) -> Result<Listed, PullError> {
        Ok(Listed {
            digest: self.sha256(where_)?,
            size: self.size,
            platform: self.platform,
        })
    }

    fn layer(self, where_: &str) -> Result<Layer, PullError> {
        let digest = self.sha256(where_)?;
        let kind = self.media_type.as_str();
        if kind.ends_with("+encrypted") {
            return Err(unsound(format!("{where_}: the image is encrypted")));
        }
        let titles = TITLES.iter().filter_map(|key| self.annotations.get(*key));
        let mut titles = titles.filter(|title| title.len() <= LONGEST_TITLE);
        Ok(Layer {
            digest,
            size: self.size,
            sort: match is_filesystem(kind) {
                true => Sort::Tar,
                false => Sort::File(titles.next().cloned()),
            },
        })
    }

    fn sha256(&self, where_: &str) -> Result<Sha256, PullError> {
        let hex = self.digest.strip_prefix("sha256:");
        hex.and_then(Sha256::parse_hex).ok_or_else(|| {
            let shown = shortened(&self.digest.escape_debug().to_string());
            unsound(format!(
                "{where_}: the digest {shown} is of a kind that is not known here, only sha256"
            ))
        })
    }
}

/// Whether a layer is a part of a filesystem. How it is packed is seen when it comes.
fn is_filesystem(media_type: &str) -> bool {
    const BEGINNINGS: [&str; 4] = [
        "application/vnd.oci.image.layer.v1.tar",
        "application/vnd.oci.image.layer.nondistributable.v1.tar",
        "application/vnd.docker.image.rootfs.diff.tar",
        "application/vnd.docker.image.rootfs.foreign.diff.tar",
    ];
    BEGINNINGS.iter().any(|start| {
        let rest = media_type.strip_prefix(start);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', '.']))
    })
}

pub(super) fn unsound(what: impl Into<String>) -> PullError {
    PullError::new(PullErrorKind::Unsound, what)
}
