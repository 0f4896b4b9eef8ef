//! VM objects: `kind: VM`.
//!
//! The kind is ours, so every field is checked.

mod cloud_init;
mod container;
mod disk;
mod machine;
mod pod;
mod probe;
mod servers;
mod source;
mod words;

pub use cloud_init::{VmCloudInit, VmUserData};
pub use container::ContainerSpec;
pub use disk::{ClaimDriver, CopySpec, DiskSpec};
pub use machine::{FirmwareSpec, InterfaceSpec, VmCpu};
pub use pod::{GuestPorts, RestartPolicy};
pub use probe::{Ask, Probe, Probes};
pub use source::DiskSource;

use crate::diag::{Diagnostic, Diagnostics};
use crate::live::RunningVm;
use crate::names::{Namespace, ObjectName};
use crate::units::ByteSize;
use crate::yaml::{Fields, Spanned, View};

use super::Meta;
use super::meta::required_name;

/// A VM object.
#[derive(Debug, Clone)]
pub struct VmObject {
    /// Who it is.
    pub meta: Meta,
    /// Whether it shall run.
    pub running: bool,
    /// When it is started again.
    pub restart: RestartPolicy,
    /// Seconds that its pod has to end.
    pub grace: u32,
    /// How the kubelet asks whether the guest is well.
    pub probes: Probes,
    /// The guest's memory.
    pub memory: Option<Spanned<ByteSize>>,
    /// The guest's CPU.
    pub cpu: VmCpu,
    /// What it boots with.
    pub firmware: FirmwareSpec,
    /// Its disks, in order.
    pub disks: Vec<DiskSpec>,
    /// Its network interfaces; absent: one.
    pub interfaces: Option<Vec<InterfaceSpec>>,
    /// What the guest is told at boot.
    pub cloud_init: Option<VmCloudInit>,
    /// The identity whose root disk it has.
    pub identity: Option<IdentityRef>,
    /// What it has already, if the disks are to be added to a VM that runs.
    pub present: Option<RunningVm>,
    /// Something in it was refused; it is resolved for further problems, but
    /// no plan comes of it.
    pub(crate) refused: bool,
}

/// A VM identity.
#[derive(Debug, Clone)]
pub struct IdentityRef {
    /// Its set.
    pub set: Spanned<ObjectName>,
    /// Its name.
    pub name: Spanned<ObjectName>,
}

const OBJECT: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];
const SPEC: [&str; 9] = [
    "running",
    "restartPolicy",
    "terminationGracePeriodSeconds",
    "readinessProbe",
    "livenessProbe",
    "startupProbe",
    "domain",
    "cloudInit",
    "identity",
];
const DOMAIN: [&str; 4] = ["memory", "cpu", "firmware", "devices"];
const DEVICES: [&str; 2] = ["disks", "interfaces"];

impl VmObject {
    pub(super) fn read(
        view: &View<'_>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let errors_before = diags.errors();
        let mut object = view.fields(diags)?;
        let meta = Meta::read(view, &mut object, namespace, diags);
        for read_elsewhere in ["apiVersion", "kind", "status"] {
            object.get(read_elsewhere);
        }
        let spec = object.required("spec", diags);
        object.no_others(&OBJECT, diags);
        let mut spec = spec?.fields(diags)?;
        let running = spec.get("running").and_then(|view| view.bool(diags));
        let restart = pod::read_restart(&mut spec, diags);
        let grace = pod::read_grace(&mut spec, diags);
        let probes = Probes::read(&mut spec, diags);
        let identity = spec
            .fields("identity", diags)
            .and_then(|fields| IdentityRef::read(fields, diags));
        let cloud_init = spec
            .get("cloudInit")
            .and_then(|view| VmCloudInit::read(&view, diags));
        let domain = spec.required("domain", diags);
        spec.no_others(&SPEC, diags);
        let mut domain = domain?.fields(diags)?;
        let memory = machine::read_memory(&mut domain, diags);
        let cpu = machine::read_cpu(&mut domain, diags);
        let firmware = machine::read_firmware(&mut domain, diags);
        let devices = domain.fields("devices", diags);
        domain.no_others(&DOMAIN, diags);
        let (disks, interfaces) =
            devices.map_or_else(Default::default, |devices| read_devices(devices, diags));
        if interfaces.as_ref().is_some_and(Vec::is_empty) {
            probes.refuse_without_network(diags);
        }
        Some(Self {
            meta: meta.unwrap_or_else(|| Meta::stand_in(view, namespace)),
            running: running.unwrap_or(true),
            restart,
            grace,
            probes,
            memory,
            cpu,
            firmware,
            disks,
            interfaces,
            cloud_init,
            identity,
            present: None,
            refused: diags.errors() > errors_before,
        })
    }
}

/// All places that there are: `sda` to `sdz`, `vda` to `vdt`. More are not even
/// read, since whoever writes an object of thousands wants to keep us busy.
const MOST_DISKS: usize = 46;

fn read_devices(
    mut devices: Fields<'_>,
    diags: &mut Diagnostics,
) -> (Vec<DiskSpec>, Option<Vec<InterfaceSpec>>) {
    let disks = devices.items("disks", diags);
    if let Some(beyond) = disks.get(MOST_DISKS) {
        diags.push(
            Diagnostic::error(&beyond.place, "too many disks: no bus has a place left")
                .found(format!("{} disks", disks.len()))
                .allowed(format!("{MOST_DISKS} disks of a VM"))
                .help("remove disks, or have some of them in another VM"),
        );
    }
    let disks = disks
        .iter()
        .take(MOST_DISKS)
        .filter_map(|item| DiskSpec::read(item, diags))
        .collect();
    let interfaces = devices
        .get("interfaces")
        .map(|view| machine::read_interfaces(&view, diags));
    devices.no_others(&DEVICES, diags);
    (disks, interfaces)
}

impl IdentityRef {
    fn read(mut fields: Fields<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let set = required_name(&mut fields, "set", ObjectName::parse, diags);
        let name = required_name(&mut fields, "name", ObjectName::parse, diags);
        fields.no_others(&["set", "name"], diags);
        Some(Self {
            set: set?,
            name: name?,
        })
    }
}
