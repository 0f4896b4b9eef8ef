//! The root disk: an overlay over the image, or a claim filled from it.

use super::volumes::{DiskVolume, DiskVolumes};
use super::{Piece, Vm};
use crate::diag::{Diagnostic, Diagnostics};
use crate::domain::{DeviceKind, Format, Serial};
use crate::facts::{Fact, ImageFact};
use crate::manifest::VolumeDevice;
use crate::names::{ImageName, Sha256};
use crate::plan::{PlannedDisk, Size, Source};
use crate::resolve::Resolver;
use crate::units::ByteSize;

/// An image's file in the store.
struct StoredImage {
    digest: Option<Sha256>,
    file: String,
    size: Option<ByteSize>,
}

impl Resolver<'_> {
    /// An overlay over the image. It goes with the VM.
    pub(super) fn image_root(&self, vm: Vm<'_>, diags: &mut Diagnostics) -> Piece {
        let image = &vm.pod.container.image;
        let stored = self.stored_image(&image.value);
        Piece {
            name: PlannedDisk::ROOT.to_owned(),
            serial: Serial::root(),
            place: image.place.clone(),
            device: DeviceKind::Disk,
            size: root_size(vm, stored.size, diags),
            source: Source::Image {
                image: image.value.clone(),
                digest: stored.digest,
                store_file: stored.file,
                overlay: self.volume_file(format!("virtlet_root_{}", vm.uuid)),
            },
            format: Format::Qcow2,
            read_only: false,
            migration: self.volumes_migration(),
            mounts: Vec::new(),
            link: None,
            claim: None,
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
            diags.push(
                Diagnostic::error(place, "the root disk cannot be read-only")
                    .help("remove readOnly from the volume's persistentVolumeClaim"),
            );
            return None;
        }
        if let Some(size) = &vm.pod.annotations.root_size {
            diags.push(
                Diagnostic::notice(&size.place, "has no effect on a persistent root")
                    .help("its size is that of the claim's device"),
            );
        }
        let (device, seen_size) =
            self.claimed_device(vm, &device.volume.value, claimed, place, diags)?;
        let image = &vm.pod.container.image.value;
        let stored = self.stored_image(image);
        let overhead = PlannedDisk::root_overhead().as_bytes();
        if let (Some(image_size), Some(seen)) = (stored.size, seen_size) {
            let needed = image_size.as_bytes().saturating_add(overhead);
            if seen.as_bytes() < needed {
                diags.push(
                    Diagnostic::error(place, "the device is too small for the image")
                        .found(seen)
                        .allowed(format!("at least {}", ByteSize::from_bytes(needed)))
                        .help("use a larger volume, or a smaller image"),
                );
            }
        }
        let device_size = seen_size.unwrap_or(claimed.volume.capacity);
        if device_size.as_bytes() <= overhead {
            diags.push(
                Diagnostic::error(place, "the volume is too small for a root disk")
                    .found(device_size)
                    .allowed(format!("more than {}", PlannedDisk::root_overhead())),
            );
        }
        let size = seen_size.map_or(Size::OnNode, |seen| {
            Size::Known(ByteSize::from_bytes(
                seen.as_bytes().saturating_sub(overhead),
            ))
        });
        Some(Piece {
            name: PlannedDisk::ROOT.to_owned(),
            serial: Serial::root(),
            place: place.clone(),
            device: DeviceKind::Disk,
            source: Source::PersistentRoot {
                device,
                image: image.clone(),
                digest: stored.digest,
                store_file: stored.file,
                device_size,
                recreate: vm.pod.annotations.recreate_root,
            },
            format: Format::Raw,
            size,
            read_only: false,
            migration: claimed.migration(),
            mounts: Vec::new(),
            link: None,
            claim: Some(claimed.names()),
        })
    }

    fn stored_image(&self, image: &ImageName) -> StoredImage {
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
