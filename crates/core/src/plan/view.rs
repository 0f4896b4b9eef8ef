//! A plan as programs read it.

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use super::{Claimed, Later, NetworkKey, Plan, PlannedDisk, Size, Source};
use crate::domain::{Bus, Cache, DeviceKind, Format, Io, IoLimits};
use crate::source::{Iqn, NbdServer, Network};
use crate::text::Reveal;
use crate::units::ByteSize;

/// The fields of a plan in JSON and YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanView<'p> {
    name: &'p str,
    namespace: &'p str,
    uuid: String,
    domain: &'p str,
    disks: Vec<DiskView<'p>>,
    pools: &'p [super::PoolShare],
    steps: &'p [super::Step],
    domain_xml: String,
    cloud_init: Option<CloudInitView>,
    known_later: &'p [String],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CloudInitView {
    label: &'static str,
    meta_data: String,
    user_data: String,
    network_config: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DiskView<'p> {
    name: &'p str,
    target: String,
    bus: Bus,
    device: DeviceKind,
    serial: &'p str,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_order: Option<u32>,
    source: SourceView<'p>,
    format: Format,
    size: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<ByteSize>,
    access: super::Access,
    lease: Option<String>,
    copy: super::CopyMode,
    copied_to: Option<CopyView<'p>>,
    pool: Option<&'p str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache: Option<Cache>,
    #[serde(skip_serializing_if = "Option::is_none")]
    io: Option<Io>,
    #[serde(skip_serializing_if = "is_unlimited")]
    iotune: IoLimits,
    mount: Mounts<'p>,
    link: Option<&'p str>,
    migration: super::Migration,
    read_only: bool,
}

/// A file of ours, and what it is laid over or copied from.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CopyView<'p> {
    file: &'p str,
    volume: &'p str,
    master_format: Format,
}

fn is_unlimited(limits: &IoLimits) -> bool {
    *limits == IoLimits::default()
}

impl Plan {
    /// For serializers; secrets show only under [`Reveal::Show`].
    #[must_use]
    pub fn view(&self, reveal: Reveal) -> PlanView<'_> {
        PlanView {
            name: self.name.as_str(),
            namespace: self.namespace.as_str(),
            uuid: self.uuid.to_string(),
            domain: &self.domain.name,
            disks: self
                .disks
                .iter()
                .map(|disk| DiskView::of(disk, reveal))
                .collect(),
            pools: &self.pools,
            steps: &self.steps,
            domain_xml: self.domain.to_xml(),
            cloud_init: self.cloud_init.as_ref().map(|image| CloudInitView {
                label: image.label(),
                meta_data: image.meta_data_text(reveal),
                user_data: image.user_data_text(reveal),
                network_config: image.network_config_text(reveal),
            }),
            known_later: &self.known_later,
        }
    }
}

impl<'p> DiskView<'p> {
    fn of(disk: &'p PlannedDisk, reveal: Reveal) -> Self {
        Self {
            name: &disk.name,
            target: disk.target.name(),
            bus: disk.target.bus(),
            device: disk.device,
            serial: disk.serial.as_str(),
            boot_order: disk.boot,
            source: SourceView {
                source: &disk.source,
                claim: disk.claim.as_ref(),
                reveal,
            },
            format: disk.format(),
            size: disk.size.known(),
            at_least: match disk.size {
                Size::AtLeast(size) => Some(size),
                Size::Known(_) | Size::AfterPull | Size::OnNode => None,
            },
            access: disk.access,
            lease: disk.storage.as_ref().map(ToString::to_string),
            copy: disk.copy.mode(),
            copied_to: disk.copy.file().map(|file| CopyView {
                file: &file.path,
                volume: &file.name,
                master_format: disk.master_format,
            }),
            pool: disk.pool.as_ref().map(crate::names::PoolName::as_str),
            cache: disk.tuning.cache,
            io: disk.tuning.io,
            iotune: disk.limits,
            mount: Mounts(disk),
            link: disk.link.as_ref().map(crate::guest::GuestPath::as_str),
            migration: disk.migration,
            read_only: disk.read_only,
        }
    }
}

#[derive(Debug)]
struct Mounts<'p>(&'p PlannedDisk);

impl Serialize for Mounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct MountView<'m> {
            path: &'m str,
            part: u32,
            read_only: bool,
        }
        let mut list = serializer.serialize_seq(Some(self.0.mounts.len()))?;
        for mount in &self.0.mounts {
            list.serialize_element(&MountView {
                path: mount.path.as_str(),
                part: mount.part,
                read_only: mount.read_only,
            })?;
        }
        list.end()
    }
}

#[derive(Debug)]
struct SourceView<'p> {
    source: &'p Source,
    claim: Option<&'p Claimed>,
    reveal: Reveal,
}

/// A mapping in the order of the variables: later ones may name earlier ones.
#[derive(Debug)]
struct Variables<'p>(Vec<(&'p String, String)>);

impl Serialize for Variables<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Serialize for SourceView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", self.source.kind())?;
        if let Some(claim) = self.claim {
            map.serialize_entry("claim", claim)?;
        }
        match self.source {
            Source::Image {
                image,
                digest,
                store_file,
            } => {
                map.serialize_entry("image", image.as_written())?;
                map.serialize_entry("digest", &digest.map(|digest| digest.to_string()))?;
                map.serialize_entry("file", store_file)?;
            }
            Source::NewVolume(volume) => {
                map.serialize_entry("file", &volume.path)?;
                map.serialize_entry("volume", &volume.name)?;
                map.serialize_entry("filesystem", "ext4")?;
            }
            Source::RawDevice(path) | Source::BlockClaim(path) => exposed(&mut map, path)?,
            Source::DiskImage { file, create } => {
                exposed(&mut map, file)?;
                if let Some(size) = create {
                    map.serialize_entry("create", size)?;
                }
            }
            Source::PersistentRoot {
                device,
                image,
                digest,
                store_file,
                recreate,
                ..
            } => {
                exposed(&mut map, device)?;
                map.serialize_entry("image", image.as_written())?;
                map.serialize_entry("digest", &digest.map(|digest| digest.to_string()))?;
                map.serialize_entry("filledFrom", store_file)?;
                map.serialize_entry("recreate", recreate)?;
            }
            Source::Network { network, key } => network_fields(&mut map, network, key.as_ref())?,
            Source::CloudInit { path } => map.serialize_entry("file", path)?,
            Source::Later(Later::Container { container, id }) => {
                map.serialize_entry("image", &container.image)?;
                map.serialize_entry("id", &id.to_string())?;
                map.serialize_entry("container", &container.fields.under(self.reveal))?;
                let variables = container.environment.iter();
                let variables = variables.map(|(name, value)| (name, value.render(self.reveal)));
                map.serialize_entry("environment", &Variables(variables.collect()))?;
            }
            Source::Later(Later::Identity { set, name }) => {
                map.serialize_entry("set", set.as_str())?;
                map.serialize_entry("name", name.as_str())?;
            }
            Source::Later(Later::AtLaunch { storage, needs }) => {
                map.serialize_entry("storage", storage)?;
                map.serialize_entry("needs", &needs.to_string())?;
            }
        }
        map.end()
    }
}

fn exposed<M: SerializeMap>(map: &mut M, path: &super::ExposedPath) -> Result<(), M::Error> {
    map.serialize_entry("path", &path.from.to_string())?;
    map.serialize_entry("exposedAt", &path.exposed)?;
    if let Some(number) = path.number {
        map.serialize_entry("device", &number)?;
    }
    Ok(())
}

fn network_fields<M: SerializeMap>(
    map: &mut M,
    network: &Network,
    key: Option<&NetworkKey>,
) -> Result<(), M::Error> {
    let hosts: Vec<_> = network
        .endpoints()
        .iter()
        .map(ToString::to_string)
        .collect();
    match network {
        Network::Iscsi(unit) => {
            map.serialize_entry("portal", &unit.portal.to_string())?;
            map.serialize_entry("target", unit.target.as_str())?;
            map.serialize_entry("lun", &unit.lun)?;
            map.serialize_entry("initiator", &unit.initiator.as_ref().map(Iqn::as_str))?;
        }
        Network::Rbd(rbd) => {
            map.serialize_entry("monitors", &hosts)?;
            map.serialize_entry("pool", rbd.pool.as_str())?;
            map.serialize_entry("image", rbd.image.as_str())?;
        }
        Network::Nbd(nbd) => {
            match &nbd.server {
                NbdServer::Tcp(endpoint) => {
                    map.serialize_entry("server", &endpoint.to_string())?;
                }
                NbdServer::Unix(path) => map.serialize_entry("socket", path.as_str())?,
            }
            map.serialize_entry("export", nbd.export.as_str())?;
            map.serialize_entry("tls", &nbd.tls)?;
        }
        Network::Gluster(file) => {
            map.serialize_entry("hosts", &hosts)?;
            map.serialize_entry("volume", file.volume.as_str())?;
            map.serialize_entry("path", file.path.as_str())?;
        }
        Network::Http(_) => map.serialize_entry("url", &network.to_string())?,
    }
    map.serialize_entry("user", &key.map(|key| &key.user))?;
    map.serialize_entry("secret", &key.map(|key| key.uuid.to_string()))
}

impl Source {
    /// What kind of source it is, in one word.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Image { .. } => "image",
            Self::NewVolume(_) => "newVolume",
            Self::RawDevice(_) => "rawDevice",
            Self::BlockClaim(_) => "blockClaim",
            Self::PersistentRoot { .. } => "persistentRoot",
            Self::DiskImage { .. } => "diskImage",
            Self::Network { network, .. } => network.protocol(),
            Self::CloudInit { .. } => "cloudInit",
            Self::Later(Later::Container { .. }) => "container",
            Self::Later(Later::Identity { .. }) => "identity",
            Self::Later(Later::AtLaunch { .. }) => "knownAtLaunch",
        }
    }
}
