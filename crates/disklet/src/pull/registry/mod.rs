//! Disks inside images of registries.

mod blob;
mod disk;
mod documents;
mod image;
mod login;
mod platform;

use std::io::Read;

use disklet_core::images::layers::DiskPath;
use disklet_core::images::{Address, Reference, Transport};
use disklet_core::url::{Scheme, Url};

use super::{Beginning, Observer, Passing, PullError};
use disk::Disk;
use image::Image;

pub use login::LoginFrom;
pub use platform::Platform;

/// An image of a registry, and which disk of it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// Its name.
    pub reference: Reference,
    /// How it is reached.
    pub transport: Transport,
    /// In the clear, because somebody has said so.
    pub in_the_clear: bool,
    /// Who we are there.
    pub login: LoginFrom,
    /// Which one it is if there are several.
    pub platform: Platform,
    /// Where in it the disk is, if not the only file of `/disk`.
    pub path: Option<DiskPath>,
}

impl Registry {
    /// An image by its name alone, with the credentials that are at the usual place.
    #[must_use]
    pub fn of(reference: Reference) -> Self {
        Self {
            reference,
            transport: Transport::default(),
            in_the_clear: false,
            login: LoginFrom::DockerConfig(None),
            platform: Platform::of_this_machine(),
            path: None,
        }
    }

    /// Equal for the same disk of the same image, however it is reached.
    pub(super) fn source(&self) -> String {
        let Self {
            reference,
            in_the_clear,
            platform,
            path,
            ..
        } = self;
        format!("registry {reference} {in_the_clear} {platform} {path:?}")
    }

    fn scheme(&self) -> Scheme {
        match self.in_the_clear {
            true => Scheme::Http,
            false => Scheme::Https,
        }
    }

    fn address(&self, url: Url) -> Address {
        Address {
            url,
            digest: None,
            transport: self.transport.clone(),
            is_mapped: true,
        }
    }
}

/// Has the disk of an image read by somebody; also the image's name, pinned to what
/// its tag stood for. Why the disk did not come to its end is told rather than what
/// they made of that.
pub fn read_image_once<T, E: From<PullError>>(
    registry: &Registry,
    retries: u32,
    observer: &dyn Observer,
    read: impl FnOnce(Passing<'_>) -> Result<T, E>,
) -> Result<(T, Reference), E> {
    read_disk(registry, "the disk", retries, observer, |file, _| {
        read(file)
    })
}

/// The image that its name stands for now.
pub(super) fn pinned(
    registry: &Registry,
    retries: u32,
    observer: &dyn Observer,
) -> Result<Reference, PullError> {
    Ok(Image::find(registry, retries, observer)?.pinned)
}

/// The same; `name` is what the disk is called here, and whoever reads it hears the
/// image's pinned name.
pub(super) fn read_disk<T, E: From<PullError>>(
    registry: &Registry,
    name: &str,
    retries: u32,
    observer: &dyn Observer,
    read: impl FnOnce(Passing<'_>, &Reference) -> Result<T, E>,
) -> Result<(T, Reference), E> {
    let image = Image::find(registry, retries, observer)?;
    observer.begins(&Beginning {
        image: name,
        from: &image.pinned.to_string(),
        total: Some(image.layers.iter().map(|layer| layer.size).sum()),
        before: 0,
    });
    let mut disk = Disk::find(&image, registry.path.as_ref(), retries, observer)?;
    let stream: &mut (dyn Read + Send) = &mut disk;
    let passing = Passing {
        stream,
        total: None,
    };
    let outcome = read(passing, &image.pinned);
    let failure = disk.take_failure();
    drop(disk);
    match (outcome, failure) {
        (Ok(done), _) => Ok((done, image.pinned)),
        (Err(_), Some(failure)) => Err(failure.into()),
        (Err(error), None) => Err(error),
    }
}
