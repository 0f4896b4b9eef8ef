//! A domain's XML.

use super::element::{Element, element, text};
use super::target::{BALLOON_SLOT, ENTROPY_SLOT, NETWORK_SLOT, SCSI_SLOT, pci};
use super::{
    BackingFile, Cache, Cpu, DeviceKind, Disk, DiskSource, Domain, Hypervisor, Io, Tuning,
};
use crate::manifest::{CpuModel, CpuSetting};

/// The namespace of our mark in a domain's metadata.
const XMLNS: &str = "https://disklet.io/xmlns/domain/1";

/// Says who owns a file.
const LABEL: &str = "seclabel";

impl Domain {
    /// The document for libvirt.
    #[must_use]
    pub fn to_xml(&self) -> String {
        self.element().render()
    }

    /// The document for a user's own libvirt, which runs QEMU as that user: it
    /// has no labels, and refuses to be told so.
    #[must_use]
    pub fn to_session_xml(&self) -> String {
        self.element().without(LABEL).render()
    }

    fn element(&self) -> Element {
        let hypervisor = match self.hypervisor {
            Hypervisor::Kvm => "kvm",
            Hypervisor::Qemu => "qemu",
        };
        element("domain")
            .with("type", hypervisor)
            .child(text("name", &self.name))
            .child(text("uuid", self.uuid))
            .child(self.metadata())
            .child(text("memory", self.memory.as_bytes()).with("unit", "b"))
            .child(text("vcpu", self.vcpus))
            // libvirt wants the SMBIOS UUID to equal <uuid>.
            .child(
                element("sysinfo")
                    .with("type", "smbios")
                    .child(element("system").child(text("entry", self.uuid).with("name", "uuid"))),
            )
            .child(
                element("os")
                    .child(
                        text("type", "hvm")
                            .with("arch", "x86_64")
                            .with("machine", "pc"),
                    )
                    .child(element("smbios").with("mode", "sysinfo")),
            )
            .child(element("features").child(element("acpi")))
            .children(cpu(&self.cpu))
            .child(element("clock").with("offset", "utc"))
            .child(text("on_poweroff", "destroy"))
            .child(text("on_reboot", "restart"))
            .child(text("on_crash", "destroy"))
            .child(self.devices())
    }

    fn metadata(&self) -> Element {
        element("metadata").child(
            element("disklet:vm")
                .with("xmlns:disklet", XMLNS)
                .with("namespace", &self.owner.namespace)
                .with("name", &self.owner.name),
        )
    }

    fn devices(&self) -> Element {
        element("devices")
            .child(text("emulator", &self.emulator))
            .children(self.disks.iter().map(disk))
            .child(
                element("controller")
                    .with("type", "scsi")
                    .with("index", 0)
                    .with("model", "virtio-scsi")
                    .child(pci(SCSI_SLOT)),
            )
            .child(
                element("controller")
                    .with("type", "usb")
                    .with("model", "none"),
            )
            .child(
                element("interface")
                    .with("type", "user")
                    .child(element("mac").with("address", &self.mac))
                    .child(element("model").with("type", "virtio"))
                    .child(pci(NETWORK_SLOT)),
            )
            .child(
                element("serial")
                    .with("type", "pty")
                    .child(
                        element("log")
                            .with("file", &self.serial_log)
                            .with("append", "on"),
                    )
                    .child(element("target").with("port", 0)),
            )
            .child(
                element("console")
                    .with("type", "pty")
                    .child(
                        element("log")
                            .with("file", &self.serial_log)
                            .with("append", "on"),
                    )
                    .child(element("target").with("type", "serial").with("port", 0)),
            )
            // cloud-init makes SSH host keys at first boot: without entropy
            // from the host that can take minutes.
            .child(
                element("rng")
                    .with("model", "virtio")
                    .child(text("backend", "/dev/urandom").with("model", "random"))
                    .child(pci(ENTROPY_SLOT)),
            )
            .child(
                element("memballoon")
                    .with("model", "virtio")
                    .child(pci(BALLOON_SLOT)),
            )
    }
}

fn disk(disk: &Disk) -> Element {
    let kind = match disk.source {
        DiskSource::File { .. } => "file",
        DiskSource::Block { .. } => "block",
        DiskSource::Rbd { .. } => "network",
    };
    let device = match disk.device {
        DeviceKind::Disk => "disk",
        DeviceKind::Cdrom => "cdrom",
    };
    element("disk")
        .with("type", kind)
        .with("device", device)
        .child(driver(disk))
        .children(auth(&disk.source))
        .child(source(&disk.source))
        .child(backing_store(&disk.source))
        .child(
            element("target")
                .with("dev", disk.target.name())
                .with("bus", disk.target.bus().name()),
        )
        .children(disk.read_only.then(|| element("readonly")))
        .child(text("serial", &disk.serial))
        .children(disk.boots.then(|| element("boot").with("order", 1)))
        .child(disk.target.address())
}

fn driver(disk: &Disk) -> Element {
    let tuning = Tuning::of(disk);
    let cache = match tuning.cache {
        Cache::None => "none",
        Cache::Writeback => "writeback",
    };
    let io = tuning.io.map(|io| match io {
        Io::Native => "native",
        Io::Threads => "threads",
    });
    element("driver")
        .with("name", "qemu")
        .with("type", disk.format.name())
        .with("cache", cache)
        .with_some("io", io)
        .with_some("discard", tuning.discard.then_some("unmap"))
}

fn auth(source: &DiskSource) -> Option<Element> {
    let DiskSource::Rbd {
        auth: Some(auth), ..
    } = source
    else {
        return None;
    };
    let secret = element("secret")
        .with("type", "ceph")
        .with("uuid", auth.secret);
    Some(element("auth").with("username", &auth.user).child(secret))
}

fn source(source: &DiskSource) -> Element {
    match source {
        // libvirt relabels nothing: rights on our files are set by us.
        DiskSource::File { path, .. } => element("source").with("file", path).child(no_relabel()),
        DiskSource::Block { path, slice } => {
            let slices = slice.map(|slice| {
                element("slices").child(
                    element("slice")
                        .with("type", "storage")
                        .with("offset", slice.offset)
                        .with("size", slice.size),
                )
            });
            element("source")
                .with("dev", path)
                .child(no_relabel())
                .children(slices)
        }
        DiskSource::Rbd {
            pool,
            image,
            monitors,
            ..
        } => element("source")
            .with("protocol", "rbd")
            .with("name", format!("{pool}/{image}"))
            .children(
                monitors
                    .iter()
                    .map(|(host, port)| element("host").with("name", host).with("port", port)),
            ),
    }
}

fn no_relabel() -> Element {
    element(LABEL).with("model", "dac").with("relabel", "no")
}

/// The whole chain, ended by an empty element.
fn backing_store(source: &DiskSource) -> Element {
    let files: &[BackingFile] = match source {
        DiskSource::File { backing, .. } => backing,
        _ => &[],
    };
    files
        .iter()
        .rev()
        .fold(element("backingStore"), |below, file| {
            element("backingStore")
                .with("type", "file")
                .child(element("format").with("type", file.format.name()))
                .child(
                    element("source")
                        .with("file", &file.path)
                        .child(no_relabel()),
                )
                .child(below)
        })
}

fn cpu(cpu: &Cpu) -> Option<Element> {
    match cpu {
        Cpu::Model(CpuModel::Default) => None,
        Cpu::Model(CpuModel::HostModel) => Some(element("cpu").with("mode", "host-model")),
        Cpu::Setting(setting) => Some(cpu_setting(setting)),
    }
}

fn cpu_setting(cpu: &CpuSetting) -> Element {
    let model = cpu
        .model
        .as_ref()
        .map(|model| text("model", model).with_some("fallback", cpu.fallback.as_ref()));
    let topology = cpu.topology.map(|[sockets, cores, threads]| {
        element("topology")
            .with("sockets", sockets)
            .with("cores", cores)
            .with("threads", threads)
    });
    element("cpu")
        .with_some("mode", cpu.mode.as_ref())
        .with_some("match", cpu.matching.as_ref())
        .with_some("check", cpu.check.as_ref())
        .children(model)
        .children(cpu.vendor.as_ref().map(|vendor| text("vendor", vendor)))
        .children(topology)
        .children(cpu.features.iter().map(|feature| {
            element("feature")
                .with("policy", &feature.policy)
                .with("name", &feature.name)
        }))
}
