//! Where images come from.

use std::path::{Path, PathBuf};

use disklet_core::config::Config;
use disklet_core::diag::{Diagnostics, shortened};
use disklet_core::images::{Address, ImageMapping, Nowhere, Reference, Transport};
use disklet_core::names::ImageName;
use disklet_core::url::Url;

use super::{PullError, PullErrorKind, Registry};
use crate::manifests::{DiagnosticsFormat, inputs};
use crate::report::report;
use crate::store::Store;

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A file of this machine.
    File(PathBuf),
    /// A pipe.
    StandardInput,
    /// A web server.
    Web(Box<Address>),
    /// A registry of container images.
    Registry(Box<Registry>),
}

impl Origin {
    /// What a user says after `--from`: an address, `-`, or a file.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::StandardInput);
        }
        let begins = |scheme: &str| {
            let start = text.get(..scheme.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        if text.starts_with(Reference::PREFIX) {
            let reference = Reference::parse(text).map_err(|why| format!("the name {why}"))?;
            return Ok(Self::Registry(Box::new(Registry::of(reference))));
        }
        if !begins("http://") && !begins("https://") {
            return refuse_scheme(text).map(|()| Self::File(Path::new(text).to_owned()));
        }
        let url = Url::parse(text).map_err(|why| format!("the address {why}"))?;
        Ok(Self::Web(Box::new(Address {
            url,
            digest: None,
            transport: Transport::default(),
            // Whoever says --from may do what this machine may.
            is_mapped: true,
        })))
    }

    /// Equal for the same origin, and without its secrets. Two pipes are never
    /// the same.
    pub(super) fn hash(&self) -> Option<String> {
        let text = match self {
            Self::StandardInput => return None,
            Self::File(path) => {
                let path = path.canonicalize().ok()?;
                [b"file ", path.as_os_str().as_encoded_bytes()].concat()
            }
            Self::Registry(registry) => registry.source().into_bytes(),
            Self::Web(address) => return Some(source_of(address)),
        };
        Some(Store::hash(text))
    }

    /// Where an image comes from by its name.
    pub fn of(
        image: &ImageName,
        config: &Config,
        of_cluster: &ImageMapping,
    ) -> Result<Self, PullError> {
        Ok(match place_of(image, config, of_cluster)? {
            Place::Web(address) => Self::Web(Box::new(address)),
            Place::Registry(registry) => Self::Registry(Box::new(registry)),
        })
    }
}

/// Equal for the same address, and without its secrets.
fn source_of(address: &Address) -> String {
    Store::hash([b"web ", address.url.request().expose()].concat())
}

/// Where an image is by its name.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Web(Address),
    Registry(Registry),
}

impl Place {
    /// Equal for the same place, and without its secrets.
    pub(super) fn source(&self) -> String {
        match self {
            Self::Web(address) => source_of(address),
            Self::Registry(registry) => Store::hash(registry.source()),
        }
    }
}

/// The name of an image in a registry.
fn reference(image: &ImageName) -> Result<Reference, PullError> {
    Reference::parse(image.name()).map_err(|why| {
        let what = format!("it is not known where it comes from: the name {why}");
        PullError::new(PullErrorKind::Nowhere, what)
    })
}

/// Where an image comes from by its name: as a cluster's mappings say, else as
/// the administrator's file, which is read anew each time, else as the name
/// itself says. In the last case not from a network that is closed to VMs.
pub(super) fn place_of(
    image: &ImageName,
    config: &Config,
    of_cluster: &ImageMapping,
) -> Result<Place, PullError> {
    let mut mapping = of_cluster.clone();
    if let Some(path) = &config.image_translations {
        mapping.then(read_mapping(Path::new(path))?);
    }
    let networks = || Some(config.networks.clone());
    match mapping.find(image) {
        Ok(mut address) => {
            if !address.is_mapped {
                address.transport.networks = networks();
            }
            Ok(Place::Web(address))
        }
        Err(Nowhere::Registry) => {
            let mut registry = Registry::of(reference(image)?);
            registry.transport.networks = networks();
            Ok(Place::Registry(registry))
        }
        Err(nowhere) => {
            let what = format!("it is not known where it comes from: {nowhere}");
            Err(PullError::new(PullErrorKind::Nowhere, what).help(nowhere.remedy()))
        }
    }
}

/// What begins as an address and is none that is spoken here. No more of it is
/// said than its scheme: it may hold a password.
fn refuse_scheme(text: &str) -> Result<(), String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Ok(());
    };
    let is_scheme = !scheme.is_empty()
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'-');
    if !is_scheme || Path::new(text).exists() {
        return Ok(());
    }
    Err(match scheme.to_ascii_lowercase().as_str() {
        "file" => {
            let path = rest.find('/').map_or(rest, |slash| &rest[slash..]);
            format!(
                "file:// is not needed\n  help: give the path alone: --from {}",
                shortened(path)
            )
        }
        "oci" => "oci:// is not spoken here\n  \
             help: an image in a registry is docker://HOST/NAME:TAG"
            .to_owned(),
        other => format!(
            "{}:// is not spoken here, only https:// and http://\n  \
             help: fetch the file by other means and give its path",
            shortened(other)
        ),
    })
}

/// What is wrong with it is told at once, all of it.
fn read_mapping(path: &Path) -> Result<ImageMapping, PullError> {
    let mut diags = Diagnostics::default();
    let mut mapping = ImageMapping::default();
    for input in inputs(path, &mut diags) {
        mapping.read(&input, &mut diags);
    }
    let errors = diags.errors();
    report(
        &diags.into_sorted(),
        errors,
        DiagnosticsFormat::Text,
        "fetched",
    );
    match errors {
        0 => Ok(mapping),
        _ => Err(PullError::new(
            PullErrorKind::Settings,
            format!("the mapping {} cannot be used", path.display()),
        )),
    }
}
