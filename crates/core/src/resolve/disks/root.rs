//! The root disk: an overlay over the image, or a claim filled from it.

use super::claimed::{Absent, ClaimedPath};
use super::volumes::{DiskVolume, DiskVolumes};
use super::{Piece, Vm, volumes_pool};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::Serial;
use crate::facts::{Fact, ImageFact};
use crate::manifest::VolumeDevice;
use crate::names::{ImageName, Sha256};
use crate::plan::{Access, Copy, ExposedPath, HostPath, PlannedDisk, Size, Source};
use crate::resolve::Resolver;
use crate::root::{DATA_OFFSET, RootVerdict, judge};
use crate::units::ByteSize;

/// An image's file in the store.
pub(in crate::resolve) struct StoredImage {
    pub(in crate::resolve) digest: Option<Sha256>,
    pub(in crate::resolve) file: String,
    pub(in crate::resolve) size: Option<ByteSize>,
}

impl Resolver<'_> {
    /// An overlay over the image. It goes with the VM.
    pub(super) fn image_root(&self, vm: Vm<'_>, diags: &mut Diagnostics) -> Piece {
        let image = &vm.pod.container.image;
        let stored = self.stored_image(&image.value);
        let source = Source::Image {
            image: image.value.clone(),
            digest: stored.digest,
            store_file: stored.file,
        };
        let name = PlannedDisk::ROOT.to_owned();
        let overlay = self.volume_file(format!("virtlet_root_{}", vm.uuid));
        // The overlay is worth nothing without the image below it, which is in
        // the node's own store: it travels.
        Piece {
            size: root_size(vm, stored.size, diags),
            access: Access::ReadShared,
            copy: Copy::OnWrite(overlay),
            pool: volumes_pool(),
            boot: Some(1),
            ..Piece::new(name, Serial::root(), image.place.clone(), source)
        }
    }

    /// A block claim with our header, filled from the image once.
    pub(super) fn persistent_root(
        &self,
        vm: Vm<'_>,
        device: &VolumeDevice,
        volumes: &DiskVolumes<'_>,
        diags: &mut Diagnostics,
    ) -> Option<Piece> {
        let DiskVolume::Claimed(claimed) = volumes.get(&device.volume.value)? else {
            return None;
        };
        let place = &device.volume.place;
        if claimed.read_only {
            let (claim, volume) = (&claimed.claim.meta.name, &claimed.volume.name);
            diags.push(
                Diagnostic::error(place, "the root disk cannot be read-only")
                    .found(format!("claim {claim}, volume {volume}"))
                    .help("remove readOnly, and use an access mode such as ReadWriteOnce"),
            );
            return None;
        }
        if let Some(size) = &vm.pod.annotations.root_size {
            diags.push(
                Diagnostic::notice(&size.place, "has no effect on a persistent root")
                    .help("its size is that of the claim's device"),
            );
        }
        let name = &device.volume.value;
        let ClaimedPath {
            exposed: device,
            thing,
            size: seen_size,
        } = self.claimed_path(vm.home(), name, claimed, Absent::Refused, place, diags)?;
        let image = &vm.pod.container.image.value;
        let stored = self.stored_image(image);
        let verdict = self.root_verdict(vm, &device, stored.digest, place, diags)?;
        let data_offset = match verdict {
            Some(RootVerdict::Keep(offset)) => offset,
            Some(RootVerdict::Fill) | None => DATA_OFFSET,
        };
        if let Some(size) = seen_size {
            check_root_device(size, data_offset, stored.size, place, diags);
        }
        let storage = self.storage_of(claimed, vm.home(), thing);
        let source = Source::PersistentRoot {
            device,
            image: image.clone(),
            digest: stored.digest,
            store_file: stored.file,
            device_size: seen_size,
            data_offset,
            recreate: vm.pod.annotations.recreate_root,
        };
        let name = PlannedDisk::ROOT.to_owned();
        Some(Piece {
            size: seen_size.map_or(Size::OnNode, |device| {
                let data = device.as_bytes().saturating_sub(data_offset);
                Size::Known(ByteSize::from_bytes(data))
            }),
            migration: claimed.migration(),
            claim: Some(claimed.names()),
            storage: Some(storage),
            boot: Some(1),
            ..Piece::new(name, Serial::root(), place.clone(), source)
        })
    }

    /// What is to be done with a device, if somebody has looked at it; nothing
    /// if it is refused.
    fn root_verdict(
        &self,
        vm: Vm<'_>,
        device: &ExposedPath,
        image: Option<Sha256>,
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<Option<RootVerdict>> {
        let HostPath::Known(path) = &device.from else {
            return Some(None);
        };
        let (Some(found), Some(image)) = (self.facts.roots.get(path), image) else {
            return Some(None);
        };
        match judge(*found, &image, vm.pod.annotations.recreate_root) {
            Ok(verdict) => Some(Some(verdict)),
            Err(refusal) => {
                diags.push(
                    Diagnostic::error(place, refusal.to_string())
                        .found(path)
                        .help(refusal.remedy()),
                );
                None
            }
        }
    }

    pub(in crate::resolve) fn stored_image(&self, image: &ImageName) -> StoredImage {
        let images = format!("{}/images", self.config.data_dir);
        let fact = match self.facts.image(image) {
            Fact::Known(fact) => Some(fact),
            Fact::Unknown => None,
        };
        let digest = image.digest().or(fact.map(|fact: ImageFact| fact.digest));
        StoredImage {
            digest,
            file: match digest {
                Some(digest) => format!("{images}/sha256/{digest}"),
                None => format!("{images}/known-after-pull"),
            },
            size: fact.map(|fact| fact.size),
        }
    }
}

/// The header must fit, and the image behind it.
fn check_root_device(
    device: ByteSize,
    data_offset: u64,
    image: Option<ByteSize>,
    place: &Place,
    diags: &mut Diagnostics,
) {
    let image = image.map_or(0, ByteSize::as_bytes);
    let needed = image.max(1).saturating_add(data_offset);
    if device.as_bytes() < needed {
        let least = ByteSize::from_bytes(needed);
        diags.push(
            Diagnostic::error(
                place,
                "the device is too small for the image and its header",
            )
            .found(device)
            .allowed(format!("at least {least}"))
            .help("use a larger volume, or a smaller image"),
        );
    }
}

/// The image's size, or the annotation's if that is larger.
fn root_size(vm: Vm<'_>, image: Option<ByteSize>, diags: &mut Diagnostics) -> Size {
    let wanted = vm.pod.annotations.root_size.as_ref();
    match (image, wanted) {
        (None, None) => Size::AfterPull,
        (None, Some(wanted)) => Size::AtLeast(wanted.value),
        (Some(image), None) => Size::Known(image),
        (Some(image), Some(wanted)) => {
            if wanted.value < image {
                diags.push(
                    Diagnostic::notice(&wanted.place, "smaller than the image, whose size is used")
                        .found(wanted.value)
                        .allowed(format!("at least {image}")),
                );
            }
            Size::Known(image.max(wanted.value))
        }
    }
}
