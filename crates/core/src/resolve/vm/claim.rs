//! Claims as disks of VM objects: who opens what.
//!
//! | PV type | driver absent | qemu | kubelet |
//! |---|---|---|---|
//! | iscsi, rbd | direct | direct | device if Block, else disk.img |
//! | glusterfs | disk.img | direct | disk.img |
//! | csi, local, hostPath | device if Block, else disk.img | refused | as absent |
//! | nfs, cephfs | disk.img | refused | disk.img |
//! | flexVolume (ours) | as its type says | – | – |

use super::Vm;
use super::disk::written_format;
use super::master::Found;
use super::matrix::Writable;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{DeviceKind, Format};
use crate::manifest::{ClaimDriver, DiskSpec, PvSource, VolumeMode};
use crate::names::{ObjectName, VolumeName};
use crate::plan::{Access, CopyMode, Size};
use crate::resolve::Resolver;
use crate::resolve::disks::claimed::Absent;
use crate::resolve::disks::volumes::ClaimedDisk;
use crate::units::ByteSize;
use crate::yaml::Spanned;

/// Who opens a claim's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opener {
    /// QEMU, over the network.
    Qemu,
    /// The kubelet, which mounts or maps it.
    Kubelet,
}

/// The table, as far as it knows an answer.
pub(crate) fn opener(source: &PvSource, driver: Option<ClaimDriver>) -> Option<Opener> {
    let reachable = matches!(
        source,
        PvSource::Iscsi(_) | PvSource::Rbd(_) | PvSource::Glusterfs(_)
    );
    match driver {
        Some(ClaimDriver::Kubelet) => Some(Opener::Kubelet),
        Some(ClaimDriver::Qemu) => reachable.then_some(Opener::Qemu),
        None => Some(match source {
            PvSource::Iscsi(_) | PvSource::Rbd(_) => Opener::Qemu,
            _ => Opener::Kubelet,
        }),
    }
}

/// A claim that a disk names.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'w> {
    pub(super) vm: Vm<'w>,
    pub(super) spec: &'w DiskSpec,
    pub(super) name: &'w VolumeName,
    pub(super) place: &'w Place,
    pub(super) create: bool,
}

impl<'r> Resolver<'r> {
    pub(super) fn claim_master(
        &'r self,
        vm: Vm<'_>,
        spec: &DiskSpec,
        name: &VolumeName,
        claim: &Spanned<ObjectName>,
        create: bool,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let place = &claim.place;
        if let Some(hidden) = self.hidden_claim(vm.namespace(), &claim.value) {
            return Some(Found::at_launch(hidden));
        }
        let (claim, volume) = self.bound(vm.namespace(), &claim.value, place, diags)?;
        let wanted = Wanted {
            vm,
            spec,
            name,
            place,
            create,
        };
        let claimed = ClaimedDisk {
            claim,
            volume,
            read_only: claim.read_only || volume.read_only,
        };
        let found = self.volume_master(wanted, &claimed, diags)?;
        Some(Found {
            claim: Some(claimed.names()),
            volume: Some(volume),
            writable: match claimed.read_only {
                true => Writable::ClaimSaysNo,
                false => found.writable,
            },
            ..found
        })
    }

    fn volume_master(
        &'r self,
        wanted: Wanted<'_>,
        claimed: &ClaimedDisk<'r>,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let source = &claimed.volume.source.value;
        let driver = wanted.spec.driver.as_ref();
        match source {
            PvSource::Flex(flex) => {
                return self.flex_master(wanted, flex, claimed.volume, diags);
            }
            PvSource::ForeignFlex(driver) => {
                diags.push(
                    Diagnostic::error(
                        wanted.place,
                        "another FlexVolume driver's volume cannot be a disk of a VM",
                    )
                    .found(format!(
                        "volume {} of driver {driver:?}",
                        claimed.volume.name
                    ))
                    .allowed(disklet_flexvolume::DRIVERS.join(", ")),
                );
                return None;
            }
            _ => {}
        }
        match opener(source, driver.map(|driver| driver.value)) {
            Some(Opener::Qemu) => {
                if wanted.create {
                    diags.push(idle_create(wanted.place));
                }
                self.direct_volume(wanted, claimed.volume, diags)
            }
            Some(Opener::Kubelet) => self.kubelet_volume(wanted, claimed, diags),
            None => {
                let place = driver.map_or(wanted.place, |driver| &driver.place);
                diags.push(
                    Diagnostic::error(
                        place,
                        format!("QEMU has no driver for a volume of type {}", source.kind()),
                    )
                    .found(format!("volume {}", claimed.volume.name))
                    .allowed("iscsi, rbd, glusterfs")
                    .help("remove driver, or write kubelet"),
                );
                None
            }
        }
    }

    /// A device, or the one file of a filesystem.
    fn kubelet_volume(
        &self,
        wanted: Wanted<'_>,
        claimed: &ClaimedDisk<'_>,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let Wanted {
            vm,
            spec,
            name,
            place,
            create,
        } = wanted;
        let is_file = claimed.volume.mode == VolumeMode::Filesystem;
        if create && !is_file {
            diags.push(idle_create(place));
        }
        if let (
            true,
            Some(Spanned {
                value: Format::Qcow2,
                place,
            }),
        ) = (is_file, &spec.format)
        {
            diags.push(
                Diagnostic::error(place, "the disk.img of a volume is raw")
                    .found("qcow2")
                    .help("remove format, and convert the file with disklet image convert"),
            );
        }
        let copied = spec
            .copy
            .as_ref()
            .is_some_and(|it| it.mode.value != CopyMode::None);
        let reads = spec
            .access
            .as_ref()
            .is_some_and(|it| it.value == Access::ReadShared);
        let inserted = spec
            .device
            .as_ref()
            .is_some_and(|it| it.value == DeviceKind::Cdrom);
        if create && (claimed.read_only || copied || reads || inserted) {
            diags.push(
                Diagnostic::error(place, "an empty disk is made to be written")
                    .help("remove create: the disk is only read, or copied"),
            );
        }
        let size = (create && is_file).then_some(claimed.claim.request);
        if let Some(size) = size {
            demand_makeable(size, place, diags)?;
        }
        let home = vm.home();
        let is_cloned = spec
            .copy
            .as_ref()
            .is_some_and(|it| it.mode.value == CopyMode::Clone);
        let absent = match size {
            Some(size) => Absent::Made(size),
            None if is_cloned => Absent::PerhapsCloned,
            None => Absent::Refused,
        };
        let seen = self.claimed_path(home, name, claimed, absent, place, diags)?;
        let storage = self.storage_of(claimed, home, seen.thing);
        Some(Found {
            source: claimed.source(seen.exposed, size),
            format: match is_file {
                true => Format::Raw,
                false => written_format(spec),
            },
            size: seen.size.map_or(Size::OnNode, Size::Known),
            writable: match claimed.is_mounted_by_one_node() {
                true => Writable::Mounted,
                false => Writable::Yes,
            },
            migration: claimed.migration(),
            storage: Some(storage),
            claim: None,
            volume: None,
            pool: None,
            server_names: Vec::new(),
        })
    }
}

/// A file has no larger offsets, and a disk no smaller sectors.
fn demand_makeable(size: ByteSize, place: &Place, diags: &mut Diagnostics) -> Option<()> {
    const SECTOR: u64 = 512;
    if (SECTOR..=i64::MAX.unsigned_abs()).contains(&size.as_bytes()) {
        return Some(());
    }
    diags.push(
        Diagnostic::error(place, "a disk.img of this size cannot be made")
            .found(size)
            .allowed("from 512 B up to less than 8 EiB")
            .help("ask for another size in the claim"),
    );
    None
}

pub(super) fn idle_create(place: &Place) -> Diagnostic {
    Diagnostic::error(
        place,
        "create makes the disk.img of a filesystem volume, and there is none",
    )
    .help("remove create")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{GlusterfsVolume, IscsiVolume, RbdVolume};

    #[test]
    fn the_table_is_the_designs() {
        let kubelet = |kind: &str| PvSource::Kubelet(kind.to_owned());
        let path = || "/x".to_owned();
        let none = || IscsiVolume {
            portal: None,
            other_portals: 0,
            target: None,
            lun: None,
            initiator: None,
            discovery_chap: None,
            session_chap: false,
            secret: None,
            read_only: false,
        };
        let rbd = RbdVolume {
            monitors: Vec::new(),
            pool: None,
            image: None,
            user: None,
            secret: None,
            read_only: false,
        };
        let gluster = GlusterfsVolume {
            endpoints: None,
            namespace: None,
            path: None,
            read_only: false,
        };
        let (qemu, by_kubelet) = (Some(Opener::Qemu), Some(Opener::Kubelet));
        for (source, absent, direct) in [
            (PvSource::Iscsi(Box::new(none())), qemu, qemu),
            (PvSource::Rbd(Box::new(rbd)), qemu, qemu),
            (PvSource::Glusterfs(Box::new(gluster)), by_kubelet, qemu),
            (kubelet("csi"), by_kubelet, None),
            (PvSource::Local(path()), by_kubelet, None),
            (kubelet("nfs"), by_kubelet, None),
            (PvSource::HostPath(path()), by_kubelet, None),
            (kubelet("cephfs"), by_kubelet, None),
        ] {
            let kind = source.kind().to_owned();
            assert_eq!(opener(&source, None), absent, "{kind}");
            assert_eq!(opener(&source, Some(ClaimDriver::Qemu)), direct, "{kind}");
            let chosen = opener(&source, Some(ClaimDriver::Kubelet));
            assert_eq!(chosen, by_kubelet, "{kind}");
        }
    }
}
