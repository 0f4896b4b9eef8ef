//! The node's configuration: what an administrator decides.

mod images;
mod per_node;
mod pools;

use std::collections::BTreeMap;

use crate::diag::{Diagnostic, Diagnostics, FieldPath, Place, Pos, Remedy, is_unprintable};
use crate::domain::Hypervisor;
use crate::images::ImageGc;
use crate::manifest::{CpuModel, Input};
use crate::names::{ImageName, PoolName};
use crate::networks::{Networks, Subnet};
use crate::units::{ByteSize, parse_quantity};
use crate::yaml::{self, Fields, Limits, Spanned, View};

pub use per_node::{ClaimedPool, NodePools};
pub use pools::{Overcommit, Pool, PoolAnnotation};

/// The configuration, complete: what a file leaves out has its default.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where Disklet keeps what lasts: volumes, images, cloud-init images.
    pub data_dir: String,
    /// Where the system's data is, for users who have their own: its images may
    /// be used, and nothing there is changed.
    pub system_data_dir: Option<String>,
    /// Where it keeps what goes with a reboot: the devices of running VMs.
    pub run_dir: String,
    /// Storage pools by usage type. [`Config::VOLUMES`] is always there.
    pub pools: BTreeMap<PoolName, Pool>,
    /// Which devices pods may use: globs below `/dev`.
    pub raw_devices: Vec<RawDeviceGlob>,
    /// Where the kubelet keeps its pods' volumes.
    pub kubelet_root: String,
    /// Where the machine's own root directory is seen: that of a container is
    /// another.
    pub host_root: String,
    /// Where libvirt notes the processes of its VMs.
    pub qemu_run: String,
    /// The QEMU program.
    pub emulator: String,
    /// How guests are run.
    pub hypervisor: HypervisorChoice,
    /// Memory of VMs that ask for none.
    pub default_memory: ByteSize,
    /// The CPU of VMs that ask for none.
    pub cpu_model: CpuModel,
    /// What machines with UEFI boot with.
    pub uefi: UefiFiles,
    /// Where the node's certificates for NBD are, as libvirt's qemu.conf says.
    pub nbd_certificates: String,
    /// Where the mapping of image names to addresses is: a file, or a directory
    /// of them.
    pub image_translations: Option<String>,
    /// Where VMs may have disks that they name by their servers.
    pub networks: Networks,
    /// Images that a cluster's node has before a VM wants them, and keeps.
    pub pre_pull: Vec<ImageName>,
    /// When a cluster's node gives up images that no VM uses.
    pub image_gc: ImageGc,
}

/// UEFI, as files of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UefiFiles {
    /// The firmware.
    pub code: String,
    /// The variables of a new machine.
    pub variables: String,
}

impl Default for UefiFiles {
    /// Where Debian's package ovmf has them.
    fn default() -> Self {
        Self {
            code: "/usr/share/OVMF/OVMF_CODE_4M.fd".to_owned(),
            variables: "/usr/share/OVMF/OVMF_VARS_4M.fd".to_owned(),
        }
    }
}

/// How guests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HypervisorChoice {
    /// By what a trial boot on the node shows to work.
    Auto,
    /// As the administrator says.
    Fixed(Hypervisor),
}

/// A glob below `/dev`, such as `loop*` or `mapper/vm_pool-*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawDeviceGlob(glob::Pattern);

impl RawDeviceGlob {
    /// Checks a glob as an administrator writes it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("is empty".to_owned());
        }
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err("must be relative to /dev, without \"..\"".to_owned());
        }
        if text.chars().any(is_unprintable) {
            return Err("has a control or invisible character in it".to_owned());
        }
        let pattern = glob::Pattern::new(&format!("/dev/{text}"))
            .map_err(|error| format!("is not a glob: {}", error.msg))?;
        Ok(Self(pattern))
    }

    /// Reads a comma-separated list, as `--raw-devices` and
    /// `VIRTLET_RAW_DEVICES` have it.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',')
            .filter(|item| !item.trim().is_empty())
            .map(|item| Self::parse(item).map_err(|why| format!("{:?} {why}", item.trim())))
            .collect()
    }

    /// Whether a path below `/dev` matches. `*` does not cross a `/`.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let options = glob::MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: false,
        };
        self.0.matches_with(path, options)
    }

    /// The whole pattern, `/dev/` included.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

const DEFAULT_DATA_DIR: &str = "/var/lib/disklet";
const DEFAULT_GLOB: &str = "loop*";

impl Default for Config {
    fn default() -> Self {
        let mut config = Self {
            data_dir: DEFAULT_DATA_DIR.to_owned(),
            system_data_dir: None,
            run_dir: "/run/disklet".to_owned(),
            pools: BTreeMap::new(),
            raw_devices: RawDeviceGlob::parse(DEFAULT_GLOB).into_iter().collect(),
            kubelet_root: "/var/lib/kubelet".to_owned(),
            host_root: "/".to_owned(),
            qemu_run: "/run/libvirt/qemu".to_owned(),
            emulator: "/usr/bin/qemu-system-x86_64".to_owned(),
            hypervisor: HypervisorChoice::Auto,
            default_memory: ByteSize::from_bytes(1 << 30),
            cpu_model: CpuModel::Default,
            uefi: UefiFiles::default(),
            nbd_certificates: "/etc/pki/qemu".to_owned(),
            image_translations: None,
            networks: Networks::of_owner(),
            pre_pull: Vec::new(),
            image_gc: ImageGc::default(),
        };
        config.complete();
        config
    }
}

impl Config {
    /// The pool of ephemeral volumes and root overlays.
    pub const VOLUMES: &str = "volumes";

    /// The settings that a file can have.
    pub(crate) const FIELDS: [&str; 16] = [
        "dataDir",
        "systemDataDir",
        "runDir",
        "kubeletRoot",
        "emulator",
        "pools",
        "rawDevices",
        "domainType",
        "defaultMemory",
        "cpuModel",
        "uefi",
        "nbdCertificates",
        "imageTranslations",
        "networks",
        "prePull",
        "imageGC",
    ];

    /// A path of the kubelet's, below the directory of a pod.
    #[must_use]
    pub fn in_pod(&self, uid: &str, below: &str) -> String {
        format!("{}/pods/{uid}/{below}", self.kubelet_root)
    }

    /// The same with other directories, as a user without root's rights has. The
    /// data directory that it had is the system's then.
    #[must_use]
    pub fn in_directories(mut self, data_dir: String, run_dir: String) -> Self {
        self.system_data_dir = Some(std::mem::replace(&mut self.data_dir, data_dir));
        self.run_dir = run_dir;
        self.pools.clear();
        self.complete();
        self
    }

    /// Reads a configuration file. It is ours, so every field is checked; what
    /// it leaves out is as it was.
    #[must_use]
    pub fn read(self, input: &Input, diags: &mut Diagnostics) -> Self {
        let mut config = self;
        config.pools.clear();
        let mut places = BTreeMap::new();
        diags.begin_file(&input.name);
        for document in yaml::documents(&input.text, Limits::default()) {
            match document {
                Ok(root) => config.take(&View::root(&root, &input.name), &mut places, diags),
                Err(errors) => {
                    for error in errors {
                        diags.push(error.in_file(&input.name));
                    }
                }
            }
        }
        config.complete();
        pools::refuse_nested(&config.pools, &places, diags);
        config
    }

    /// The directory of a pool that exists by construction.
    #[must_use]
    pub fn volumes_dir(&self) -> &str {
        PoolName::parse(Self::VOLUMES)
            .ok()
            .and_then(|name| self.pools.get(&name))
            .map_or(DEFAULT_DATA_DIR, |pool| &pool.path)
    }

    fn complete(&mut self) {
        if let Ok(name) = PoolName::parse(Self::VOLUMES) {
            let path = format!("{}/volumes", self.data_dir);
            self.pools.entry(name).or_insert(Pool::at(path));
        }
    }

    fn take(
        &mut self,
        view: &View<'_>,
        places: &mut BTreeMap<PoolName, Place>,
        diags: &mut Diagnostics,
    ) {
        let Some(mut fields) = view.fields(diags) else {
            return;
        };
        if let Some(kind) = fields.get("kind") {
            diags.push(not_a_setting(&kind));
            return;
        }
        for (key, target) in [
            ("dataDir", &mut self.data_dir),
            ("runDir", &mut self.run_dir),
            ("nbdCertificates", &mut self.nbd_certificates),
            ("kubeletRoot", &mut self.kubelet_root),
            ("emulator", &mut self.emulator),
        ] {
            if let Some(path) = host_path(&mut fields, key, diags) {
                *target = path;
            }
        }
        if let Some(path) = host_path(&mut fields, "systemDataDir", diags) {
            self.system_data_dir = Some(path);
        }
        for (name, view) in fields.entries("pools", diags) {
            if let Some((name, pool)) = pools::read(name, &view, diags) {
                places.insert(name.clone(), view.place);
                self.pools.insert(name, pool);
            }
        }
        if let Some(view) = fields.get("rawDevices") {
            self.raw_devices = read_globs(&view, diags);
        }
        if let Some(word) = fields.spanned_text("domainType", diags) {
            self.hypervisor = read_hypervisor(&word, diags);
        }
        if let Some(view) = fields.get("defaultMemory") {
            self.take_memory(&view, diags);
        }
        if let Some(word) = fields.spanned_text("cpuModel", diags) {
            self.cpu_model = read_cpu_model(&word, diags);
        }
        if let Some(mut uefi) = fields.fields("uefi", diags) {
            let UefiFiles { code, variables } = &mut self.uefi;
            for (key, target) in [("code", code), ("variables", variables)] {
                if let Some(path) = host_path(&mut uefi, key, diags) {
                    *target = path;
                }
            }
            uefi.no_others(&["code", "variables"], diags);
        }
        if let Some(path) = host_path(&mut fields, "imageTranslations", diags) {
            self.image_translations = Some(path);
        }
        if let Some(mut networks) = fields.fields("networks", diags) {
            let web = networks.get("web").and_then(|view| view.bool(diags));
            self.networks.web = web.or(self.networks.web);
            let Networks { deny, allow, .. } = &mut self.networks;
            for (key, target) in [("deny", deny), ("allow", allow)] {
                target.extend(read_subnets(&mut networks, key, diags));
            }
            networks.no_others(&["deny", "allow", "web"], diags);
        }
        for item in fields.items("prePull", diags) {
            self.pre_pull.extend(images::read_name(&item, diags));
        }
        if let Some(view) = fields.get("imageGC") {
            self.image_gc = images::read_gc(&view, diags).unwrap_or(self.image_gc);
        }
        fields.no_others(&Self::FIELDS, diags);
    }

    fn take_memory(&mut self, view: &View<'_>, diags: &mut Diagnostics) {
        let Some(text) = view.scalar_text(diags) else {
            return;
        };
        match read_memory(text) {
            Ok(size) => self.default_memory = size,
            Err(allowed) => diags.push(
                Diagnostic::error(&view.place, "not an amount of memory for a VM")
                    .found(format!("{text:?}"))
                    .allowed(allowed),
            ),
        }
    }
}

/// Memory of VMs that name none; or what can be written.
pub fn read_memory(text: &str) -> Result<ByteSize, &'static str> {
    let size = parse_quantity(text).ok();
    let size = size.filter(|size| size.as_bytes() >= 16 << 20);
    size.ok_or("at least 16Mi, as a Kubernetes quantity such as 1Gi")
}

/// All of a manifest's fields are unknown here; one word about it is enough.
fn not_a_setting(kind: &View<'_>) -> Diagnostic {
    let problem = Diagnostic::error(&kind.place, "an object is no configuration of a node")
        .allowed(Config::FIELDS.join(", "));
    match kind.node.as_str() {
        Some(name @ "NodeFacts") => problem.found(format!("{name:?}")).remedy(Remedy::AsFacts),
        Some(name) => problem
            .found(format!("{name:?}"))
            .remedy(Remedy::AsManifest),
        None => problem.found(kind.node.kind()),
    }
}

/// Whether a text is an absolute path that stays where it says, and that shows
/// as it is.
#[must_use]
pub fn is_plain_host_path(path: &str) -> bool {
    path.starts_with('/')
        && !path.split('/').any(|part| part == "..")
        && !path.chars().any(is_unprintable)
}

fn host_path(fields: &mut Fields<'_>, key: &str, diags: &mut Diagnostics) -> Option<String> {
    let text = fields.spanned_text(key, diags)?;
    match parse_host_path(&text.value) {
        Ok(path) => Some(path),
        Err(why) => {
            diags.push(Diagnostic::error(&text.place, why).found(format!("{:?}", text.value)));
            None
        }
    }
}

/// Reads a path of the node at which something of its own is or will be.
pub fn parse_host_path(text: &str) -> Result<String, &'static str> {
    if text.chars().any(is_unprintable) {
        return Err("has a control or invisible character in it");
    }
    if !is_plain_host_path(text) {
        return Err("not an absolute path without \"..\"");
    }
    if text.split('/').all(|part| matches!(part, "" | ".")) {
        return Err("must not be the root directory; name a path below it");
    }
    Ok(text.trim_end_matches('/').to_owned())
}

/// A list with an error in it is refused with the whole run; until then it
/// allows everything, so that no device is blamed for it.
fn read_globs(view: &View<'_>, diags: &mut Diagnostics) -> Vec<RawDeviceGlob> {
    let errors_before = diags.errors();
    let mut globs = Vec::new();
    for item in view.items(diags) {
        let Some(text) = item.text(diags) else {
            continue;
        };
        match RawDeviceGlob::parse(text) {
            Ok(glob) => globs.push(glob),
            Err(why) => diags.push(
                Diagnostic::error(&item.place, format!("the glob {why}"))
                    .found(format!("{text:?}"))
                    .allowed("a glob relative to /dev, such as loop* or mapper/vm_pool-*"),
            ),
        }
    }
    if diags.errors() > errors_before {
        globs.extend(RawDeviceGlob::parse("**/*"));
    }
    globs
}

fn read_subnets(fields: &mut Fields<'_>, key: &str, diags: &mut Diagnostics) -> Vec<Subnet> {
    let mut subnets = Vec::new();
    for item in fields.items(key, diags) {
        let Some(text) = item.text(diags) else {
            continue;
        };
        match Subnet::parse(text) {
            Ok(subnet) => subnets.push(subnet),
            Err(error) => diags.push(
                Diagnostic::error(&item.place, format!("the network {error}"))
                    .found(format!("{text:?}"))
                    .allowed(Subnet::ALLOWED),
            ),
        }
    }
    subnets
}

fn read_hypervisor(word: &Spanned<String>, diags: &mut Diagnostics) -> HypervisorChoice {
    match word.value.as_str() {
        "auto" => HypervisorChoice::Auto,
        "kvm" => HypervisorChoice::Fixed(Hypervisor::Kvm),
        "qemu" => HypervisorChoice::Fixed(Hypervisor::Qemu),
        other => {
            refuse_word(word, other, &["auto", "kvm", "qemu"], diags);
            HypervisorChoice::Auto
        }
    }
}

fn read_cpu_model(word: &Spanned<String>, diags: &mut Diagnostics) -> CpuModel {
    match word.value.as_str() {
        "default" | "" => CpuModel::Default,
        "host-model" => CpuModel::HostModel,
        other => {
            refuse_word(word, other, &["default", "host-model"], diags);
            CpuModel::Default
        }
    }
}

fn refuse_word(word: &Spanned<String>, found: &str, allowed: &[&str], diags: &mut Diagnostics) {
    diags.push(
        Diagnostic::error(&word.place, "not one of the allowed words")
            .found(format!("{found:?}"))
            .allowed(allowed.join(", "))
            .did_you_mean(found, allowed.iter().copied()),
    );
}

/// The place of a setting that stands in no file.
#[must_use]
pub fn command_line_place(option: &str) -> Place {
    Place {
        file: "command line".into(),
        pos: Pos { line: 0, column: 0 },
        path: FieldPath::default().key(option),
    }
}
