//! A plan as programs read it.

use serde::Serialize;
use serde::ser::{SerializeMap, SerializeSeq, Serializer};

use super::{Claimed, Plan, PlannedDisk, Size, Source};
use crate::domain::{Bus, Format};
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
    steps: &'p [super::Step],
    domain_xml: String,
    cloud_init: CloudInitView,
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
    serial: &'p str,
    source: SourceView<'p>,
    format: Format,
    size: Option<ByteSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<ByteSize>,
    access: super::Access,
    copy: super::CopyMode,
    pool: Option<&'p str>,
    mount: Mounts<'p>,
    link: Option<&'p str>,
    migration: super::Migration,
    read_only: bool,
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
            disks: self.disks.iter().map(DiskView::of).collect(),
            steps: &self.steps,
            domain_xml: self.domain.to_xml(),
            cloud_init: CloudInitView {
                label: self.cloud_init.label(),
                meta_data: self.cloud_init.meta_data_text(reveal),
                user_data: self.cloud_init.user_data_text(reveal),
                network_config: self.cloud_init.network_config_text(reveal),
            },
            known_later: &self.known_later,
        }
    }
}

impl<'p> DiskView<'p> {
    fn of(disk: &'p PlannedDisk) -> Self {
        Self {
            name: &disk.name,
            target: disk.target.name(),
            bus: disk.target.bus(),
            serial: disk.serial.as_str(),
            source: SourceView {
                source: &disk.source,
                claim: disk.claim.as_ref(),
            },
            format: disk.format,
            size: disk.size.known(),
            at_least: match disk.size {
                Size::AtLeast(size) => Some(size),
                Size::Known(_) | Size::AfterPull | Size::OnNode => None,
            },
            access: disk.access,
            copy: disk.copy,
            pool: disk.pool.as_ref().map(crate::names::PoolName::as_str),
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
                overlay,
            } => {
                map.serialize_entry("file", &overlay.path)?;
                map.serialize_entry("volume", &overlay.name)?;
                map.serialize_entry("image", image.as_written())?;
                map.serialize_entry("digest", &digest.map(|digest| digest.to_string()))?;
                map.serialize_entry("backing", store_file)?;
                map.serialize_entry("backingFormat", &Format::Raw)?;
            }
            Source::NewVolume(volume) => {
                map.serialize_entry("file", &volume.path)?;
                map.serialize_entry("volume", &volume.name)?;
                map.serialize_entry("filesystem", "ext4")?;
            }
            Source::RawDevice(path) | Source::BlockClaim(path) | Source::DiskImage(path) => {
                exposed(&mut map, path)?;
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
            Source::Rbd { ceph, key } => {
                let monitors: Vec<_> = ceph.monitors.iter().map(ToString::to_string).collect();
                map.serialize_entry("monitors", &monitors)?;
                map.serialize_entry("pool", ceph.pool.as_str())?;
                map.serialize_entry("image", ceph.volume.as_str())?;
                map.serialize_entry("user", ceph.user.as_str())?;
                map.serialize_entry("secret", &key.as_ref().map(|(uuid, _)| uuid.to_string()))?;
            }
            Source::CloudInit { path } => map.serialize_entry("file", path)?,
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
            Self::DiskImage(_) => "diskImage",
            Self::Rbd { .. } => "rbd",
            Self::CloudInit { .. } => "cloudInit",
        }
    }
}
