//! Claims as disks of VM objects: who opens what.
//!
//! | PV type | driver absent | qemu | kubelet |
//! |---|---|---|---|
//! | iscsi, rbd | direct | direct | device if Block, else disk.img |
//! | glusterfs | disk.img | direct | disk.img |
//! | csi, local | device if Block, else disk.img | refused | as absent |
//! | nfs, hostPath, cephfs | disk.img | refused | disk.img |
//! | flexVolume (ours) | as its type says | – | – |

use disklet_flexvolume::{CephUser, Monitor, Options};

use super::Vm;
use super::disk::written_format;
use super::master::{Found, check_family, iscsi_key};
use super::matrix::Writable;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{Format, KeyKind};
use crate::facts::DISK_IMAGE;
use crate::manifest::address::{ceph_user, endpoint, iqn, lun, rbd_name, refuse};
use crate::manifest::{
    ClaimDriver, DiskSpec, FlexVolume, GlusterfsVolume, IscsiVolume, PersistentVolume, PvSource,
    RbdVolume, VolumeMode,
};
use crate::names::{ObjectName, VolumeName};
use crate::plan::{NetworkKey, Size};
use crate::resolve::Resolver;
use crate::resolve::disks::volumes::ClaimedDisk;
use crate::source::{Endpoint, Gluster, GlusterPath, GlusterVolume, Iscsi, Network, Rbd};
use crate::text::Secret;
use crate::yaml::Spanned;

/// Who opens a claim's volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opener {
    /// QEMU, over the network.
    Qemu,
    /// The kubelet, which mounts or maps it.
    Kubelet,
}

/// The table, as far as it knows an answer.
fn opener(source: &PvSource, driver: Option<ClaimDriver>) -> Option<Opener> {
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
struct Wanted<'w> {
    vm: Vm<'w>,
    spec: &'w DiskSpec,
    name: &'w VolumeName,
    place: &'w Place,
    create: bool,
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
            PvSource::Flex(flex) => return self.flex_master(wanted, flex, diags),
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
        let size = (create && is_file).then_some(claimed.claim.request);
        let home = vm.home();
        let (exposed, seen) = self.claimed_path(home, name, claimed, size, place, diags)?;
        let storage = self.storage_of(claimed, home, exposed.number);
        Some(Found {
            source: claimed.source(exposed, size),
            format: match is_file {
                true => Format::Raw,
                false => written_format(spec),
            },
            size: seen.map_or(Size::OnNode, Size::Known),
            writable: Writable::Yes,
            migration: claimed.migration(),
            storage: Some(storage),
            claim: None,
            volume: None,
        })
    }

    /// Storage that QEMU opens itself.
    fn direct_volume(
        &self,
        wanted: Wanted<'_>,
        volume: &PersistentVolume,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let at = &volume.source.place;
        let (network, key) = match &volume.source.value {
            PvSource::Iscsi(iscsi) => self.iscsi_volume(wanted, iscsi, at, diags)?,
            PvSource::Rbd(rbd) => self.rbd_volume(wanted, rbd, at, diags)?,
            PvSource::Glusterfs(gluster) => {
                (self.gluster_volume(wanted, gluster, at, diags)?, None)
            }
            _ => return None,
        };
        check_family(&network, at, diags)?;
        Some(Found::at_server(network, key, written_format(wanted.spec)))
    }

    fn iscsi_volume(
        &self,
        wanted: Wanted<'_>,
        volume: &IscsiVolume,
        at: &Place,
        diags: &mut Diagnostics,
    ) -> Option<(Network, Option<NetworkKey>)> {
        let chap = volume.discovery_chap.as_ref().filter(|chap| chap.value);
        if let Some(chap) = chap {
            diags.push(
                Diagnostic::error(&chap.place, "CHAP for discovery cannot be had with QEMU's own driver")
                    .help("remove chapAuthDiscovery: QEMU does not discover targets; or use driver: {name: kubelet}"),
            );
        }
        if volume.other_portals > 0 {
            diags.push(
                Diagnostic::notice(at, "QEMU uses the first portal only")
                    .found(format!("targetPortal and {} more", volume.other_portals)),
            );
        }
        let portal = part(volume.portal.as_ref(), at, "targetPortal", diags)
            .and_then(|text| endpoint(text, Iscsi::PORT, diags));
        let target =
            part(volume.target.as_ref(), at, "iqn", diags).and_then(|text| iqn(text, diags));
        let unit = part(volume.lun.as_ref(), at, "lun", diags).and_then(|unit| lun(unit, diags));
        let initiator = match &volume.initiator {
            Some(text) => Some(iqn(text, diags)?),
            None => None,
        };
        let key = match (&volume.secret, volume.session_chap) {
            (Some(secret), true) => {
                let own = wanted.vm.namespace();
                let namespace = secret.namespace.as_ref().unwrap_or(own);
                let login = self.chap(namespace, &secret.name, diags)?;
                Some(iscsi_key(wanted.vm, wanted.name, login))
            }
            (None, true) => {
                diags.push(
                    Diagnostic::error(at, "chapAuthSession without a Secret")
                        .help("name the Secret with secretRef"),
                );
                None
            }
            (_, false) => None,
        };
        let network = Network::Iscsi(Iscsi {
            portal: portal?,
            target: target?,
            lun: unit?,
            initiator,
        });
        chap.is_none().then_some((network, key))
    }

    fn rbd_volume(
        &self,
        wanted: Wanted<'_>,
        volume: &RbdVolume,
        at: &Place,
        diags: &mut Diagnostics,
    ) -> Option<(Network, Option<NetworkKey>)> {
        let monitors: Option<Vec<_>> = volume
            .monitors
            .iter()
            .map(|text| endpoint(text, Monitor::DEFAULT_PORT, diags))
            .collect();
        if volume.monitors.is_empty() {
            diags.push(missing(at, "monitors"));
        }
        let default_pool = Spanned {
            value: RbdVolume::POOL.to_owned(),
            place: at.clone(),
        };
        let pool = rbd_name(
            volume.pool.as_ref().unwrap_or(&default_pool),
            "a pool",
            diags,
        );
        let image = part(volume.image.as_ref(), at, "image", diags)
            .and_then(|text| rbd_name(text, "an rbd image", diags));
        let user = match &volume.user {
            Some(text) => ceph_user(text, diags)?,
            None => CephUser::default(),
        };
        let key = match &volume.secret {
            None => None,
            Some(secret) => {
                let own = wanted.vm.namespace();
                let namespace = secret.namespace.as_ref().unwrap_or(own);
                let key = self.ceph_key(namespace, &secret.name, diags)?;
                Some(ceph_network_key(wanted, &user, key))
            }
        };
        let network = Network::Rbd(Rbd {
            monitors: monitors.filter(|all| !all.is_empty())?,
            pool: pool?,
            image: image?,
            user,
        });
        Some((network, key))
    }

    /// The servers are those of the Endpoints that the volume names.
    fn gluster_volume(
        &self,
        wanted: Wanted<'_>,
        volume: &GlusterfsVolume,
        at: &Place,
        diags: &mut Diagnostics,
    ) -> Option<Network> {
        let name = part(volume.endpoints.as_ref(), at, "endpoints", diags)?;
        let own = wanted.vm.namespace();
        let Some(hosts) = self.gluster_hosts(own, volume) else {
            let namespace = volume.namespace.as_deref().unwrap_or(own.as_str());
            diags.push(
                Diagnostic::error(
                    &name.place,
                    "the servers of the Gluster volume are not known",
                )
                .found(format!("Endpoints {} of namespace {namespace}", name.value))
                .help("give the Endpoints with -f as well, with an address"),
            );
            return None;
        };
        let path = part(volume.path.as_ref(), at, "path", diags)?;
        let Some(gluster) = GlusterVolume::parse(&path.value) else {
            refuse(
                &path.place,
                GlusterVolume::WHAT,
                &path.value,
                GlusterVolume::ALLOWED,
                diags,
            );
            return None;
        };
        Some(Network::Gluster(Gluster {
            hosts,
            volume: gluster,
            path: GlusterPath::parse(DISK_IMAGE)?,
        }))
    }

    /// A flexvolume of ours that a PersistentVolume has. What it makes anew
    /// belongs to pods.
    fn flex_master(
        &self,
        wanted: Wanted<'_>,
        flex: &FlexVolume,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        if let Some(driver) = &wanted.spec.driver {
            diags.push(
                Diagnostic::error(&driver.place, "a flexvolume's type says how it is opened")
                    .help("remove driver"),
            );
        }
        if wanted.create {
            diags.push(idle_create(wanted.place));
        }
        let Options::Ceph(ceph) = &flex.options else {
            diags.push(
                Diagnostic::error(wanted.place, "only a ceph flexvolume can be a VM's claim")
                    .help("use a volume of type local, or an image source with a copy"),
            );
            return None;
        };
        let network = Network::Rbd(Rbd {
            monitors: ceph.monitors.iter().map(Endpoint::from).collect(),
            pool: ceph.pool.clone(),
            image: ceph.volume.clone(),
            user: ceph.user.clone(),
        });
        let key = match (&flex.secret, &ceph.secret) {
            (Some(secret), _) => {
                let own = wanted.vm.namespace();
                let namespace = secret.namespace.as_ref().unwrap_or(own);
                Some(self.ceph_key(namespace, &secret.name, diags)?)
            }
            (None, Some(key)) => Some(Secret::new(key.expose())),
            (None, None) => None,
        };
        let key = key.map(|key| ceph_network_key(wanted, &ceph.user, key));
        Some(Found::at_server(network, key, written_format(wanted.spec)))
    }
}

fn ceph_network_key(wanted: Wanted<'_>, user: &CephUser, key: Secret) -> NetworkKey {
    NetworkKey {
        uuid: wanted.vm.derived("ceph", wanted.name),
        user: user.as_str().to_owned(),
        kind: KeyKind::Ceph,
        key,
    }
}

/// A field without which a volume cannot be found.
fn part<'p, T>(
    value: Option<&'p T>,
    at: &Place,
    field: &str,
    diags: &mut Diagnostics,
) -> Option<&'p T> {
    if value.is_none() {
        diags.push(missing(at, field));
    }
    value
}

fn missing(at: &Place, field: &str) -> Diagnostic {
    let mut place = at.clone();
    place.path = place.path.key(field);
    Diagnostic::error(&place, "is required but missing")
}

fn idle_create(place: &Place) -> Diagnostic {
    Diagnostic::error(
        place,
        "create makes the disk.img of a filesystem volume, and there is none",
    )
    .help("remove create")
}

#[cfg(test)]
mod tests {
    use super::*;

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
