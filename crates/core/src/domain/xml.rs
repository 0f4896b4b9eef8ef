//! A domain's XML.

use super::element::{Element, element, text};
use super::target::{BALLOON_SLOT, Bus, ENTROPY_SLOT, SATA_SLOT, SCSI_SLOT, pci};
use super::{Auth, Cpu, DeviceKind, Disk, Domain, Hypervisor, Io, Layer, Location};
use crate::manifest::{CpuModel, CpuSetting};
use crate::source::{Nbd, NbdServer, Network};

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

    /// One disk for libvirt.
    #[must_use]
    pub fn disk_xml(&self, it: &Disk) -> String {
        disk(it, self.ceph_config.as_deref()).render()
    }

    /// One disk for a user's own libvirt.
    #[must_use]
    pub fn session_disk_xml(&self, it: &Disk) -> String {
        disk(it, self.ceph_config.as_deref())
            .without(LABEL)
            .render()
    }

    fn element(&self) -> Element {
        let hypervisor = match self.hypervisor {
            Hypervisor::Kvm => "kvm",
            Hypervisor::Qemu => "qemu",
        };
        element("domain")
            .with("type", hypervisor)
            .with_some("xmlns:qemu", self.command_line_namespace())
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
            .child(self.os())
            .child(element("features").child(element("acpi")))
            .children(cpu(&self.cpu))
            .child(element("clock").with("offset", "utc"))
            .child(text("on_poweroff", "destroy"))
            .child(text("on_reboot", "restart"))
            .child(text("on_crash", "destroy"))
            .child(self.devices())
            .children(self.command_line())
    }

    fn os(&self) -> Element {
        let machine = text("type", "hvm")
            .with("arch", "x86_64")
            .with("machine", "pc");
        element("os")
            .child(machine)
            .children(self.firmware.elements())
            .child(element("smbios").with("mode", "sysinfo"))
    }

    fn metadata(&self) -> Element {
        element("metadata").child(
            element("disklet:vm")
                .with("xmlns:disklet", XMLNS)
                .with("namespace", &self.owner.namespace)
                .with("name", &self.owner.name),
        )
    }

    /// Only where a disk hangs on it: `pc` has none of its own.
    fn sata_controller(&self) -> Option<Element> {
        let used = self.disks.iter().any(|disk| disk.target.bus() == Bus::Sata);
        used.then(|| {
            element("controller")
                .with("type", "sata")
                .with("index", 0)
                .child(pci(SATA_SLOT))
        })
    }

    fn devices(&self) -> Element {
        element("devices")
            .child(text("emulator", &self.emulator))
            .children(
                self.disks
                    .iter()
                    .map(|it| disk(it, self.ceph_config.as_deref())),
            )
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
            .children(self.sata_controller())
            .children(self.interface_elements())
            .children(self.serial_elements())
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

fn disk(disk: &Disk, ceph_config: Option<&str>) -> Element {
    element("disk")
        .with("type", kind(&disk.top.at))
        .with("device", disk.device.name())
        .child(driver(disk))
        .child(source(&disk.top.at, ceph_config))
        .child(backing_store(&disk.below, ceph_config))
        .child(
            element("target")
                .with("dev", disk.target.name())
                .with("bus", disk.target.bus().name()),
        )
        .children(disk.limits.element())
        .children(disk.read_only.then(|| element("readonly")))
        .children(disk.shareable.then(|| element("shareable")))
        .children(serial(disk))
        .children(disk.boot.map(|turn| element("boot").with("order", turn)))
        .child(disk.target.address())
}

/// A unit shows its own serial number.
fn serial(disk: &Disk) -> Option<Element> {
    (disk.device != DeviceKind::Lun).then(|| text("serial", &disk.serial))
}

fn kind(at: &Location) -> &'static str {
    match at {
        Location::File(_) => "file",
        Location::Block { .. } => "block",
        Location::Network { .. } => "network",
    }
}

fn driver(disk: &Disk) -> Element {
    let tuning = disk.tuning;
    element("driver")
        .with("name", "qemu")
        .with("type", disk.top.format.name())
        .with("cache", tuning.cache.name())
        .with_some("io", tuning.io.map(Io::name))
        .with_some("discard", tuning.discard.then_some("unmap"))
        .with_some("copy_on_read", disk.copy_on_read.then_some("on"))
}

/// The length of a slice that is known on the node: libvirt wants one that is not
/// zero, and nobody takes a disk of a byte for an answer.
const UNKNOWN_SLICE: u64 = 1;

fn source(at: &Location, ceph_config: Option<&str>) -> Element {
    match at {
        // libvirt relabels nothing: rights on our files are set by us.
        Location::File(path) => element("source").with("file", path).child(no_relabel()),
        Location::Block { path, slice } => {
            let slices = slice.map(|slice| {
                element("slices").child(
                    element("slice")
                        .with("type", "storage")
                        .with("offset", slice.offset)
                        .with("size", slice.size.unwrap_or(UNKNOWN_SLICE)),
                )
            });
            element("source")
                .with("dev", path)
                .child(no_relabel())
                .children(slices)
        }
        Location::Network { network, auth } => {
            let config = match network {
                Network::Rbd(_) => ceph_config.map(|file| element("config").with("file", file)),
                _ => None,
            };
            network_source(network, auth.as_ref()).children(config)
        }
    }
}

/// Who asks stands within the source: below an overlay there is no other place.
fn network_source(network: &Network, auth: Option<&Auth>) -> Element {
    let name = Some(network.name()).filter(|name| !name.is_empty());
    // Unset would mean what qemu.conf says.
    let tls = match network {
        Network::Nbd(nbd) => Some(if nbd.tls { "yes" } else { "no" }),
        _ => None,
    };
    let hosts = network.endpoints().iter().map(|endpoint| {
        element("host")
            .with("name", endpoint.host())
            .with("port", endpoint.port())
    });
    let socket = match network {
        Network::Nbd(Nbd {
            server: NbdServer::Unix(path),
            ..
        }) => Some(
            element("host")
                .with("transport", "unix")
                .with("socket", path),
        ),
        _ => None,
    };
    let initiator = match network {
        Network::Iscsi(unit) => unit.initiator.as_ref(),
        _ => None,
    };
    let initiator =
        initiator.map(|name| element("initiator").child(element("iqn").with("name", name)));
    element("source")
        .with("protocol", network.protocol())
        .with_some("name", name)
        .with_some("tls", tls)
        .children(hosts)
        .children(socket)
        .children(auth.map(auth_element))
        .children(initiator)
}

fn auth_element(auth: &Auth) -> Element {
    let secret = element("secret")
        .with("type", auth.kind.name())
        .with("uuid", auth.secret);
    element("auth").with("username", &auth.user).child(secret)
}

pub(super) fn no_relabel() -> Element {
    element(LABEL).with("model", "dac").with("relabel", "no")
}

/// The whole chain, ended by an empty element.
fn backing_store(layers: &[Layer], ceph_config: Option<&str>) -> Element {
    layers
        .iter()
        .rev()
        .fold(element("backingStore"), |below, layer| {
            element("backingStore")
                .with("type", kind(&layer.at))
                .child(element("format").with("type", layer.format.name()))
                .child(source(&layer.at, ceph_config))
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
