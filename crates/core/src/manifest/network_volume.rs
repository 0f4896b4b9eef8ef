//! PersistentVolumes at servers that QEMU can reach by itself.
//!
//! They are Kubernetes' own, and the kubelet may be who uses them: what is
//! wrong with them for QEMU is told when a disk wants them.

use crate::diag::Diagnostics;
use crate::names::{Namespace, ObjectName};
use crate::yaml::{Fields, Spanned, View};

use super::address::spanned_int;
use super::meta::parse_name;
use super::volume::{Author, SecretRef};

/// A unit of an iSCSI target.
#[derive(Debug, Clone)]
pub struct IscsiVolume {
    /// Where the target is.
    pub portal: Option<Spanned<String>>,
    /// Where it is as well.
    pub other_portals: usize,
    /// The target.
    pub target: Option<Spanned<String>>,
    /// The unit.
    pub lun: Option<Spanned<i64>>,
    /// By which name to introduce oneself.
    pub initiator: Option<Spanned<String>>,
    /// The portal asks who one is before it tells its targets.
    pub discovery_chap: Option<Spanned<bool>>,
    /// The target asks who one is.
    pub session_chap: bool,
    /// Who one is.
    pub secret: Option<SecretRef>,
    /// Nobody writes to it.
    pub read_only: bool,
}

/// An image in a Ceph pool.
#[derive(Debug, Clone)]
pub struct RbdVolume {
    /// Where the cluster is.
    pub monitors: Vec<Spanned<String>>,
    /// The pool; Kubernetes' default is `rbd`.
    pub pool: Option<Spanned<String>>,
    /// The image.
    pub image: Option<Spanned<String>>,
    /// Who asks; Kubernetes' default is `admin`.
    pub user: Option<Spanned<String>>,
    /// The user's key.
    pub secret: Option<SecretRef>,
    /// Nobody writes to it.
    pub read_only: bool,
}

/// A Gluster volume.
#[derive(Debug, Clone)]
pub struct GlusterfsVolume {
    /// The Endpoints that list its servers.
    pub endpoints: Option<Spanned<ObjectName>>,
    /// Their namespace; absent: the claim's.
    pub namespace: Option<Namespace>,
    /// The volume.
    pub path: Option<Spanned<String>>,
    /// Nobody writes to it.
    pub read_only: bool,
}

impl IscsiVolume {
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let discovery = fields.get("chapAuthDiscovery");
        let discovery_chap = discovery.and_then(|view| {
            let value = view.bool(diags)?;
            let place = view.place;
            Some(Spanned { value, place })
        });
        let volume = Self {
            portal: fields.spanned_text("targetPortal", diags),
            other_portals: fields.items("portals", diags).len(),
            target: fields.spanned_text("iqn", diags),
            lun: spanned_int(&mut fields, "lun", diags),
            initiator: fields.spanned_text("initiatorName", diags),
            discovery_chap,
            session_chap: fields.flag("chapAuthSession", diags),
            secret: read_secret(&mut fields, diags),
            read_only: fields.flag("readOnly", diags),
        };
        for other in ["fsType", "iscsiInterface"] {
            fields.get(other);
        }
        fields.tell_slips(diags);
        Some(volume)
    }
}

impl RbdVolume {
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let monitors = fields.items("monitors", diags);
        let volume = Self {
            monitors: monitors
                .iter()
                .filter_map(|item| item.spanned_text(diags))
                .collect(),
            pool: written(fields.spanned_text("pool", diags)),
            image: fields.spanned_text("image", diags),
            user: written(fields.spanned_text("user", diags)),
            secret: read_secret(&mut fields, diags),
            read_only: fields.flag("readOnly", diags),
        };
        for other in ["fsType", "keyring"] {
            fields.get(other);
        }
        fields.tell_slips(diags);
        Some(volume)
    }
}

impl GlusterfsVolume {
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let endpoints = fields.spanned_text("endpoints", diags);
        let namespace = fields.spanned_text("endpointsNamespace", diags);
        let volume = Self {
            endpoints: match endpoints {
                Some(name) => Some(parse_name(name, ObjectName::parse, diags)?),
                None => None,
            },
            namespace: match namespace {
                Some(name) => Some(parse_name(name, Namespace::parse, diags)?.value),
                None => None,
            },
            path: fields.spanned_text("path", diags),
            read_only: fields.flag("readOnly", diags),
        };
        fields.tell_slips(diags);
        Some(volume)
    }
}

/// An empty text counts as none: API servers fill in what is usual then.
fn written(text: Option<Spanned<String>>) -> Option<Spanned<String>> {
    text.filter(|text| !text.value.is_empty())
}

fn read_secret(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<SecretRef> {
    let view = fields.get("secretRef")?;
    SecretRef::read(&view, Author::Administrator, diags)
}

impl RbdVolume {
    /// Kubernetes' default.
    pub const POOL: &str = "rbd";
}
