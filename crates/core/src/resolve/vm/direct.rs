//! Volumes of claims that QEMU opens itself.

use disklet_flexvolume::{CephUser, Monitor};

use super::claim::Wanted;
use super::disk::written_format;
use super::master::{Found, ServerLogin, check_family, iscsi_key, tell_no_key};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::KeyKind;
use crate::facts::DISK_IMAGE;
use crate::manifest::address::{ceph_user, endpoint, iqn, lun, rbd_name, refuse};
use crate::manifest::{GlusterfsVolume, IscsiVolume, PersistentVolume, PvSource, RbdVolume};
use crate::plan::NetworkKey;
use crate::resolve::{Reference, Resolver};
use crate::source::{Gluster, GlusterPath, GlusterVolume, Iscsi, Network, Rbd};
use crate::text::Secret;
use crate::yaml::Spanned;

impl<'r> Resolver<'r> {
    /// Storage that QEMU opens itself.
    pub(super) fn direct_volume(
        &self,
        wanted: Wanted<'_>,
        volume: &PersistentVolume,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        let at = &volume.source.place;
        let (network, login) = match &volume.source.value {
            PvSource::Iscsi(iscsi) => self.iscsi_volume(wanted, iscsi, at, diags)?,
            PvSource::Rbd(rbd) => self.rbd_volume(wanted, rbd, at, diags)?,
            PvSource::Glusterfs(gluster) => {
                if let Some(hidden) = self.hidden_servers(wanted, gluster) {
                    let namespace = wanted.vm.namespace();
                    return Some(Found {
                        storage: self.gluster_storage(namespace, gluster),
                        ..Found::at_launch(hidden)
                    });
                }
                let network = self.gluster_volume(wanted, gluster, at, diags)?;
                (network, ServerLogin::None)
            }
            _ => return None,
        };
        check_family(&network, at, diags)?;
        if matches!(login, ServerLogin::None) {
            tell_no_key(&network, at, diags);
        }
        Some(Found::at_server(
            network,
            login,
            written_format(wanted.spec),
        ))
    }

    fn iscsi_volume(
        &self,
        wanted: Wanted<'_>,
        volume: &IscsiVolume,
        at: &Place,
        diags: &mut Diagnostics,
    ) -> Option<(Network, ServerLogin)> {
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
        let login = match (&volume.secret, volume.session_chap) {
            (Some(secret), true) => {
                let own = wanted.vm.namespace();
                let namespace = secret.namespace.as_ref().unwrap_or(own);
                match self.hidden_secret(namespace, &secret.name.value) {
                    Some(hidden) => ServerLogin::Hidden(hidden),
                    None => {
                        let login = self.chap(namespace, &secret.name, diags)?;
                        ServerLogin::Key(iscsi_key(wanted.vm, wanted.name, login))
                    }
                }
            }
            (None, true) => {
                diags.push(
                    Diagnostic::error(at, "chapAuthSession without a Secret")
                        .help("name the Secret with secretRef"),
                );
                ServerLogin::None
            }
            (_, false) => ServerLogin::None,
        };
        let network = Network::Iscsi(Iscsi {
            portal: portal?,
            target: target?,
            lun: unit?,
            initiator,
        });
        chap.is_none().then_some((network, login))
    }

    fn rbd_volume(
        &self,
        wanted: Wanted<'_>,
        volume: &RbdVolume,
        at: &Place,
        diags: &mut Diagnostics,
    ) -> Option<(Network, ServerLogin)> {
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
        let login = match &volume.secret {
            None => ServerLogin::None,
            Some(secret) => {
                let own = wanted.vm.namespace();
                let namespace = secret.namespace.as_ref().unwrap_or(own);
                match self.hidden_secret(namespace, &secret.name.value) {
                    Some(hidden) => ServerLogin::Hidden(hidden),
                    None => {
                        let key = self.ceph_key(namespace, &secret.name, diags)?;
                        ServerLogin::Key(ceph_network_key(wanted, &user, key))
                    }
                }
            }
        };
        let network = Network::Rbd(Rbd {
            monitors: monitors.filter(|all| !all.is_empty())?,
            pool: pool?,
            image: image?,
            user,
        });
        Some((network, login))
    }

    /// The Endpoints that the volume names, if they cannot be seen.
    fn hidden_servers(&self, wanted: Wanted<'_>, volume: &GlusterfsVolume) -> Option<Reference> {
        let own = wanted.vm.namespace();
        let namespace = volume.namespace.as_ref().unwrap_or(own);
        let name = &volume.endpoints.as_ref()?.value;
        self.hidden_endpoints((namespace.clone(), name.clone()))
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
            let namespace = volume.namespace.as_ref().unwrap_or(own);
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
        // Endpoints are a tenant's to write.
        self.names_to_check(&hosts, &name.place, diags)?;
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
