//! Answers of containers that nobody has asked for.

use crate::diag::{Diagnostic, Diagnostics};
use crate::facts::Facts;
use crate::manifest::{DiskSource, Objects, VmObject};
use crate::plan::Plan;

/// An answer for no disk has no effect, and is a slip if its VM is there. VMs
/// that were refused may have had the disk.
pub(in crate::resolve) fn refuse_idle_answers(
    objects: &Objects,
    facts: &Facts,
    planned: &[(&VmObject, Plan)],
    diags: &mut Diagnostics,
) {
    let known: Vec<_> = planned
        .iter()
        .flat_map(|(vm, plan)| asked_disks(vm, plan))
        .collect();
    for (disk, answer) in &facts.answers {
        if known.contains(disk) {
            continue;
        }
        let is_of = |name: &str| disk.rsplit_once('/').is_some_and(|(vm, _)| vm == name);
        let of_vm = |vm: &VmObject| is_of(&format!("{}/{}", vm.meta.namespace, vm.meta.name));
        if planned.iter().any(|(vm, _)| of_vm(vm)) {
            let own = known
                .iter()
                .filter(|known| known.rsplit_once('/').is_some_and(|(vm, _)| is_of(vm)));
            let own: Vec<_> = own.map(String::as_str).collect();
            diags.push(
                Diagnostic::error(
                    &answer.place,
                    "the VM has no such disk that a container makes",
                )
                .found(format!("{disk:?}"))
                .allowed(match own.is_empty() {
                    true => "none: its disks have other sources".to_owned(),
                    false => own.join(", "),
                })
                .did_you_mean(disk, own.iter().copied()),
            );
        } else if !objects.vms.iter().any(of_vm) {
            diags.push(
                Diagnostic::notice(&answer.place, "an answer for a VM that is not in the input")
                    .found(format!("{disk:?}"))
                    .help("give the VM with -f as well, or correct its name"),
            );
        }
    }
}

/// The disks of a VM that containers make, as answers name them.
fn asked_disks(vm: &VmObject, plan: &Plan) -> Vec<String> {
    let is_asked = |index: usize| {
        let source = vm.disks.get(index).and_then(|spec| spec.source.as_ref());
        source.is_some_and(|source| matches!(source.value, DiskSource::Container(_)))
    };
    let disks = plan.disks.iter();
    let asked = disks.filter(|disk| disk.origin.is_some_and(is_asked));
    let name = plan.full_name();
    asked.map(|disk| format!("{name}/{}", disk.name)).collect()
}
