//! A disk of a VM object, as it is written.

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::domain::{Bus, Cache, DeviceKind, Format, Io, IoLimits, Serial};
use crate::manifest::meta::parse_name;
use crate::names::{PoolName, VolumeName};
use crate::plan::{Access, CopyMode};
use crate::units::ByteSize;
use crate::yaml::{Fields, Spanned, View};

use super::source::DiskSource;
use super::words::{either, number, word};

/// A disk. What is absent has its default when it is resolved.
#[derive(Debug, Clone)]
pub struct DiskSpec {
    /// Where it stands.
    pub place: Place,
    /// Its name in the VM; by default the name of its target.
    pub name: Option<Spanned<VolumeName>>,
    /// Where its bytes come from; absent if that was refused.
    pub source: Option<Spanned<DiskSource>>,
    /// Who opens a claim.
    pub driver: Option<Spanned<ClaimDriver>>,
    /// What it hangs on.
    pub bus: Option<Spanned<Bus>>,
    /// Its name there, such as `sda`.
    pub target: Option<Spanned<String>>,
    /// What the guest sees it as.
    pub device: Option<Spanned<DeviceKind>>,
    /// The master's format.
    pub format: Option<Spanned<Format>>,
    /// Its turn when the guest looks for something to boot.
    pub boot_order: Option<Spanned<u32>>,
    /// What the guest knows it by.
    pub serial: Option<Spanned<Serial>>,
    /// Caching.
    pub cache: Option<Spanned<Cache>>,
    /// How requests reach the kernel.
    pub io: Option<Spanned<Io>>,
    /// How much of it the guest may use in a second.
    pub limits: IoLimits,
    /// Who may use the master at the same time.
    pub access: Option<Spanned<Access>>,
    /// How it is copied.
    pub copy: Option<CopySpec>,
}

/// Who opens a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimDriver {
    /// QEMU, by its network drivers.
    Qemu,
    /// The kubelet, which mounts or maps it.
    Kubelet,
}

/// How a disk is copied.
#[derive(Debug, Clone)]
pub struct CopySpec {
    /// The mode.
    pub mode: Spanned<CopyMode>,
    /// Where the copy goes.
    pub usage: Option<Spanned<PoolName>>,
    /// How large it is at least.
    pub size: Option<Spanned<ByteSize>>,
}

const FIELDS: [&str; 15] = [
    "name",
    "type",
    "source",
    "driver",
    "target",
    "device",
    "format",
    "bootOrder",
    "serial",
    "cache",
    "io",
    "iotune",
    "access-mode",
    "copy",
    "boot-order",
];

impl DiskSpec {
    pub(in crate::manifest) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let name = fields
            .spanned_text("name", diags)
            .and_then(|text| parse_name(text, VolumeName::parse, diags));
        let source = read_source(&mut fields, diags);
        let driver = read_driver(&mut fields, diags);
        let (bus, target) = read_target(&mut fields, diags);
        let device = fields
            .get("device")
            .and_then(|view| word(&view, "a kind of disk", &DEVICES, diags));
        let format = fields
            .get("format")
            .and_then(|view| word(&view, "a format that a disk can have", &FORMATS, diags));
        let boot_order = either(&mut fields, "boot-order", "bootOrder", diags)
            .and_then(|view| number(&view, "a turn", 1..=1000, diags));
        let serial = read_serial(&mut fields, diags);
        let caches = Cache::ALL.map(|cache| (cache.name(), cache));
        let cache = fields
            .get("cache")
            .and_then(|view| word(&view, "a cache mode", &caches, diags));
        let modes = Io::ALL.map(|io| (io.name(), io));
        let io = fields
            .get("io")
            .and_then(|view| word(&view, "a way of requests", &modes, diags));
        let limits = fields.fields("iotune", diags);
        let limits = limits.map_or_else(IoLimits::default, |limits| read_limits(limits, diags));
        let access = either(&mut fields, "access-mode", "accessMode", diags)
            .and_then(|view| word(&view, "an access mode", &ACCESS, diags));
        let copy = fields
            .get("copy")
            .and_then(|view| CopySpec::read(&view, diags));
        fields.no_others(&FIELDS, diags);
        Some(Self {
            place: view.place.clone(),
            name,
            source,
            driver,
            bus,
            target,
            device,
            format,
            boot_order,
            serial,
            cache,
            io,
            limits,
            access,
            copy,
        })
    }
}

const DEVICES: [(&str, DeviceKind); 3] = [
    ("disk", DeviceKind::Disk),
    ("cdrom", DeviceKind::Cdrom),
    ("lun", DeviceKind::Lun),
];
const FORMATS: [(&str, Format); 2] = [("raw", Format::Raw), ("qcow2", Format::Qcow2)];
const ACCESS: [(&str, Access); 4] = [
    ("write-exclusive", Access::WriteExclusive),
    ("write-shared", Access::WriteShared),
    ("read-shared", Access::ReadShared),
    ("read-only", Access::ReadShared),
];
const CLAIM: &str = "PersistentVolumeClaim";

fn read_source(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<Spanned<DiskSource>> {
    let typed = fields
        .get("type")
        .map(|view| (view.text(diags), view.place));
    let Some(source) = fields.get("source") else {
        let mut place = fields.place().clone();
        place.path = place.path.key("source");
        diags.push(
            Diagnostic::error(&place, "the disk has no source")
                .allowed("source: {pvc: {claimname: NAME}} and the like"),
        );
        return None;
    };
    match typed {
        None => DiskSource::read(&source, diags),
        Some((Some(CLAIM), _)) => DiskSource::read_typed(&source, diags),
        Some((Some(other), place)) => {
            diags.push(
                Diagnostic::error(&place, "not a type of disk")
                    .found(format!("{other:?}"))
                    .allowed(format!(
                        "{CLAIM}; other sources name their kind under source"
                    ))
                    .did_you_mean(other, [CLAIM]),
            );
            None
        }
        Some((None, _)) => None,
    }
}

fn read_driver(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<Spanned<ClaimDriver>> {
    let mut driver = fields.fields("driver", diags)?;
    let name = driver.required("name", diags);
    driver.no_others(&["name"], diags);
    let name = name?;
    if name.node.as_str() == Some("virtfs") {
        diags.push(
            Diagnostic::error(&name.place, "directories cannot be shared with a VM yet")
                .found("\"virtfs\"")
                .allowed("qemu, kubelet"),
        );
        return None;
    }
    let drivers = [
        ("qemu", ClaimDriver::Qemu),
        ("kubelet", ClaimDriver::Kubelet),
    ];
    word(&name, "a driver", &drivers, diags)
}

/// Bus and name. The name may stand under `target`, as the first documents
/// have it.
fn read_target(
    fields: &mut Fields<'_>,
    diags: &mut Diagnostics,
) -> (Option<Spanned<Bus>>, Option<Spanned<String>>) {
    let Some(mut target) = fields.fields("target", diags) else {
        return (None, None);
    };
    let buses = Bus::ALL.map(|bus| (bus.name(), bus));
    let bus = target
        .get("bus")
        .and_then(|view| word(&view, "a bus", &buses, diags));
    let name = either(&mut target, "target", "device", diags);
    let name = name.and_then(|view| view.spanned_text(diags));
    target.no_others(&["bus", "device", "target"], diags);
    (bus, name)
}

fn read_serial(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<Spanned<Serial>> {
    let view = fields.get("serial")?;
    let text = view.scalar_text(diags)?;
    let serial = Serial::parse(text);
    if serial.is_none() {
        diags.push(
            Diagnostic::error(&view.place, "not a serial number")
                .found(format!("{text:?}"))
                .allowed(Serial::ALLOWED),
        );
    }
    serial.map(|value| Spanned {
        value,
        place: view.place,
    })
}

/// libvirt's names, in kebab-case and in camelCase.
const LIMITS: [(&str, &str); 6] = [
    ("total-bytes-sec", "totalBytesSec"),
    ("read-bytes-sec", "readBytesSec"),
    ("write-bytes-sec", "writeBytesSec"),
    ("total-iops-sec", "totalIopsSec"),
    ("read-iops-sec", "readIopsSec"),
    ("write-iops-sec", "writeIopsSec"),
];

fn read_limits(mut fields: Fields<'_>, diags: &mut Diagnostics) -> IoLimits {
    let [
        total_bytes,
        read_bytes,
        write_bytes,
        total_iops,
        read_iops,
        write_iops,
    ] = LIMITS.map(|(kebab, camel)| {
        let view = either(&mut fields, kebab, camel, diags)?;
        read_limit(&view, diags)
    });
    let known = LIMITS.map(|(kebab, _)| kebab);
    fields.no_others(&known, diags);
    for (total, parts, what) in [
        (total_bytes, [read_bytes, write_bytes], "bytes"),
        (total_iops, [read_iops, write_iops], "requests"),
    ] {
        if total.is_some() && parts.iter().any(Option::is_some) {
            diags.push(
                Diagnostic::error(
                    fields.place(),
                    format!("{what} are limited in total and for reading or writing as well"),
                )
                .help("keep the total, or the two others"),
            );
        }
    }
    IoLimits {
        total_bytes_sec: total_bytes,
        read_bytes_sec: read_bytes,
        write_bytes_sec: write_bytes,
        total_iops_sec: total_iops,
        read_iops_sec: read_iops,
        write_iops_sec: write_iops,
    }
}

/// QEMU takes no more.
const MOST_IN_A_SECOND: u64 = 1_000_000_000_000_000;

fn read_limit(view: &View<'_>, diags: &mut Diagnostics) -> Option<u64> {
    let limit = view.size(diags)?.as_bytes();
    if limit == 0 || limit > MOST_IN_A_SECOND {
        diags.push(
            Diagnostic::error(&view.place, "not a limit for a disk")
                .found(limit)
                .allowed("1 to 10^15 in a second, such as 50Mi; without the field there is none"),
        );
        return None;
    }
    Some(limit)
}

impl CopySpec {
    fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let modes = CopyMode::ALL.map(|mode| (mode.name(), mode));
        let mode = fields
            .required("mode", diags)
            .and_then(|view| word(&view, "a copy mode", &modes, diags));
        let usage = either(&mut fields, "usage-type", "usageType", diags)
            .and_then(|view| view.spanned_text(diags))
            .and_then(|text| parse_name(text, PoolName::parse, diags));
        let size = fields.get("size").and_then(|view| {
            let value = view.size(diags)?;
            let place = view.place.clone();
            Some(Spanned { value, place })
        });
        fields.no_others(&["mode", "usage-type", "size"], diags);
        let mode = mode?;
        if let (CopyMode::None | CopyMode::Clone, Some(size)) = (mode.value, &size) {
            diags.push(
                Diagnostic::error(&size.place, "only an overlay is larger than its master")
                    .found(format!("mode {}", mode.value.name()))
                    .help("choose copy-on-write or copy-on-read of an image, or remove size"),
            );
        }
        if let (CopyMode::None, Some(usage)) = (mode.value, &usage) {
            diags.push(
                Diagnostic::error(&usage.place, "without a copy there is nothing to put there")
                    .help("remove usage-type, or choose a copy mode"),
            );
        }
        Some(Self { mode, usage, size })
    }
}
