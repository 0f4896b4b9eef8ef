//! Fetching images into the store: from a file, a pipe, a web server or a registry.

mod entry;
mod error;
mod file;
mod http;
mod observer;
mod origin;
mod passing;
mod registry;
mod tenant;

use std::fs::File;
use std::io::Stdin;

use disklet_core::config::Config;
use disklet_core::facts::ImageFact;
use disklet_core::images::{Address, ImageMapping};
use disklet_core::names::{ImageName, Sha256};
use disklet_core::units::ByteSize;

use crate::store::{Added, Provenance, Store};
use entry::Entry;

pub use error::{PullError, PullErrorKind};
pub use http::WebDisk;
pub use observer::{Beginning, Observer, Teller};
pub use origin::Origin;
pub use passing::{Passing, read_once};
pub use registry::{LoginFrom, Platform, Registry, read_image_once};
pub use tenant::{Tenant, ensure_for};

/// An image that shall come into the store.
#[derive(Debug)]
pub struct Order<'o> {
    /// Its name; a digest in it must be met.
    pub image: &'o ImageName,
    /// Where it comes from, if not from where the configuration and its name
    /// say.
    pub from: Option<Origin>,
    /// What a cluster maps names to.
    pub mapping: ImageMapping,
    /// The size of the largest disk.
    pub most: ByteSize,
    /// How often in a row it is tried to go on.
    pub retries: u32,
}

impl<'o> Order<'o> {
    /// How often in a row it is tried to go on, unless it is said.
    pub const RETRIES: u32 = 5;
    /// The size of the largest disk, unless it is said.
    pub const MOST: ByteSize = ByteSize::from_bytes(2 << 40);

    /// An image from where the configuration and its name say.
    #[must_use]
    pub fn of(image: &'o ImageName) -> Self {
        Self {
            image,
            from: None,
            mapping: ImageMapping::default(),
            most: Self::MOST,
            retries: Self::RETRIES,
        }
    }
}

/// What the store knows of an image, fetched first if it is not there. Hold no
/// [`Store::rely`] meanwhile: this may take long, and whoever removes images
/// would wait. Take it afterwards, and look the image up again.
pub fn ensure(
    config: &Config,
    order: &Order<'_>,
    observer: &dyn Observer,
) -> Result<ImageFact, PullError> {
    let image = order.image;
    let store = Store::configured(config);
    // Under its name it is what is wanted, wherever it came from.
    if let Some(fact) = store.find(image.name())?
        && is_wanted(&fact, image.digest(), true)
    {
        return Ok(fact);
    }
    // By its digest as well, whoever had it under which name.
    if let Some(digest) = image.digest()
        && let Some(fact) = store.adopt(image.name(), digest)?
    {
        return Ok(fact);
    }
    Ok(pull(config, order, observer)?.fact)
}

/// Takes an image into the store. Those who want the same wait for one
/// another, and find it there.
pub fn pull(
    config: &Config,
    order: &Order<'_>,
    observer: &dyn Observer,
) -> Result<Added, PullError> {
    let image = order.image;
    pull_from(config, order, observer).map_err(|error| {
        let error = match other_in_store(config, image) {
            Some(other) => error.beside(image, &other),
            None => error,
        };
        about(image, error)
    })
}

/// Says which image an error is about.
fn about(image: &ImageName, error: PullError) -> PullError {
    match error.kind() {
        // The store names the image itself.
        PullErrorKind::Store(_) => error,
        _ => error.of(image.name()),
    }
}

/// What the store has under the name if that is not the digest that is asked
/// for.
fn other_in_store(config: &Config, image: &ImageName) -> Option<Sha256> {
    let wanted = image.digest()?;
    let fact = Store::configured(config).find(image.name()).ok()??;
    (fact.digest != wanted).then_some(fact.digest)
}

fn pull_from(
    config: &Config,
    order: &Order<'_>,
    observer: &dyn Observer,
) -> Result<Added, PullError> {
    let by_name = order.from.is_none();
    let origin = match &order.from {
        Some(origin) => origin.clone(),
        None => Origin::of(order.image, config, &order.mapping)?,
    };
    let digest = match &origin {
        Origin::Web(address) => demanded(order.image, address)?,
        Origin::File(_) | Origin::StandardInput | Origin::Registry(_) => order.image.digest(),
    };
    let source = origin.hash();
    let opened = Opened::of(origin)?;
    let store = Store::configured(config);
    let name = order.image.name();
    let before = store.stamp(name);
    let pulling = store.pulling(name, || observer.waits(name))?;
    // Whoever was at it may have brought what we want.
    if pulling.waited
        && store.stamp(name) != before
        && let Some((fact, theirs)) = store.find_with_source(name)?
        && is_wanted(&fact, digest, source.is_some() && source == theirs)
    {
        pulling.finish();
        return Ok(Added::known(fact));
    }
    // What is there need not come again, whoever had it under which name.
    if let (true, Some(digest)) = (by_name, digest)
        && let Some(fact) = store.adopt(name, digest)?
    {
        pulling.finish();
        return Ok(Added::known(fact));
    }
    let entry = Entry {
        store: &store,
        order,
        digest,
        provenance: Provenance {
            source,
            placed: !by_name,
            ..Provenance::default()
        },
        pulling: &pulling,
        observer,
    };
    let outcome = match opened {
        Opened::File(file, length, name) => entry.plain(file, &name, Some(length)),
        Opened::StandardInput(input) => entry.plain(input, "standard input", None),
        Opened::Web(address) => entry.web(&address),
        Opened::Registry(registry) => entry.registry(&registry),
    };
    pulling.finish();
    outcome.map_err(|error| match by_name {
        true => found_by_name(error, order.image),
        false => found_as_said(error),
    })
}

/// What to do about an image that is not where its name leads.
fn found_by_name(error: PullError, image: &ImageName) -> PullError {
    let is_elsewhere = matches!(
        error.kind(),
        PullErrorKind::NotFound | PullErrorKind::Page | PullErrorKind::Denied
    );
    if is_elsewhere && looks_like_registry(image.name()) {
        let help = format!(
            "if it is an image in a registry, its name here is docker://{}; else say with --from where the disk's file is, or map the name (imageTranslations, see docs/formats/image-mapping.md)",
            image.name()
        );
        return error.help(help);
    }
    match error.kind() {
        PullErrorKind::NotFound => {
            error.help("check the image's name, or say with --from where it is")
        }
        _ => error,
    }
}

fn found_as_said(error: PullError) -> PullError {
    match (error.kind(), error.remedy()) {
        (PullErrorKind::NotFound, None) => error.help("check what follows --from"),
        _ => error,
    }
}

/// Files have endings; what registries have has a tag, or nothing.
fn looks_like_registry(name: &str) -> bool {
    let last = name.rsplit('/').next().unwrap_or(name);
    let untagged = last.split(':').next().unwrap_or(last);
    !name.contains("://") && name.contains('/') && !untagged.contains('.')
}

/// Where an image comes from, found to be there where that can be told at once:
/// then nothing is made for what is not.
enum Opened {
    File(File, u64, String),
    StandardInput(Stdin),
    Web(Box<Address>),
    Registry(Box<Registry>),
}

impl Opened {
    fn of(origin: Origin) -> Result<Self, PullError> {
        Ok(match origin {
            Origin::File(path) => {
                let (file, length) = file::open(&path)?;
                Self::File(file, length, path.display().to_string())
            }
            Origin::StandardInput => Self::StandardInput(file::standard_input()?),
            Origin::Web(address) => Self::Web(address),
            Origin::Registry(registry) => Self::Registry(registry),
        })
    }
}

/// What the name and the mapping demand.
fn demanded(image: &ImageName, address: &Address) -> Result<Option<Sha256>, PullError> {
    match (image.digest(), address.digest) {
        (Some(named), Some(mapped)) if named != mapped => Err(PullError::new(
            PullErrorKind::Settings,
            format!("the mapping has the digest sha256:{mapped}, not sha256:{named} as demanded"),
        )),
        (named, mapped) => Ok(named.or(mapped)),
    }
}

/// Whether an image is the wanted one: by its digest, or by where it is from.
fn is_wanted(fact: &ImageFact, digest: Option<Sha256>, same_source: bool) -> bool {
    digest.map_or(same_source, |digest| digest == fact.digest)
}
