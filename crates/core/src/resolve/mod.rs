//! From what users wrote, and what is known of the node, to plans.
//!
//! Every refusal of user input happens here or in reading the manifests; what
//! is built from the result cannot fail.

mod claims;
mod cloud_init;
mod devices;
mod disks;
mod environment;
mod files;
mod keys;
mod missing;
mod servers;
mod sharing;
mod unseen;
mod user_data;
mod vm;

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use claims::unbound_claims;
pub(crate) use claims::{Bindings, candidates};
pub use missing::Reference;
pub use unseen::Unseen;
pub(crate) use vm::{Opener, opener};

use crate::config::{Config, HypervisorChoice};
use crate::diag::{Diagnostic, Diagnostics, Place, nearest};
use crate::domain::{Cpu, Firmware, Hypervisor, Interface, InterfaceModel};
use crate::facts::{DeviceNumber, Facts};
use crate::manifest::{DataObject, DataRef, Key, Meta, ObjectKind, Objects, VmPod};
use crate::names::{Namespace, ObjectName};
use crate::plan::{Draft, Launcher, Plan, PlannedDisk, Purpose};
use crate::yaml::Spanned;
use missing::Missing;
use sharing::{User, refuse_two_users};

/// Our namespace for name-based UUIDs.
const NAMESPACE: Uuid = Uuid::from_u128(0x7d0a_2c5e_93b1_4f66_8e0b_5a4c_61d9_f217);

/// Plans every VM of the input; those with errors are left out.
pub fn resolve(
    objects: &Objects,
    config: &Config,
    facts: &Facts,
    diags: &mut Diagnostics,
) -> Vec<Plan> {
    resolve_asking(objects, config, facts, diags).plans
}

/// What came of a resolution.
#[derive(Debug)]
pub struct Resolution {
    /// The plans.
    pub plans: Vec<Plan>,
    /// What was looked for and is not in the input.
    pub missing: BTreeSet<Reference>,
}

/// The same, and what else should be in the input.
pub fn resolve_asking(
    objects: &Objects,
    config: &Config,
    facts: &Facts,
    diags: &mut Diagnostics,
) -> Resolution {
    resolve_seeing(objects, config, facts, &Unseen::default(), diags)
}

/// The same for whoever does not see everything.
pub fn resolve_seeing(
    objects: &Objects,
    config: &Config,
    facts: &Facts,
    unseen: &Unseen,
    diags: &mut Diagnostics,
) -> Resolution {
    let resolver = Resolver {
        objects,
        config,
        facts,
        unseen,
        missing: Missing::default(),
        bindings: Bindings::of(objects),
        allowed_devices: facts.allowed_devices(config),
    };
    refuse_uuid_twice(objects, diags);
    let pods: Vec<_> = objects
        .vm_pods
        .iter()
        .filter_map(|pod| Some((pod, resolver.plan(pod, diags)?)))
        .collect();
    let vms: Vec<_> = objects
        .vms
        .iter()
        .filter_map(|vm| Some((vm, resolver.vm_plan(vm, diags)?)))
        .collect();
    let of_pods = pods
        .iter()
        .flat_map(|(pod, plan)| plan.disks.iter().map(|disk| User::of_pod(pod, disk)));
    let of_vms = vms.iter().flat_map(|(vm, plan)| vm::users(vm, &plan.disks));
    refuse_two_users(of_pods.chain(of_vms), diags);
    vm::refuse_idle_answers(objects, facts, &vms, diags);
    let pods = pods.into_iter().map(|(_, plan)| plan);
    Resolution {
        plans: pods.chain(vms.into_iter().map(|(_, plan)| plan)).collect(),
        missing: resolver.missing.into_set(),
    }
}

/// A VM, for telling it from others.
#[derive(Clone, Copy)]
struct Machine<'m> {
    kind: &'static str,
    meta: &'m Meta,
    /// The UUID that its author chose.
    chosen: Option<&'m Spanned<Uuid>>,
}

impl Machine<'_> {
    fn uuid(&self) -> Uuid {
        domain_uuid(self.meta, self.chosen)
    }
}

/// Two VMs of one UUID would be one domain with one set of volumes.
fn refuse_uuid_twice(objects: &Objects, diags: &mut Diagnostics) {
    let pods = objects.vm_pods.iter().filter(|pod| !pod.refused);
    let pods = pods.map(|pod| Machine {
        kind: "pod",
        meta: &pod.meta,
        chosen: pod.annotations.system_uuid.as_ref(),
    });
    let vms = objects.vms.iter().filter(|vm| !vm.refused);
    let vms = vms.map(|vm| Machine {
        kind: "VM",
        meta: &vm.meta,
        chosen: vm.firmware.uuid.as_ref(),
    });
    let mut seen: BTreeMap<Uuid, Machine<'_>> = BTreeMap::new();
    for machine in pods.chain(vms) {
        let uuid = machine.uuid();
        if let Some(first) = seen.insert(uuid, machine) {
            diags.push(one_uuid(uuid, first, machine));
        }
    }
}

/// Who has chosen a UUID can choose another; else it comes from the UIDs.
fn one_uuid(uuid: Uuid, first: Machine<'_>, second: Machine<'_>) -> Diagnostic {
    for (chooser, other) in [(second, first), (first, second)] {
        if let Some(chosen) = chooser.chosen {
            let field = match chooser.kind {
                "pod" => "VirtletSystemUUID",
                _ => "firmware.uuid",
            };
            return Diagnostic::error(&chosen.place, "two VMs cannot have one UUID")
                .found(format!(
                    "{uuid}, which {} {} has too",
                    other.kind, other.meta.name
                ))
                .help(format!("choose another {field} for one of the two"));
        }
    }
    let mut place = second.meta.place.clone();
    place.path = place.path.key("metadata").key("uid");
    let uid = second.meta.uid.as_deref().unwrap_or_default();
    Diagnostic::error(&place, format!("two {}s cannot have one UID", second.kind))
        .found(format!(
            "{uid}, which {} {} has too",
            first.kind, first.meta.name
        ))
        .help(format!(
            "remove the uid of a {} that is not in the cluster: the API server gives it one",
            second.kind
        ))
}

/// What all VMs of one resolution share.
struct Resolver<'r> {
    objects: &'r Objects,
    config: &'r Config,
    facts: &'r Facts,
    unseen: &'r Unseen,
    missing: Missing,
    bindings: Bindings,
    allowed_devices: BTreeSet<DeviceNumber>,
}

impl Resolver<'_> {
    fn plan(&self, pod: &VmPod, diags: &mut Diagnostics) -> Option<Plan> {
        let errors_before = diags.errors();
        let uuid = domain_uuid(&pod.meta, pod.annotations.system_uuid.as_ref());
        let launcher = self.facts.launchers.get(&pod.meta.key());
        let mut disks = self.disks(pod, uuid, diags);
        let mac = mac_address(uuid);
        let cloud_init = self.cloud_init(pod, uuid, &disks, &mac, diags);
        if pod.refused || diags.errors() > errors_before {
            return None;
        }
        if !cloud_init.user_data.mounts_disks() {
            for disk in &mut disks {
                disk.mounts.clear();
                disk.link = None;
            }
        }
        let annotations = &pod.annotations;
        let cpu = match &annotations.cpu_setting {
            Some(setting) => Cpu::Setting(setting.value.clone()),
            None => Cpu::Model(annotations.cpu_model.unwrap_or(self.config.cpu_model)),
        };
        let memory = pod.container.memory.as_ref();
        let sizes = disks.iter().filter_map(PlannedDisk::known_later);
        let known_later = sizes.chain(cloud_init.known_later()).collect();
        let draft = Draft {
            namespace: pod.meta.namespace.clone(),
            name: pod.meta.name.clone(),
            suffix: pod.container.name.to_string(),
            uuid,
            memory: memory.map_or(self.config.default_memory, |memory| memory.value),
            vcpus: annotations.vcpus.unwrap_or(1),
            cpu,
            hypervisor: self.hypervisor(),
            firmware: Firmware::Bios,
            interfaces: vec![Interface {
                mac,
                model: InterfaceModel::Virtio,
            }],
            purpose: Purpose::Domain,
            running: true,
            launcher: launcher.cloned().map(|pod| Launcher { pod }),
            disks,
            cloud_init: Some(cloud_init.build()),
            known_later,
        };
        Some(draft.build(self.config))
    }

    fn hypervisor(&self) -> Option<Hypervisor> {
        match self.config.hypervisor {
            HypervisorChoice::Auto => None,
            HypervisorChoice::Fixed(hypervisor) => Some(hypervisor),
        }
    }

    /// A ConfigMap or Secret of a namespace; a missing one is an error that
    /// names it.
    fn data_object(
        &self,
        namespace: &Namespace,
        wanted: &DataRef,
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<&DataObject> {
        let found = self.find_data(namespace, wanted.kind, &wanted.name);
        let key = (namespace.clone(), wanted.name.clone());
        let kind = wanted.kind.name();
        let is_told = self.objects.was_refused(kind, &key) || self.hides_data(namespace, wanted);
        if found.is_none() && !is_told {
            diags.push(
                Diagnostic::error(
                    place,
                    format!(
                        "the {kind} {} is missing in namespace {namespace}",
                        wanted.name
                    ),
                )
                .help(match wanted.kind {
                    ObjectKind::ConfigMap => {
                        missing_help(kind, &key, self.objects.config_maps.keys())
                    }
                    ObjectKind::Secret => missing_help(kind, &key, self.objects.secrets.keys()),
                }),
            );
        }
        found
    }

    fn find_data(
        &self,
        namespace: &Namespace,
        kind: ObjectKind,
        name: &ObjectName,
    ) -> Option<&DataObject> {
        let key = (namespace.clone(), name.clone());
        let found = match kind {
            ObjectKind::ConfigMap => self.objects.config_maps.get(&key),
            ObjectKind::Secret => self.objects.secrets.get(&key),
        };
        self.missing.note(found, || Reference::data(kind, key))
    }
}

/// What to do about an object that is missing: perhaps it is there under a
/// similar name, or elsewhere.
fn missing_help<'k>(
    kind: &str,
    (namespace, name): &Key,
    known: impl Iterator<Item = &'k Key> + Clone,
) -> String {
    let here = known.clone().filter(|(other, _)| other == namespace);
    if let Some(near) = nearest(name.as_str(), here.map(|(_, name)| name.as_str())) {
        return format!("did you mean {near:?}?");
    }
    let mut elsewhere = known.filter(|(_, other)| other == name);
    match elsewhere.next() {
        Some((other, _)) => {
            format!("there is one in namespace {other}; a VM uses those of its own")
        }
        None => format!("give the {kind} with -f as well, or correct its name"),
    }
}

/// The one that was chosen, else one made of the object's UID; what comes from
/// a file has none yet, so there its namespace and name stand in.
fn domain_uuid(meta: &Meta, chosen: Option<&Spanned<Uuid>>) -> Uuid {
    if let Some(uuid) = chosen {
        return uuid.value;
    }
    let name = match &meta.uid {
        Some(uid) => uid.clone(),
        None => format!("{}/{}", meta.namespace, meta.name),
    };
    Uuid::new_v5(&NAMESPACE, name.as_bytes())
}

/// A UUID for something that belongs to a domain.
fn derived_uuid(domain: Uuid, what: &str) -> Uuid {
    Uuid::new_v5(&domain, what.as_bytes())
}

/// In QEMU's range, and the same at every start.
fn mac_address(domain: Uuid) -> String {
    let hash = Sha256::digest(domain.as_bytes());
    format!("52:54:00:{:02x}:{:02x}:{:02x}", hash[0], hash[1], hash[2])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Input;

    fn uuid_of(metadata: &str) -> String {
        let input = Input {
            name: "vm.yaml".into(),
            text: format!(
                "{{apiVersion: disklet.io/v1alpha1, kind: VM, metadata: {{{metadata}}}, spec: {{domain: {{}}}}}}"
            ),
        };
        let (mut objects, mut diags) = (Objects::default(), Diagnostics::default());
        let namespace = Namespace::parse("default").unwrap();
        objects.read(&input, &namespace, &mut diags);
        let told = diags.into_sorted();
        assert!(told.is_empty(), "{told:?}");
        domain_uuid(&objects.vms[0].meta, None).to_string()
    }

    /// Domains keep their UUIDs, so these never change.
    #[test]
    fn a_uid_is_any_text_and_gives_one_uuid() {
        for (metadata, uuid) in [
            ("name: vm, uid: xx", "585efadf-0a11-596b-afa2-e9069edc02f5"),
            (
                "name: other, namespace: elsewhere, uid: xx",
                "585efadf-0a11-596b-afa2-e9069edc02f5",
            ),
            ("name: vm, uid: XX", "cf1fe216-4e3a-5e24-bf62-a9ea390496ca"),
            ("name: vm", "39cd8d01-0e1b-5670-a67a-68d8b7eb7a69"),
        ] {
            assert_eq!(uuid_of(metadata), uuid, "{metadata}");
        }
    }
}
