//! One disk of a VM object.

use std::collections::BTreeMap;

use super::Vm;
use super::master::Found;
use super::matrix::{Field, Refusal, Use, Wish, judge};
use super::target::Targets;
use crate::config::{Config, Pool};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{Bus, Cache, DeviceKind, Format, Io, Serial, Target};
use crate::manifest::{DiskSource, DiskSpec, PersistentVolume};
use crate::names::{PoolName, VolumeName};
use crate::plan::{
    Access, Copy, CopyMode, Later, Migration, PlannedDisk, Size, Source, Storage, TuningWish,
    VolumeFile,
};
use crate::resolve::Resolver;
use crate::resolve::disks::Piece;
use crate::source::Network;
use crate::units::ByteSize;

/// An overlay of ours is smaller than this.
const BEYOND: u64 = 16 << 40;
/// Guests count in sectors.
const SECTOR: u64 = 512;

impl<'r> Resolver<'r> {
    /// A disk, and the volume that it leads to.
    pub(super) fn vm_disk(
        &'r self,
        vm: Vm<'_>,
        spec: &DiskSpec,
        target: Target,
        diags: &mut Diagnostics,
    ) -> Option<(Piece, Option<&'r PersistentVolume>)> {
        let name = match &spec.name {
            Some(name) => name.value.clone(),
            None => VolumeName::parse(&target.name()).ok()?,
        };
        let found = self.master(vm, spec, &name, diags)?;
        let granted = grant(spec, &found, diags)?;
        check_bus(spec, target, granted, diags);
        check_unit(spec, &found, diags);
        let tuning = tuning(spec, &found, granted, diags);
        let (copy, pool) = self.copy(vm, spec, &name, granted.copy, diags)?;
        let pool = pool.or(found.pool.clone());
        let migration = self.migration(&found, granted.copy, pool.as_ref());
        let serial = match &spec.serial {
            Some(serial) => serial.value.clone(),
            // Nobody else's is called so, without an identity.
            None if name.as_str() == PlannedDisk::ROOT && vm.object.identity.is_none() => {
                Serial::root()
            }
            None => Serial::of_volume(name.as_str()),
        };
        let place = spec.place.clone();
        let piece = Piece {
            device: spec.device.as_ref().map_or(DeviceKind::Disk, |it| it.value),
            master_format: found.format,
            size: self.size(spec, &found, diags),
            access: granted.access,
            copy,
            pool,
            read_only: granted.read_only,
            migration,
            claim: found.claim,
            storage: found.storage,
            boot: spec.boot_order.as_ref().map(|turn| turn.value),
            tuning,
            limits: spec.limits,
            server_names: found.server_names,
            ..Piece::new(name.to_string(), serial, place, found.source)
        };
        Some((piece, found.volume))
    }

    /// The master's, or that of its overlay if it shall be larger.
    fn size(&self, spec: &DiskSpec, found: &Found<'_>, diags: &mut Diagnostics) -> Size {
        // What is no overlay was refused where it is written.
        let overlay = spec.copy.as_ref().filter(|copy| {
            matches!(
                copy.mode.value,
                CopyMode::CopyOnWrite | CopyMode::CopyOnRead
            )
        });
        let Some(wanted) = overlay.and_then(|copy| copy.size.as_ref()) else {
            return found.size;
        };
        if !matches!(found.source, Source::Image { .. }) {
            diags.push(
                Diagnostic::error(
                    &wanted.place,
                    "only the overlay of an image has a size of its own",
                )
                .help("remove size: the copy is as large as what it is of"),
            );
            return found.size;
        }
        if wanted.value.as_bytes() >= BEYOND {
            diags.push(
                Diagnostic::error(&wanted.place, "no volume can be that large")
                    .found(wanted.value)
                    .allowed("less than 16 TiB"),
            );
            return found.size;
        }
        let sectors = wanted.value.as_bytes().next_multiple_of(SECTOR);
        let wanted_size = ByteSize::from_bytes(sectors);
        match found.size.known() {
            None => Size::AtLeast(wanted_size),
            Some(image) => {
                if wanted_size < image {
                    diags.push(
                        Diagnostic::notice(
                            &wanted.place,
                            "smaller than the image, whose size is used",
                        )
                        .found(wanted.value)
                        .allowed(format!("at least {image}")),
                    );
                }
                Size::Known(image.max(wanted_size))
            }
        }
    }

    /// Where a copy goes.
    fn copy(
        &self,
        vm: Vm<'_>,
        spec: &DiskSpec,
        name: &VolumeName,
        mode: CopyMode,
        diags: &mut Diagnostics,
    ) -> Option<(Copy, Option<PoolName>)> {
        if mode == CopyMode::None {
            return Some((Copy::None, None));
        }
        let usage = spec.copy.as_ref().and_then(|copy| copy.usage.as_ref());
        let pool = match usage {
            Some(usage) => usage.value.clone(),
            None => PoolName::parse(Config::VOLUMES).ok()?,
        };
        let path = match self.config.pools.get(&pool) {
            Some(Pool { path, .. }) => Some(path.clone()),
            // Not invented: nobody takes this for a path.
            None if self.unseen.configuration => Some(format!("<directory of pool {pool}>")),
            None => None,
        };
        let Some(path) = path else {
            let known: Vec<_> = self.config.pools.keys().map(PoolName::as_str).collect();
            let place = usage.map_or(&spec.place, |usage| &usage.place);
            diags.push(
                Diagnostic::error(place, "the node has no storage of this usage type")
                    .found(pool.as_str())
                    .allowed(known.join(", "))
                    .did_you_mean(pool.as_str(), known.iter().copied()),
            );
            return None;
        };
        let volume = format!("{}-{name}", vm.uuid);
        let file = VolumeFile {
            path: format!("{path}/{volume}"),
            name: volume,
        };
        let copy = match mode {
            CopyMode::None => Copy::None,
            CopyMode::CopyOnWrite => Copy::OnWrite(file),
            CopyMode::CopyOnRead => Copy::OnRead(file),
            CopyMode::Clone => Copy::Clone(file),
        };
        Some((copy, Some(pool)))
    }

    /// A copy travels unless its pool is seen from everywhere, and with an
    /// overlay its master. A clone needs its master no more.
    fn migration(&self, found: &Found<'_>, copy: CopyMode, pool: Option<&PoolName>) -> Migration {
        let shared = |pool| self.config.pools.get(pool).is_some_and(|pool| pool.shared);
        match pool {
            Some(pool) if !shared(pool) => Migration::Copied,
            Some(_) if copy == CopyMode::Clone => Migration::Shared,
            _ => found.migration,
        }
    }

    /// The root disk of an identity comes first.
    pub(super) fn identity_disk(&self, vm: Vm<'_>, targets: &Targets) -> Option<PlannedDisk> {
        let identity = vm.object.identity.as_ref()?;
        let target = targets.root?;
        let source = Source::Later(Later::Identity {
            set: identity.set.value.clone(),
            name: identity.name.value.clone(),
        });
        let place = identity.name.place.clone();
        let name = PlannedDisk::ROOT.to_owned();
        let namespace = vm.namespace();
        let identity = &identity.name.value;
        let piece = Piece {
            migration: Migration::Unknown,
            // One disk, which has one VM at a time.
            storage: Some(Storage::Named(format!(
                "identity {identity} of namespace {namespace}"
            ))),
            ..Piece::new(name, Serial::root(), place, source)
        };
        Some(piece.at(target))
    }

    /// Without a word about it, the guest boots from its first disk.
    pub(super) fn decide_boot(
        &self,
        vm: Vm<'_>,
        disks: &mut [PlannedDisk],
        diags: &mut Diagnostics,
    ) {
        let mut seen: BTreeMap<u32, &Place> = BTreeMap::new();
        for spec in &vm.object.disks {
            let Some(turn) = &spec.boot_order else {
                continue;
            };
            if let Some(first) = seen.insert(turn.value, &turn.place) {
                diags.push(
                    Diagnostic::error(&turn.place, "two disks cannot have one turn to boot")
                        .found(turn.value)
                        .help(format!(
                            "choose another for one of the two; the first is at {first}"
                        )),
                );
            }
        }
        if seen.is_empty()
            && let Some(first) = disks.first_mut()
        {
            first.boot = Some(1);
        }
    }
}

/// What the guest gets of its master, by the matrix.
fn grant(spec: &DiskSpec, found: &Found<'_>, diags: &mut Diagnostics) -> Option<Use> {
    let wish = Wish {
        access: spec.access.as_ref().map(|access| access.value),
        copy: spec.copy.as_ref().map(|copy| copy.mode.value),
        device: spec.device.as_ref().map_or(DeviceKind::Disk, |it| it.value),
        format: found.format,
        master: found.writable,
    };
    match judge(wish) {
        Ok(granted) => Some(granted),
        Err(refusal) => {
            diags.push(
                Diagnostic::error(place_of(spec, refusal), refusal.to_string())
                    .help(refusal.remedy()),
            );
            None
        }
    }
}

fn place_of(spec: &DiskSpec, refusal: Refusal) -> &Place {
    let field = match refusal.field() {
        Field::Access => spec.access.as_ref().map(|access| &access.place),
        Field::Copy => spec.copy.as_ref().map(|copy| &copy.mode.place),
        Field::Format => spec.format.as_ref().map(|format| &format.place),
    };
    let source = spec.source.as_ref().map(|source| &source.place);
    field.or(source).unwrap_or(&spec.place)
}

/// libvirt has no read-only disks on SATA.
fn check_bus(spec: &DiskSpec, target: Target, granted: Use, diags: &mut Diagnostics) {
    let is_disk = spec
        .device
        .as_ref()
        .is_none_or(|it| it.value == DeviceKind::Disk);
    if target.bus() == Bus::Sata && granted.read_only && is_disk {
        let place = spec.bus.as_ref().map_or(&spec.place, |bus| &bus.place);
        diags.push(
            Diagnostic::error(place, "a disk on the sata bus cannot be read-only")
                .allowed("scsi, virtio")
                .help("choose another bus, or device: cdrom"),
        );
    }
}

/// Commands go through to what understands them.
fn check_unit(spec: &DiskSpec, found: &Found<'_>, diags: &mut Diagnostics) {
    let unit = spec
        .device
        .as_ref()
        .filter(|it| it.value == DeviceKind::Lun);
    let Some(device) = unit else { return };
    let understands = match &found.source {
        Source::Network { network, .. } => matches!(network, Network::Iscsi(_)),
        Source::RawDevice(_) | Source::BlockClaim(_) | Source::Later(_) => true,
        _ => false,
    };
    if !understands {
        diags.push(
            Diagnostic::error(&device.place, "not storage that understands SCSI commands")
                .found(found.source.kind())
                .allowed("iscsi, or a block device")
                .help("use device: disk"),
        );
    }
    if let Some(serial) = &spec.serial {
        diags.push(
            Diagnostic::error(&serial.place, "a unit shows a serial number of its own")
                .help("remove serial"),
        );
    }
}

/// What the user says of the host's side, as far as it can be had.
fn tuning(spec: &DiskSpec, found: &Found<'_>, granted: Use, diags: &mut Diagnostics) -> TuningWish {
    let cache = spec.cache.as_ref();
    let at_server =
        granted.copy == CopyMode::None && matches!(found.source, Source::Network { .. });
    if let Some(io) = &spec.io {
        let direct = cache.is_some_and(|cache| cache.value.is_direct());
        if at_server {
            diags.push(
                Diagnostic::error(&io.place, "has no meaning for a disk at a server")
                    .help("remove io: requests do not go through the kernel's files"),
            );
        } else if io.value == Io::Native && !direct {
            diags.push(
                Diagnostic::error(&io.place, "io: native needs the page cache passed by")
                    .help("write cache: none or cache: directsync as well"),
            );
        }
    }
    let shared = granted.access == Access::WriteShared;
    if let Some(cache) = cache
        && shared
        && !cache.value.is_direct()
    {
        diags.push(
            Diagnostic::error(
                &cache.place,
                "with this cache mode a guest would not see what others write",
            )
            .found(cache.value.name())
            .allowed("none, directsync"),
        );
    }
    let for_shared = shared.then_some(Cache::None);
    TuningWish {
        cache: cache.map(|cache| cache.value).or(for_shared),
        io: spec.io.as_ref().map(|io| io.value),
    }
}

/// Names become files and places, so each is there once.
pub(super) fn refuse_equal_names(vm: Vm<'_>, disks: &[PlannedDisk], diags: &mut Diagnostics) {
    let mut seen = BTreeMap::new();
    for disk in disks {
        let Some(first) = seen.insert(&disk.name, disk) else {
            continue;
        };
        let specs = [disk, first].map(|it| it.origin.and_then(|index| vm.object.disks.get(index)));
        let named = specs.iter().flatten().find_map(|spec| spec.name.as_ref());
        let place = named.map_or(&vm.object.meta.place, |name| &name.place);
        diags.push(
            Diagnostic::error(place, "two disks cannot have one name")
                .found(format!("disk {}", disk.name))
                .help("rename one; a disk without a name is called as its target"),
        );
    }
}

/// One claim is one disk, however it is used, and whether the manifest names it
/// or a container does.
pub(super) fn refuse_claim_twice(vm: Vm<'_>, disks: &[PlannedDisk], diags: &mut Diagnostics) {
    let mut seen = BTreeMap::new();
    for (index, spec) in vm.object.disks.iter().enumerate() {
        let source = spec.source.as_ref();
        let answered = || {
            let disk = disks.iter().find(|disk| disk.origin == Some(index))?;
            Some((&disk.claim.as_ref()?.claim, &source?.place))
        };
        let written = source.and_then(|source| match &source.value {
            DiskSource::Claim { name, .. } => Some((&name.value, &name.place)),
            _ => None,
        });
        let Some((claim, place)) = written.or_else(answered) else {
            continue;
        };
        if let Some(first) = seen.insert(claim, place) {
            diags.push(
                Diagnostic::error(place, "one claim cannot be two disks")
                    .found(format!("claim {claim}"))
                    .help(format!("remove one of the two disks, or name another claim; the first is at {first}")),
            );
        }
    }
}

/// What the master's format is, if its source leaves that to the user.
pub(super) fn written_format(spec: &DiskSpec) -> Format {
    spec.format
        .as_ref()
        .map_or(Format::Raw, |format| format.value)
}
