//! The machine of a VM object: memory, CPU, firmware, network.

use uuid::Uuid;

use crate::diag::{Diagnostic, Diagnostics};
use crate::domain::InterfaceModel;
use crate::manifest::annotations::system_uuid;
use crate::manifest::resources::parse_memory;
use crate::manifest::{CpuModel, CpuSetting};
use crate::names::VolumeName;
use crate::units::ByteSize;
use crate::yaml::{Fields, Spanned, Value, View};

use super::super::meta::parse_name;
use super::pod::GuestPorts;
use super::words::{number, word};

/// The guest's CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmCpu {
    /// How many there are.
    pub count: u32,
    /// How they are arranged and named, if the VM says so.
    pub setting: Option<CpuSetting>,
    /// The model; absent: the node's.
    pub model: Option<CpuModel>,
}

/// What it boots with.
#[derive(Debug, Clone, Default)]
pub struct FirmwareSpec {
    /// UEFI instead of a BIOS.
    pub uefi: bool,
    /// The machine's UUID.
    pub uuid: Option<Spanned<Uuid>>,
}

/// A network interface.
#[derive(Debug, Clone)]
pub struct InterfaceSpec {
    /// Its hardware address; absent: made of the VM's UUID.
    pub mac: Option<Spanned<String>>,
    /// What the guest sees it as.
    pub model: InterfaceModel,
    /// Where the guest is reached; absent: at the usual ports.
    pub ports: Option<GuestPorts>,
}

/// `memory: 1Gi`, or libvirt's `{value: 64, unit: MiB}`.
pub(super) fn read_memory(
    domain: &mut Fields<'_>,
    diags: &mut Diagnostics,
) -> Option<Spanned<ByteSize>> {
    let view = domain.get("memory")?;
    let Value::Map(_) = view.node.value else {
        return parse_memory(view.scalar_text(diags)?, &view.place, diags);
    };
    let mut fields = view.fields(diags)?;
    let value = fields
        .required("value", diags)
        .and_then(|view| view.int(diags));
    let units = [
        ("KiB", "Ki"),
        ("MiB", "Mi"),
        ("GiB", "Gi"),
        ("TiB", "Ti"),
        ("KB", "k"),
        ("MB", "M"),
        ("GB", "G"),
        ("TB", "T"),
        ("bytes", ""),
    ];
    let unit = match fields.get("unit") {
        Some(view) => word(&view, "a unit of memory", &units, diags).map(|unit| unit.value),
        // As libvirt counts.
        None => Some("Ki"),
    };
    fields.no_others(&["value", "unit"], diags);
    parse_memory(&format!("{}{}", value?, unit?), &view.place, diags)
}

/// `cpu: 2`, or `{cores, sockets, threads, model}`.
pub(super) fn read_cpu(domain: &mut Fields<'_>, diags: &mut Diagnostics) -> VmCpu {
    let mut cpu = VmCpu {
        count: 1,
        setting: None,
        model: None,
    };
    let Some(view) = domain.get("cpu") else {
        return cpu;
    };
    let Value::Map(_) = view.node.value else {
        let count = number(&view, "a number of virtual CPUs", 1..=255, diags);
        cpu.count = count.map_or(1, |count| count.value);
        return cpu;
    };
    let Some(mut fields) = view.fields(diags) else {
        return cpu;
    };
    let [sockets, cores, threads] = ["sockets", "cores", "threads"].map(|key| {
        let count = fields.get(key)?;
        number(&count, "a number of CPUs", 1..=255, diags).map(|count| count.value)
    });
    let models = [
        ("default", CpuModel::Default),
        ("host-model", CpuModel::HostModel),
    ];
    cpu.model = fields
        .get("model")
        .and_then(|view| word(&view, "a CPU model", &models, diags))
        .map(|model| model.value);
    fields.no_others(&["sockets", "cores", "threads", "model"], diags);
    if [sockets, cores, threads].iter().any(Option::is_some) {
        let topology = [sockets, cores, threads].map(|count| count.unwrap_or(1));
        cpu.count = topology.iter().product();
        if cpu.count > 255 {
            diags.push(
                Diagnostic::error(&view.place, "more virtual CPUs than a VM can have")
                    .found(format!("{} by sockets, cores and threads", cpu.count))
                    .allowed("1 to 255"),
            );
        }
        cpu.setting = Some(CpuSetting {
            mode: (cpu.model == Some(CpuModel::HostModel)).then(|| "host-model".to_owned()),
            topology: Some(topology),
            ..CpuSetting::default()
        });
    }
    cpu
}

/// `firmware: {type: uefi, uuid: …}`.
pub(super) fn read_firmware(domain: &mut Fields<'_>, diags: &mut Diagnostics) -> FirmwareSpec {
    let mut firmware = FirmwareSpec::default();
    let Some(mut fields) = domain.fields("firmware", diags) else {
        return firmware;
    };
    if let Some(view) = fields.get("type") {
        let kinds = [("bios", false), ("uefi", true), ("efi", true)];
        let kind = word(&view, "a kind of firmware", &kinds, diags);
        firmware.uefi = kind.is_some_and(|kind| kind.value);
    }
    firmware.uuid = fields
        .spanned_text("uuid", diags)
        .and_then(|text| system_uuid(&text, diags));
    fields.no_others(&["type", "uuid"], diags);
    firmware
}

/// All are on the pod's network, so there is one at most.
pub(super) fn read_interfaces(view: &View<'_>, diags: &mut Diagnostics) -> Vec<InterfaceSpec> {
    let items = view.items(diags);
    if let Some(second) = items.get(1) {
        diags.push(
            Diagnostic::error(&second.place, "a VM has one network: the pod's")
                .found(format!("{} interfaces", items.len()))
                .help("remove the others; interfaces: [] is a VM without a network"),
        );
    }
    items
        .iter()
        .filter_map(|item| read_interface(item, diags))
        .collect()
}

fn read_interface(view: &View<'_>, diags: &mut Diagnostics) -> Option<InterfaceSpec> {
    let mut fields = view.fields(diags)?;
    fields
        .spanned_text("name", diags)
        .and_then(|name| parse_name(name, VolumeName::parse, diags));
    if let Some(view) = fields.get("network") {
        word(&view, "a network", &[("pod", ())], diags);
    }
    let models = [
        ("virtio", InterfaceModel::Virtio),
        ("e1000", InterfaceModel::E1000),
    ];
    let model = fields
        .get("model")
        .and_then(|view| word(&view, "a model of interface", &models, diags));
    let mac = fields.spanned_text("mac", diags);
    let ports = fields
        .get("ports")
        .map(|view| GuestPorts::read(&view, diags));
    fields.no_others(&["name", "network", "model", "mac", "ports"], diags);
    Some(InterfaceSpec {
        mac: mac.and_then(|mac| check_mac(mac, diags)),
        model: model.map_or(InterfaceModel::default(), |model| model.value),
        ports,
    })
}

/// Six bytes, not of a group.
fn check_mac(mac: Spanned<String>, diags: &mut Diagnostics) -> Option<Spanned<String>> {
    let parts: Vec<_> = mac.value.split(':').collect();
    let byte = |part: &&str| match part.len() {
        2 => u8::from_str_radix(part, 16).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = parts.iter().map(byte).collect();
    let valid = bytes.is_some_and(|bytes| {
        bytes.len() == 6 && bytes[0] & 1 == 0 && bytes.iter().any(|byte| *byte != 0)
    });
    if !valid {
        diags.push(
            Diagnostic::error(&mac.place, "not a hardware address of an interface")
                .found(format!("{:?}", mac.value))
                .allowed("six bytes, the first one even, such as \"52:54:00:12:34:56\""),
        );
        return None;
    }
    Some(mac.map(|mac| mac.to_ascii_lowercase()))
}
