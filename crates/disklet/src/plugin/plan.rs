//! `kubectl disklet plan`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use disklet::manifests::{DiagnosticsFormat, ManifestArgs};
use disklet::report::{finish, report};
use disklet_core::config::{Config, command_line_place};
use disklet_core::diag::{Diagnostic, Diagnostics};
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::{Namespace, PodUid};
use disklet_core::plan::Plan;
use disklet_core::resolve::resolve_seeing;
use disklet_core::text::Reveal;
use serde_json::Value;

use super::PlanArgs;
use super::cluster::{Answer, Cluster};
use super::gather::Known;
use crate::refusal::Refusal;

pub(super) async fn plan(args: &PlanArgs, cluster: &Cluster) -> Result<ExitCode, Refusal> {
    let mut diags = Diagnostics::default();
    let Some((objects, config)) = given(args, cluster, &mut diags) else {
        report(&diags.into_sorted(), 1, args.diagnostics, "planned");
        return Ok(ExitCode::from(2));
    };
    let mut known = Known {
        cluster,
        objects,
        config,
        facts: Facts::default(),
        diags,
        without_config: false,
        hidden: BTreeMap::new(),
        coming: BTreeSet::new(),
    };
    if args.config.is_none() {
        configure(&args.disklet_namespace, &mut known).await?;
    }
    for name in &args.names {
        let vm = cluster.vm(name).await?;
        known.read(&vm);
        add_launcher(&vm, &mut known).await?;
    }
    known.gather().await?;
    let plans = resolve(&mut known);
    Ok(conclude(args, known, &plans))
}

/// What the command line names.
fn given(args: &PlanArgs, cluster: &Cluster, diags: &mut Diagnostics) -> Option<(Objects, Config)> {
    let manifests = ManifestArgs {
        files: args.files.clone(),
        recursive: args.recursive,
        namespace: cluster.namespace.to_string(),
        config: args.config.clone(),
        raw_devices: None,
        kubelet_root: None,
        diagnostics: DiagnosticsFormat::Text,
    };
    let given = manifests.read(None, diags)?;
    Some((given.objects, given.config))
}

/// The nodes' own configuration, if it may be read.
pub(super) async fn configure(namespace: &Namespace, known: &mut Known<'_>) -> Result<(), Refusal> {
    let why = match known.cluster.configuration(namespace).await? {
        Answer::Found(text) => {
            let name = format!("ConfigMap {namespace}/disklet-config");
            let input = Input {
                name: name.into(),
                text,
            };
            known.config = Config::default().read(&input, &mut known.diags);
            return Ok(());
        }
        Answer::Absent => format!("there is no ConfigMap disklet-config in namespace {namespace}"),
        Answer::Forbidden(_) => {
            format!("you may not read ConfigMap disklet-config of namespace {namespace}")
        }
    };
    known.without_config = true;
    let place = command_line_place("--config");
    known.diags.push(
        Diagnostic::notice(&place, format!("the nodes' configuration is not known: {why}"))
            .help("what depends on it, such as directories and default sizes, may be otherwise on the node; --config FILE says what it is"),
    );
    Ok(())
}

/// A VM that runs has a pod, whose UID is in paths of the node.
async fn add_launcher(vm: &Value, known: &mut Known<'_>) -> Result<(), Refusal> {
    let pod = known.cluster.launcher(vm).await?.found();
    let uid = pod.and_then(|pod| PodUid::parse(&pod.metadata.uid?).ok());
    if let (Some(uid), Some(vm)) = (uid, known.objects.vms.last()) {
        known.facts.launchers.insert(vm.meta.key(), uid);
    }
    Ok(())
}

fn resolve(known: &mut Known<'_>) -> Vec<Plan> {
    let unseen = known.unseen();
    let resolved = resolve_seeing(
        &known.objects,
        &known.config,
        &known.facts,
        &unseen,
        &mut known.diags,
    );
    let command_line = command_line_place("--filename");
    if !known.objects.has_vms() && known.diags.errors() == 0 {
        known.diags.push(
            Diagnostic::error(&command_line, "there is no VM in the input")
                .allowed("a VM of disklet.io/v1alpha1"),
        );
    }
    // A pod's disks have no place for what is not known.
    let wanted = resolved
        .missing
        .iter()
        .filter(|it| known.hidden.contains_key(it));
    let hidden: Vec<_> = wanted.map(ToString::to_string).collect();
    if let (Some(pod), false) = (known.objects.vm_pods.first(), hidden.is_empty()) {
        let why = format!(
            "{} may not be read, and the plan of a pod needs all",
            hidden.join(", ")
        );
        known.diags.push(Diagnostic::error(&pod.meta.place, why));
    }
    resolved.plans
}

fn conclude(args: &PlanArgs, known: Known<'_>, plans: &[Plan]) -> ExitCode {
    let errors = known.diags.errors();
    let told = known.diags.into_sorted();
    let told: Vec<_> = told
        .into_iter()
        .map(|told| told.in_words_of(|_| None))
        .collect();
    report(&told, errors, args.diagnostics, "planned");
    if errors > 0 {
        return ExitCode::from(1);
    }
    for (hidden, why) in &known.hidden {
        tell_hidden(args, &format!("{hidden}: known at launch, {why}"));
    }
    finish(
        crate::plan::print(args.output, Reveal::Redact, plans),
        "the plan",
    )
}

fn tell_hidden(args: &PlanArgs, what: &str) {
    use std::io::Write;
    // Programs read what is on standard error as one list.
    if args.diagnostics == DiagnosticsFormat::Text {
        let _ = writeln!(std::io::stderr(), "notice: {what}");
    }
}
