//! Virtlet's annotations and ours.
//!
//! Each is a text, as Kubernetes has them, and each is checked here. A word
//! that begins like one of ours and is none is an error: a misspelt
//! annotation would otherwise change nothing, silently.

mod values;

use uuid::Uuid;

pub(super) use values::{embedded_map, image_type, refuse_infinite, system_uuid};
pub(crate) use values::{parse_data, parse_map, private_key};

use crate::cloudinit::ImageType;
use crate::diag::{Diagnostic, Diagnostics, Place, is_slip};
use crate::names::{DataKey, ObjectName};
use crate::text::Data;
use crate::units::ByteSize;
use crate::yaml::{Spanned, View};

use super::cpu::CpuSetting;
use values::{
    CPU_MODELS, DRIVERS, ENCODINGS, data_key, data_ref, flag, keyed_data_ref, one_of,
    refuse_unless_false, root_size, ssh_keys, vcpus,
};

/// What the annotations of a VM pod say.
#[derive(Debug, Clone, Default)]
pub struct Annotations {
    /// How many virtual CPUs.
    pub vcpus: Option<u32>,
    /// Which controller the disks hang on.
    pub disk_driver: DiskDriver,
    /// The least size of an ephemeral root disk.
    pub root_size: Option<Spanned<ByteSize>>,
    /// The layout of the cloud-init image.
    pub image_type: ImageType,
    /// Entries of meta-data that win over generated ones.
    pub meta_data: Vec<(String, Data)>,
    /// The user's cloud-config.
    pub user_data: Vec<(String, Data)>,
    /// Where it stands.
    pub user_data_place: Option<Place>,
    /// The inline cloud-config replaces that of the source, and inline SSH
    /// keys replace those of their source, instead of being merged.
    pub overwrite: bool,
    /// A script instead of a cloud-config.
    pub script: Option<Spanned<String>>,
    /// A ConfigMap or Secret with cloud-config.
    pub user_data_source: Option<Spanned<DataRef>>,
    /// The key of that object that holds a script.
    pub source_key: Option<Spanned<DataKey>>,
    /// How that script is encoded.
    pub source_encoding: TextEncoding,
    encoding_place: Option<Place>,
    /// SSH public keys.
    pub ssh_keys: Vec<String>,
    /// A ConfigMap or Secret with SSH public keys.
    pub ssh_key_source: Option<Spanned<KeyedDataRef>>,
    /// A ConfigMap or Secret with files for the guest.
    pub files_source: Option<Spanned<DataRef>>,
    /// The domain's UUID.
    pub system_uuid: Option<Spanned<Uuid>>,
    /// No network-config for the guest.
    pub force_dhcp: bool,
    /// The CPU the guest sees.
    pub cpu_model: Option<CpuModel>,
    /// The CPU in libvirt's own words; wins over the model.
    pub cpu_setting: Option<Spanned<CpuSetting>>,
    /// A persistent root that holds another image, or foreign data, may be
    /// overwritten.
    pub recreate_root: bool,
}

/// The bus of all disks of a VM pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DiskDriver {
    /// virtio-scsi: up to 26 disks.
    #[default]
    Scsi,
    /// virtio-blk: up to 20 disks.
    Virtio,
}

/// The CPU the guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuModel {
    /// Whatever the hypervisor gives by default.
    Default,
    /// As near to the host's as can be migrated.
    HostModel,
}

/// The kinds of object that hold data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// ConfigMap
    ConfigMap,
    /// Secret
    Secret,
}

impl ObjectKind {
    /// As Kubernetes writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
        }
    }
}

/// A ConfigMap or Secret of the pod's namespace.
#[derive(Debug, Clone)]
pub struct DataRef {
    /// Which kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: ObjectName,
}

/// One key of a ConfigMap or Secret.
#[derive(Debug, Clone)]
pub struct KeyedDataRef {
    /// The object.
    pub object: DataRef,
    /// The key.
    pub key: DataKey,
}

/// How a text is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextEncoding {
    /// As it is.
    #[default]
    Plain,
    /// In base64.
    Base64,
}

const VCPUS: &str = "VirtletVCPUCount";
const DISK_DRIVER: &str = "VirtletDiskDriver";
const ROOT_SIZE: &str = "VirtletRootVolumeSize";
const IMAGE_TYPE: &str = "VirtletCloudInitImageType";
const META_DATA: &str = "VirtletCloudInitMetaData";
const USER_DATA: &str = "VirtletCloudInitUserData";
const OVERWRITE: &str = "VirtletCloudInitUserDataOverwrite";
const SCRIPT: &str = "VirtletCloudInitUserDataScript";
const SOURCE: &str = "VirtletCloudInitUserDataSource";
const SOURCE_KEY: &str = "VirtletCloudInitUserDataSourceKey";
const SOURCE_ENCODING: &str = "VirtletCloudInitUserDataSourceEncoding";
const SSH_KEYS: &str = "VirtletSSHKeys";
const SSH_KEY_SOURCE: &str = "VirtletSSHKeySource";
const FILES_SOURCE: &str = "VirtletFilesFromDataSource";
const SYSTEM_UUID: &str = "VirtletSystemUUID";
const FORCE_DHCP: &str = "VirtletForceDHCPNetworkConfig";
const CPU_MODEL: &str = "VirtletCPUModel";
const CPU_SETTING: &str = "VirtletLibvirtCPUSetting";
const CHOWN: &str = "VirtletChown9pfsMounts";
const IDENTITY_SET: &str = "VirtletVMIdentitySet";
const IDENTITY_NAME: &str = "VirtletVMIdentityName";
/// Allows that a persistent root is filled again.
pub(super) const RECREATE_ROOT: &str = "disklet.io/recreate-root";

const KNOWN: [&str; 22] = [
    VCPUS,
    DISK_DRIVER,
    ROOT_SIZE,
    IMAGE_TYPE,
    META_DATA,
    USER_DATA,
    OVERWRITE,
    SCRIPT,
    SOURCE,
    SOURCE_KEY,
    SOURCE_ENCODING,
    SSH_KEYS,
    SSH_KEY_SOURCE,
    FILES_SOURCE,
    SYSTEM_UUID,
    FORCE_DHCP,
    CPU_MODEL,
    CPU_SETTING,
    CHOWN,
    IDENTITY_SET,
    IDENTITY_NAME,
    RECREATE_ROOT,
];

/// Whether a VM pod's VM is another with another value of this annotation.
pub(crate) fn is_annotation_of_vm(key: &str) -> bool {
    KNOWN.contains(&key)
}

impl Annotations {
    /// Reads ours among a pod's annotations. A wrong one is reported and
    /// counts as absent.
    pub(super) fn read(entries: &[(&str, View<'_>)], diags: &mut Diagnostics) -> Self {
        let mut all = Self::default();
        for (key, view) in entries {
            let ours = key.starts_with("Virtlet") || key.starts_with("disklet.io/");
            // Another case is a slip as well: Kubernetes keys have one.
            let nearly = key
                .get(..7)
                .is_some_and(|start| start.eq_ignore_ascii_case("virtlet"))
                || KNOWN.iter().any(|known| is_slip(key, known));
            if !ours && !nearly {
                continue;
            }
            if let Some(text) = view.spanned_text(diags) {
                all.take(key, &text, diags);
            }
        }
        all.check_together(diags);
        all
    }

    fn take(&mut self, key: &str, text: &Spanned<String>, diags: &mut Diagnostics) {
        match key {
            VCPUS => self.vcpus = vcpus(text, diags),
            DISK_DRIVER => self.disk_driver = one_of(text, "a disk driver", &DRIVERS, diags),
            ROOT_SIZE => self.root_size = root_size(text, diags),
            IMAGE_TYPE => self.image_type = image_type(text, diags),
            META_DATA => {
                self.meta_data = embedded_map(text, diags);
                refuse_infinite(&self.meta_data, text, diags);
            }
            USER_DATA => {
                self.user_data = embedded_map(text, diags);
                self.user_data_place = Some(text.place.clone());
            }
            OVERWRITE => self.overwrite = flag(text, diags),
            SCRIPT => self.script = (!text.value.is_empty()).then(|| text.clone()),
            SOURCE => self.user_data_source = data_ref(text, diags),
            SOURCE_KEY => self.source_key = data_key(text, diags),
            SOURCE_ENCODING => {
                self.encoding_place = Some(text.place.clone());
                self.source_encoding = one_of(text, "an encoding", &ENCODINGS, diags);
            }
            SSH_KEYS => self.ssh_keys = ssh_keys(text, diags),
            SSH_KEY_SOURCE => self.ssh_key_source = keyed_data_ref(text, diags),
            FILES_SOURCE => self.files_source = data_ref(text, diags),
            SYSTEM_UUID => self.system_uuid = system_uuid(text, diags),
            FORCE_DHCP => self.force_dhcp = flag(text, diags),
            CPU_MODEL => self.cpu_model = Some(one_of(text, "a CPU model", &CPU_MODELS, diags)),
            CPU_SETTING => {
                let setting = CpuSetting::read(text, diags);
                self.cpu_setting = setting.map(|setting| text.clone().map(|_| setting));
            }
            RECREATE_ROOT => self.recreate_root = flag(text, diags),
            CHOWN => refuse_unless_false(
                text,
                "there are no 9p mounts: directory volumes are refused",
                diags,
            ),
            IDENTITY_SET | IDENTITY_NAME => diags.push(
                Diagnostic::error(&text.place, "VM identities do not exist in this version")
                    .help("remove the annotation; the root disk then lives and dies with the pod"),
            ),
            unknown => diags.push(
                Diagnostic::error(&text.place, format!("unknown annotation {unknown:?}"))
                    .allowed(KNOWN.join(", "))
                    .did_you_mean(unknown, KNOWN),
            ),
        }
    }

    fn check_together(&self, diags: &mut Diagnostics) {
        let topology = self.cpu_setting.as_ref().and_then(|setting| {
            let counts = setting.value.topology?;
            Some((counts.iter().product::<u32>(), &setting.place))
        });
        if let Some((cpus, place)) = topology
            && cpus != self.vcpus.unwrap_or(1)
        {
            diags.push(
                Diagnostic::error(place, "the topology does not have as many CPUs as the VM")
                    .found(format!(
                        "{cpus} by topology, {} by {VCPUS}",
                        self.vcpus.unwrap_or(1)
                    ))
                    .help(format!("set {VCPUS} to sockets times cores times threads")),
            );
        }
        if let (Some(key), None) = (&self.source_key, &self.user_data_source) {
            diags.push(
                Diagnostic::error(&key.place, "a key of no source").help(format!(
                    "say with {SOURCE} which ConfigMap or Secret has it"
                )),
            );
        }
        if let (Some(place), None) = (&self.encoding_place, &self.source_key) {
            diags.push(
                Diagnostic::error(place, "an encoding of no script").help(format!(
                    "say with {SOURCE_KEY} which key of the source holds the script"
                )),
            );
        }
        let script = self.script.as_ref().map(|script| (SCRIPT, &script.place));
        let keyed = self.source_key.as_ref().map(|key| (SOURCE_KEY, &key.place));
        if let Some((by, _)) = script.or(keyed) {
            let unread_source = self
                .user_data_source
                .as_ref()
                .filter(|_| self.source_key.is_none());
            let lost = [
                self.user_data_place.as_ref(),
                unread_source.map(|source| &source.place),
            ];
            for place in lost.into_iter().flatten() {
                diags.push(
                    Diagnostic::notice(place, format!("has no effect beside {by}"))
                        .help("a script is the whole user-data; remove one of the two"),
                );
            }
        }
        if let (Some(script), Some(key)) = (&self.script, &self.source_key) {
            diags.push(
                Diagnostic::error(&script.place, "two scripts cannot both be the user-data")
                    .help(format!("remove {SCRIPT}, or {SOURCE_KEY} at {}", key.place)),
            );
        }
    }
}
