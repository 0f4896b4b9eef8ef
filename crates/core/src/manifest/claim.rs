//! PersistentVolumes and PersistentVolumeClaims.

use crate::diag::{Diagnostic, Diagnostics, Place, is_unprintable};
use crate::names::{Namespace, ObjectName};
use crate::plan::plain_path;
use crate::units::ByteSize;
use crate::yaml::{Fields, Spanned, View};

use super::Meta;
use super::fill::Fill;
use super::meta::{parse_name, required_name, texts};
use super::network_volume::{GlusterfsVolume, IscsiVolume, RbdVolume};
use super::selector::Selector;
use super::storage::{self, RemoteStorage};
use super::volume::{Author, FlexVolume};

/// How a volume shows itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VolumeMode {
    /// As a directory.
    #[default]
    Filesystem,
    /// As a block device.
    Block,
}

impl VolumeMode {
    fn read(spec: &mut Fields<'_>, diags: &mut Diagnostics) -> Self {
        let Some(mode) = spec.spanned_text("volumeMode", diags) else {
            return Self::default();
        };
        match mode.value.as_str() {
            "Filesystem" => Self::Filesystem,
            "Block" => Self::Block,
            other => {
                diags.push(
                    Diagnostic::error(&mode.place, "not a volume mode")
                        .found(format!("{other:?}"))
                        .allowed("Filesystem, Block")
                        .did_you_mean(other, ["Filesystem", "Block"]),
                );
                Self::default()
            }
        }
    }
}

/// A PersistentVolume.
#[derive(Debug, Clone)]
pub struct PersistentVolume {
    /// Its name.
    pub name: ObjectName,
    /// Where it stands.
    pub place: Place,
    /// Its labels.
    pub labels: Vec<(String, String)>,
    /// Its size.
    pub capacity: ByteSize,
    /// `ReadWriteOnce` and the like.
    pub access_modes: Vec<String>,
    /// Directory or device.
    pub mode: VolumeMode,
    /// Its storage class; empty for none.
    pub class: String,
    /// The claim it is kept for.
    pub claim: Option<ClaimRef>,
    /// Somebody has deleted it, and it goes when its claim lets go of it.
    pub deleted: bool,
    /// `status.phase`, if the API server has set it.
    pub phase: Option<String>,
    /// Where its bytes are.
    pub source: Spanned<PvSource>,
    /// It can only be read: its source says so, or its only access mode.
    pub read_only: bool,
    /// The storage behind it, if that is seen from everywhere and the source
    /// says by what it is known.
    pub remote: Option<RemoteStorage>,
    /// The field of its source that is missing, if nobody can tell without it
    /// which storage it is.
    pub lacks: Option<&'static str>,
    /// The nodes that it can be used on, if it names them.
    pub nodes: Option<Vec<String>>,
}

/// A claim as a volume names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRef {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The claim's UID, once the volume was bound to it.
    pub uid: Option<String>,
}

impl ClaimRef {
    fn read(mut fields: Fields<'_>, diags: &mut Diagnostics) -> Self {
        let namespace = fields.text("namespace", diags).unwrap_or("default");
        let claim = Self {
            namespace: namespace.to_owned(),
            name: fields.text("name", diags).unwrap_or_default().to_owned(),
            uid: fields.text("uid", diags).map(str::to_owned),
        };
        fields.tell_slips(diags);
        claim
    }
}

/// The storage behind a PersistentVolume.
#[derive(Debug, Clone)]
pub enum PvSource {
    /// Our FlexVolume driver.
    Flex(Box<FlexVolume>),
    /// Another FlexVolume driver, by its name. No VM can use it.
    ForeignFlex(String),
    /// A path of a node, by the local volume plugin.
    Local(String),
    /// A path of a node, by the hostPath plugin.
    HostPath(String),
    /// A unit of an iSCSI target.
    Iscsi(Box<IscsiVolume>),
    /// An image in a Ceph pool.
    Rbd(Box<RbdVolume>),
    /// A Gluster volume.
    Glusterfs(Box<GlusterfsVolume>),
    /// Any other plugin, by the field's name, such as `csi` or `nfs`. The
    /// kubelet mounts or maps it.
    Kubelet(String),
}

impl PvSource {
    /// The field of the PersistentVolume that has it.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::Flex(_) | Self::ForeignFlex(_) => "flexVolume",
            Self::Local(_) => "local",
            Self::HostPath(_) => "hostPath",
            Self::Iscsi(_) => "iscsi",
            Self::Rbd(_) => "rbd",
            Self::Glusterfs(_) => "glusterfs",
            Self::Kubelet(field) => field,
        }
    }

    /// The plugin's directory name under a pod's directory, where it has one.
    #[must_use]
    pub fn plugin(&self) -> String {
        let name = match self {
            Self::Flex(_) | Self::ForeignFlex(_) => "flexVolume",
            Self::Local(_) => "local-volume",
            Self::HostPath(_) => "host-path",
            Self::Iscsi(_) | Self::Rbd(_) | Self::Glusterfs(_) => self.kind(),
            Self::Kubelet(field) => match field.as_str() {
                "awsElasticBlockStore" => "aws-ebs",
                "azureDisk" => "azure-disk",
                "azureFile" => "azure-file",
                "photonPersistentDisk" => "photon-pd",
                "portworxVolume" => "portworx-volume",
                "scaleIO" => "scaleio",
                "gcePersistentDisk" => "gce-pd",
                "vsphereVolume" => "vsphere-volume",
                field => field,
            },
        };
        format!("kubernetes.io~{name}")
    }
}

impl PersistentVolume {
    /// Where the kubelet puts it, below the directory of a pod: a link to its device,
    /// or the directory where it is mounted.
    #[must_use]
    pub fn below_pod(&self) -> String {
        let plugin = self.source.value.plugin();
        let (name, kubelet_mounts_below) = (&self.name, plugin == "kubernetes.io~csi");
        match self.mode {
            VolumeMode::Block => format!("volumeDevices/{plugin}/{name}"),
            VolumeMode::Filesystem if kubelet_mounts_below => {
                format!("volumes/{plugin}/{name}/mount")
            }
            VolumeMode::Filesystem => format!("volumes/{plugin}/{name}"),
        }
    }

    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut object = view.fields(diags)?;
        let mut meta = object.required("metadata", diags)?.fields(diags)?;
        let name = required_name(&mut meta, "name", ObjectName::parse, diags);
        let labels = texts(meta.entries("labels", diags), diags);
        meta.tell_slips(diags);
        let old_class = old_class(view);
        let phase = phase(&mut object, diags);
        let mut spec = object.required("spec", diags)?.fields(diags)?;
        let capacity = spec
            .required("capacity", diags)
            .and_then(|view| view.fields(diags)?.required("storage", diags))
            .and_then(|view| view.size(diags));
        let access_modes = access_modes(&mut spec, diags);
        let mode = VolumeMode::read(&mut spec, diags);
        let class = spec.text("storageClassName", diags).or(old_class);
        let class = class.unwrap_or_default().to_owned();
        let claim = spec
            .fields("claimRef", diags)
            .map(|fields| ClaimRef::read(fields, diags));
        spec.tell_slips(diags);
        object.tell_slips(diags);
        let source = read_source(&spec, diags)?;
        refuse_block_of_files(&source, mode, diags);
        let read_only = source.read_only || only_to_read(&access_modes);
        let remote = storage::remote(view.node);
        Some(Self {
            place: view.place.clone(),
            labels,
            access_modes,
            mode,
            class,
            claim,
            deleted: is_deleted(view),
            phase,
            source: source.source,
            read_only,
            lacks: remote.as_ref().err().copied(),
            remote: remote.ok().flatten(),
            nodes: storage::nodes(view.node),
            name: name?.value,
            capacity: capacity?,
        })
    }
}

/// Fields of a PersistentVolume's spec that are not its source.
const OTHER_PV_FIELDS: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// Fields of a PersistentVolume's spec that are its source.
const PV_SOURCES: [&str; 23] = [
    "flexVolume",
    "local",
    "hostPath",
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "csi",
    "fc",
    "flocker",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
    "gitRepo",
];

/// A source as it was read.
struct ReadSource {
    source: Spanned<PvSource>,
    read_only: bool,
}

/// Plugins that only know files.
const FILES_ONLY: [&str; 4] = ["azureFile", "cephfs", "nfs", "quobyte"];

fn refuse_block_of_files(read: &ReadSource, mode: VolumeMode, diags: &mut Diagnostics) {
    let files_only = match &read.source.value {
        PvSource::Kubelet(kind) => FILES_ONLY.contains(&kind.as_str()),
        PvSource::Flex(_) | PvSource::ForeignFlex(_) | PvSource::Glusterfs(_) => true,
        PvSource::Local(_) | PvSource::HostPath(_) | PvSource::Iscsi(_) | PvSource::Rbd(_) => false,
    };
    if files_only && mode == VolumeMode::Block {
        diags.push(
            Diagnostic::error(
                &read.source.place,
                "a volume of this kind cannot be a block device",
            )
            .help("remove volumeMode: Block"),
        );
    }
}

fn read_source(spec: &Fields<'_>, diags: &mut Diagnostics) -> Option<ReadSource> {
    let unread = spec.unread();
    let (sources, others): (Vec<_>, Vec<_>) =
        unread.iter().partition(|(key, _)| PV_SOURCES.contains(key));
    let Some((kind, view)) = sources.first().copied().cloned() else {
        let stranger = others
            .iter()
            .find(|(key, _)| !OTHER_PV_FIELDS.contains(key));
        let mut problem = match stranger {
            Some((key, view)) => {
                Diagnostic::error(&view.place, format!("{key:?} is no source of a volume"))
                    .did_you_mean(key, PV_SOURCES.into_iter().chain(OTHER_PV_FIELDS))
            }
            None => Diagnostic::error(spec.place(), "the volume has no source"),
        };
        problem =
            problem.allowed("one of flexVolume, local, hostPath, csi, iscsi, rbd and the like");
        diags.push(problem);
        return None;
    };
    if let Some((second, view)) = sources.get(1) {
        diags.push(
            Diagnostic::error(&view.place, "a volume has one source")
                .found(format!("{kind} and {second}"))
                .help("remove one of the two"),
        );
    }
    let path = |diags: &mut Diagnostics| {
        let text = view.fields(diags)?.required_text("path", diags)?;
        check_host_path(&text, diags).then(|| plain_path(&text.value))
    };
    let value = match kind {
        "flexVolume" => match foreign_driver(&view) {
            Some(driver) => Some(PvSource::ForeignFlex(driver)),
            None => FlexVolume::read(&view, Author::Administrator, diags)
                .map(|flex| PvSource::Flex(Box::new(flex))),
        },
        "local" => path(diags).map(PvSource::Local),
        "hostPath" => path(diags).map(PvSource::HostPath),
        "iscsi" => IscsiVolume::read(&view, diags).map(|it| PvSource::Iscsi(Box::new(it))),
        "rbd" => RbdVolume::read(&view, diags).map(|it| PvSource::Rbd(Box::new(it))),
        "glusterfs" => {
            GlusterfsVolume::read(&view, diags).map(|it| PvSource::Glusterfs(Box::new(it)))
        }
        other => Some(PvSource::Kubelet(other.to_owned())),
    }?;
    let read_only = match &value {
        PvSource::Iscsi(volume) => volume.read_only,
        PvSource::Rbd(volume) => volume.read_only,
        PvSource::Glusterfs(volume) => volume.read_only,
        _ => {
            let mut fields = view.fields(diags)?;
            let read_only = fields.flag("readOnly", diags);
            fields.tell_slips(diags);
            read_only
        }
    };
    let place = view.place;
    Some(ReadSource {
        source: Spanned { value, place },
        read_only,
    })
}

/// A volume of somebody else's driver is no concern of ours until a VM wants it.
fn foreign_driver(view: &View<'_>) -> Option<String> {
    let driver = view.node.get("driver")?.as_str()?;
    (!disklet_flexvolume::is_ours(driver)).then(|| driver.to_owned())
}

fn check_host_path(path: &Spanned<String>, diags: &mut Diagnostics) -> bool {
    let sound = path.value.starts_with('/')
        && !path.value.split('/').any(|part| part == "..")
        && !path.value.chars().any(is_unprintable);
    if !sound {
        diags.push(
            Diagnostic::error(&path.place, "not a path that Disklet follows")
                .found(format!("{:?}", path.value))
                .allowed("an absolute path without \"..\" and invisible characters"),
        );
    }
    sound
}

/// A PersistentVolumeClaim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Who it is.
    pub meta: Meta,
    /// The size it asks for.
    pub request: ByteSize,
    /// `ReadWriteOnce` and the like.
    pub access_modes: Vec<String>,
    /// Directory or device.
    pub mode: VolumeMode,
    /// Its storage class, empty for none; absent if it leaves that to the
    /// cluster's default.
    pub class: Option<String>,
    /// Which volumes it takes.
    pub selector: Selector,
    /// Somebody has deleted it, and it goes when nobody uses it any more.
    pub deleted: bool,
    /// The volume it asks for or is bound to.
    pub volume: Option<Spanned<ObjectName>>,
    /// `status.phase`, if the API server has set it.
    pub phase: Option<String>,
    /// It asks for reading only, by its only access mode.
    pub read_only: bool,
    /// How far its filling is, if somebody fills it.
    pub fill: Option<Fill>,
}

/// Where the class stood before it became a field.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

impl Claim {
    pub(super) fn read(
        view: &View<'_>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let mut object = view.fields(diags)?;
        let meta = Meta::read(view, &mut object, namespace, diags);
        let old_class = old_class(view);
        let phase = phase(&mut object, diags);
        let mut spec = object.required("spec", diags)?.fields(diags)?;
        let request = spec
            .required("resources", diags)
            .and_then(|view| view.fields(diags)?.required("requests", diags))
            .and_then(|view| view.fields(diags)?.required("storage", diags))
            .and_then(|view| view.size(diags));
        let class = spec.text("storageClassName", diags).or(old_class);
        let access_modes = access_modes(&mut spec, diags);
        let mode = VolumeMode::read(&mut spec, diags);
        let selector = spec
            .fields("selector", diags)
            .map(|fields| Selector::read(fields, diags))
            .unwrap_or_default();
        let volume = spec
            .spanned_text("volumeName", diags)
            .filter(|name| !name.value.is_empty())
            .and_then(|name| parse_name(name, ObjectName::parse, diags));
        spec.tell_slips(diags);
        object.tell_slips(diags);
        Some(Self {
            meta: meta?,
            read_only: only_to_read(&access_modes),
            fill: Fill::read(view, diags),
            access_modes,
            mode,
            class: class.map(str::to_owned),
            selector,
            deleted: is_deleted(view),
            volume,
            phase,
            request: request?,
        })
    }
}

impl Claim {
    /// Whether it asks to be one pod's alone.
    #[must_use]
    pub fn is_for_one_pod(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == ONE_POD)
    }

    /// Whether it asks for what several nodes write at the same time.
    #[must_use]
    pub fn is_written_by_many_nodes(&self) -> bool {
        self.access_modes.iter().any(|mode| mode == "ReadWriteMany")
    }
}

/// The access mode of claims that no two pods have.
const ONE_POD: &str = "ReadWriteOncePod";

fn is_deleted(view: &View<'_>) -> bool {
    let meta = view.node.get("metadata");
    meta.is_some_and(|meta| meta.get("deletionTimestamp").is_some())
}

/// The class as it was written before it became a field.
fn old_class<'n>(view: &View<'n>) -> Option<&'n str> {
    let annotations = view.node.get("metadata")?.get("annotations")?;
    annotations.get(CLASS_ANNOTATION)?.as_str()
}

fn phase(object: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<String> {
    let mut status = object.fields("status", diags)?;
    status.text("phase", diags).map(str::to_owned)
}

/// Many nodes may mount it at the same time, so none of them may write.
fn only_to_read(access_modes: &[String]) -> bool {
    !access_modes.is_empty() && access_modes.iter().all(|mode| mode == "ReadOnlyMany")
}

fn access_modes(spec: &mut Fields<'_>, diags: &mut Diagnostics) -> Vec<String> {
    spec.items("accessModes", diags)
        .iter()
        .filter_map(|mode| mode.text(diags).map(str::to_owned))
        .collect()
}
