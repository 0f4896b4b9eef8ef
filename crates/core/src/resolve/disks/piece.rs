//! A disk on its way into a plan, and where its VM is going to be.

use uuid::Uuid;

use crate::diag::Place;
use crate::domain::{DeviceKind, Format, IoLimits, Serial, Target};
use crate::guest::GuestPath;
use crate::names::PoolName;
use crate::plan::{
    Access, Claimed, Copy, Migration, MountPoint, Nodes, PlannedDisk, Size, Source, Storage,
    TuningWish,
};

/// A disk before it has its place on the bus.
pub(in crate::resolve) struct Piece {
    pub(in crate::resolve) name: String,
    pub(in crate::resolve) serial: Serial,
    pub(in crate::resolve) place: Place,
    pub(in crate::resolve) device: DeviceKind,
    pub(in crate::resolve) source: Source,
    pub(in crate::resolve) master_format: Format,
    pub(in crate::resolve) size: Size,
    pub(in crate::resolve) access: Access,
    pub(in crate::resolve) copy: Copy,
    pub(in crate::resolve) pool: Option<PoolName>,
    pub(in crate::resolve) read_only: bool,
    pub(in crate::resolve) migration: Migration,
    pub(in crate::resolve) mounts: Vec<MountPoint>,
    pub(in crate::resolve) link: Option<GuestPath>,
    pub(in crate::resolve) claim: Option<Claimed>,
    pub(in crate::resolve) storage: Option<Storage>,
    pub(in crate::resolve) boot: Option<u32>,
    pub(in crate::resolve) tuning: TuningWish,
    pub(in crate::resolve) limits: IoLimits,
    pub(in crate::resolve) server_names: Vec<String>,
}

impl Piece {
    /// A raw disk that the guest writes to and that travels with the VM.
    pub(in crate::resolve) fn new(
        name: String,
        serial: Serial,
        place: Place,
        source: Source,
    ) -> Self {
        Self {
            name,
            serial,
            place,
            device: DeviceKind::Disk,
            source,
            master_format: Format::Raw,
            size: Size::OnNode,
            access: Access::WriteExclusive,
            copy: Copy::None,
            pool: None,
            read_only: false,
            migration: Migration::Copied,
            mounts: Vec::new(),
            link: None,
            claim: None,
            storage: None,
            boot: None,
            tuning: TuningWish::default(),
            limits: IoLimits::default(),
            server_names: Vec::new(),
        }
    }

    /// The same, which the guest may only read if so.
    pub(in crate::resolve) fn reading_only(self, read_only: bool) -> Self {
        Self {
            access: match read_only {
                true => Access::ReadShared,
                false => Access::WriteExclusive,
            },
            read_only,
            ..self
        }
    }

    pub(in crate::resolve) fn at(self, target: Target) -> PlannedDisk {
        PlannedDisk {
            name: self.name,
            device: self.device,
            target,
            serial: self.serial,
            source: self.source,
            master_format: self.master_format,
            size: self.size,
            access: self.access,
            copy: self.copy,
            pool: self.pool,
            mounts: self.mounts,
            link: self.link,
            claim: self.claim,
            storage: self.storage,
            migration: self.migration,
            read_only: self.read_only,
            boot: self.boot,
            tuning: self.tuning,
            limits: self.limits,
            server_names: self.server_names,
            origin: None,
        }
    }
}

/// Where a VM is going to be, as far as its disks depend on it.
#[derive(Clone, Copy)]
pub(in crate::resolve) struct Home<'v> {
    pub(in crate::resolve) uuid: Uuid,
    /// The node that its pod is bound to.
    pub(in crate::resolve) node: Option<&'v str>,
    /// Its pod's UID, by which the kubelet knows it.
    pub(in crate::resolve) pod_uid: Option<&'v str>,
    /// A kubelet mounts or maps its claims.
    pub(in crate::resolve) in_cluster: bool,
}

impl Home<'_> {
    /// The nodes that it can be on with a volume that names these hosts.
    pub(in crate::resolve) fn nodes(&self, hosts: Option<&[String]>) -> Nodes {
        Nodes {
            name: self.node.map(str::to_owned),
            hosts: hosts.map(<[String]>::to_vec),
        }
    }
}
