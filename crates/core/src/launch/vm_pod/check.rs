//! What a VM pod of a cluster cannot have, and what files may well say: it means
//! nothing to a VM without a cluster.

use crate::diag::{Diagnostic, Diagnostics};
use crate::launch::protocol::VOLUME;
use crate::manifest::{Input, is_vm, vm_template};
use crate::yaml::{self, Limits, Value, View};

/// The host's own namespaces: a guest is in none of them.
const OF_THE_HOST: [&str; 4] = ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"];
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Refuses it in all VM pods of an input, those in lists, and those that others would make,
/// included.
pub fn check(input: &Input, diags: &mut Diagnostics) {
    for root in yaml::documents(&input.text, Limits::default()).flatten() {
        check_object(&View::root(&root, &input.name), diags);
    }
}

fn check_object(object: &View<'_>, diags: &mut Diagnostics) {
    let quiet = &mut Diagnostics::default();
    let Some(mut fields) = object.fields(quiet) else {
        return;
    };
    for item in fields.items("items", quiet) {
        check_object(&item, diags);
    }
    let pod = match is_vm(object.node) {
        true => Some(object.clone()),
        false => vm_template(object),
    };
    if let Some(pod) = pod
        && let Some(mut fields) = pod.fields(quiet)
        && let Some(spec) = fields.get("spec")
    {
        check_spec(&spec, diags);
    }
}

fn check_spec(spec: &View<'_>, diags: &mut Diagnostics) {
    // What is of another kind than it should be is told by the reader.
    let quiet = &mut Diagnostics::default();
    let Some(mut fields) = spec.fields(quiet) else {
        return;
    };
    for key in OF_THE_HOST {
        if let Some(view) = fields.get(key)
            && view.bool(quiet) == Some(true)
        {
            let problem = Diagnostic::error(&view.place, format!("a VM pod cannot have {key}"));
            diags.push(problem.help("remove it: a guest has a system and a network of its own"));
        }
    }
    // API servers take any number, and a pod with a negative one cannot even be deleted.
    if let Some(view) = fields.get("terminationGracePeriodSeconds")
        && let Some(grace) = view.int(quiet)
        && u32::try_from(grace).is_err()
    {
        let problem = Diagnostic::error(&view.place, "not how long a guest can have to end");
        diags.push(
            problem
                .found(grace.to_string())
                .allowed("0 to 4294967295 seconds"),
        );
    }
    for volume in fields.items("volumes", quiet) {
        let name = volume
            .fields(quiet)
            .and_then(|mut volume| volume.get("name"));
        if let Some(name) = name
            && name.text(quiet) == Some(VOLUME)
        {
            let problem = Diagnostic::error(
                &name.place,
                "this name is taken: Disklet adds such a volume",
            );
            diags.push(problem.found(VOLUME).help("give the volume another name"));
        }
    }
    for container in fields.items("containers", quiet) {
        check_container(&container, diags);
    }
}

/// What would be done in the launcher's container instead of the guest.
fn check_container(container: &View<'_>, diags: &mut Diagnostics) {
    let quiet = &mut Diagnostics::default();
    let Some(mut fields) = container.fields(quiet) else {
        return;
    };
    for key in PROBES {
        let Some(probe) = fields.get(key) else {
            continue;
        };
        let exec = probe.fields(quiet).and_then(|mut probe| probe.get("exec"));
        if let Some(exec) = exec.filter(|exec| exec.node.value != Value::Null) {
            diags.push(
                Diagnostic::error(&exec.place, "no command can be run in a guest")
                    .allowed("httpGet, tcpSocket"),
            );
        }
    }
    if let Some(lifecycle) = fields.get("lifecycle")
        && lifecycle.node.value != Value::Null
    {
        diags.push(
            Diagnostic::error(&lifecycle.place, "a guest has no hooks of a container")
                .help("remove it, and use cloud-init"),
        );
    }
}
