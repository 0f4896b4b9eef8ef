//! `kubectl disklet vm-pod validate`: whether VM pods could run, before they are
//! applied.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use disklet::manifests::{DiagnosticsFormat, Given, ManifestArgs};
use disklet::report::{print, report};
use disklet_core::config::command_line_place;
use disklet_core::diag::{Diagnostic, Diagnostics, Severity};
use disklet_core::facts::Facts;
use disklet_core::launch::vm_pod::{check, with_originals};
use disklet_core::manifest::{Input, Objects, VmPod};
use disklet_core::names::Namespace;
use disklet_core::resolve::{Reference, resolve_seeing, unbound_claims};
use serde::Serialize;

use super::cluster::Cluster;
use super::gather::Known;
use super::names;
use super::plan::configure;
use crate::refusal::Refusal;

#[derive(Debug, Subcommand)]
pub(super) enum VmPodCommand {
    Validate(ValidateArgs),
}

/// Say whether VM pods could run, before they are applied
///
/// What `kubectl apply` would be told by Disklet's webhook is told here, with the same
/// words and fields; and besides, what the cluster's objects say: whether claims are
/// there and bound, what their volumes are, and whether Secrets and ConfigMaps have
/// what the pod names. Objects beside the pods in the files count as if they were
/// applied with them. Pods that a Deployment, ReplicaSet, StatefulSet, DaemonSet, Job or
/// CronJob would make are judged by their template, and launchers, which `kubectl get` shows
/// in the places of VM pods, by the pods that they stand for.
///
/// What you may not read, and what is bound or made later, is not judged, and is listed.
/// No node is looked at, and nothing is changed.
#[derive(Debug, ClapArgs)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct ValidateArgs {
    /// Manifests: YAML or JSON files, directories of them, or - for standard input
    #[arg(value_name = "FILE|DIR|-", required = true)]
    files: Vec<PathBuf>,

    /// Read directories with all directories below them
    #[arg(short = 'R', long)]
    recursive: bool,

    /// How to tell the verdict
    #[arg(short, long, value_enum, default_value_t = VerdictOutput::Text)]
    output: VerdictOutput,

    /// Configuration of the nodes (see docs/formats/config.md)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where Disklet is installed
    #[arg(long, value_name = "NAMESPACE", value_parser = names::namespace, default_value = crate::install::DEFAULT_NAMESPACE)]
    disklet_namespace: Namespace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VerdictOutput {
    /// For people: problems on standard error, a line for each pod otherwise
    Text,
    /// For programs, on standard output
    Json,
}

const EXAMPLES: &str = "\
Examples:
  kubectl disklet vm-pod validate pod.yaml                     one or more pods of a file
  kubectl disklet vm-pod validate pod.yaml claims.yaml -n prod with what will be applied, too
  helm template . | kubectl disklet vm-pod validate -
  kubectl get pod vm -o yaml | kubectl disklet vm-pod validate -
  kubectl disklet vm-pod validate vms/ -o json | jq '.problems[] | {file, line, field, message}'

Exit code: 0 all of them could run, 1 refused (every reason is told), 2 wrong usage.";

pub(super) async fn validate(args: &ValidateArgs, cluster: &Cluster) -> Result<ExitCode, Refusal> {
    let mut diags = Diagnostics::default();
    let Some(given) = given(args, cluster, &mut diags) else {
        report(&diags.into_sorted(), 1, DiagnosticsFormat::Text, "judged");
        return Ok(ExitCode::from(2));
    };
    let mut objects = given.objects;
    let coming = put_off_claims(&mut objects);
    let mut known = Known {
        cluster,
        objects,
        config: given.config,
        facts: Facts::default(),
        diags,
        without_config: false,
        hidden: BTreeMap::new(),
        coming,
    };
    if args.config.is_none() {
        configure(&args.disklet_namespace, &mut known).await?;
    }
    known.gather().await?;
    let unseen = known.unseen();
    let (objects, mut diags) = (known.objects, known.diags);
    resolve_seeing(&objects, &known.config, &known.facts, &unseen, &mut diags);
    Ok(Verdict::of(&objects, diags, &known.hidden).tell(args.output))
}

/// What the files have, judged by what a VM pod of a cluster cannot have.
fn given(args: &ValidateArgs, cluster: &Cluster, diags: &mut Diagnostics) -> Option<Given> {
    let manifests = ManifestArgs {
        files: args.files.clone(),
        recursive: args.recursive,
        namespace: cluster.namespace.to_string(),
        config: args.config.clone(),
        raw_devices: None,
        kubelet_root: None,
        diagnostics: DiagnosticsFormat::Text,
    };
    let mut given = manifests.read_prepared(diags, prepared)?;
    // They are not what is asked about.
    given.objects.vms.clear();
    Some(given)
}

/// An input as the webhook sees it: a launcher is made anew of its VM pod.
fn prepared(input: Input, diags: &mut Diagnostics) -> Input {
    let input = with_originals(input);
    check(&input, diags);
    input
}

/// Claims of the files that no volume of the files is for: whether they are bound, the
/// cluster knows if it has them already.
fn put_off_claims(objects: &mut Objects) -> BTreeSet<Reference> {
    let unbound = unbound_claims(objects);
    for key in &unbound {
        objects.claims.remove(key);
    }
    unbound.into_iter().map(Reference::Claim).collect()
}

/// What is to be said of the pods of the input.
#[derive(Debug, Serialize)]
struct Verdict {
    accepted: bool,
    /// The VM pods, by namespace and name; those that others would make by these.
    pods: Vec<String>,
    problems: Vec<Diagnostic>,
    notices: Vec<Diagnostic>,
    /// What was not judged.
    unseen: Vec<Unjudged>,
}

#[derive(Debug, Serialize)]
struct Unjudged {
    object: String,
    why: String,
}

impl Verdict {
    fn of(objects: &Objects, mut diags: Diagnostics, hidden: &BTreeMap<Reference, String>) -> Self {
        if objects.vm_pods.is_empty() && diags.errors() == 0 {
            diags.push(
                Diagnostic::error(&command_line_place("FILE"), "there is no VM pod in the input")
                    .allowed("a Pod with the annotation kubernetes.io/target-runtime: virtlet.cloud, or with runtimeClassName: disklet; or a Deployment or its like that makes such pods"),
            );
        }
        let accepted = diags.errors() == 0;
        let all = diags.into_sorted().into_iter();
        let all = all.map(|told| told.in_words_of(|_| None));
        let (problems, notices) = all.partition(|told| told.severity == Severity::Error);
        let pods = objects.vm_pods.iter();
        Self {
            accepted,
            pods: pods.map(shown).collect(),
            problems,
            notices,
            unseen: hidden
                .iter()
                .map(|(object, why)| Unjudged {
                    object: object.to_string(),
                    why: why.clone(),
                })
                .collect(),
        }
    }

    fn tell(&self, output: VerdictOutput) -> ExitCode {
        let text = match output {
            VerdictOutput::Json => {
                let json = serde_json::to_string_pretty(self).unwrap_or_default();
                json + "\n"
            }
            VerdictOutput::Text => {
                let told: Vec<_> = [&self.problems[..], &self.notices[..]].concat();
                report(
                    &told,
                    self.problems.len(),
                    DiagnosticsFormat::Text,
                    "changed",
                );
                self.in_words()
            }
        };
        let printed = print(text.as_bytes(), "the verdict");
        match self.accepted {
            true => printed,
            false => ExitCode::from(1),
        }
    }

    /// What is left to say to people once problems were told.
    fn in_words(&self) -> String {
        let mut words = String::new();
        for Unjudged { object, why } in &self.unseen {
            let _ = writeln!(words, "not judged: {object}: {why}");
        }
        for pod in self.pods.iter().filter(|_| self.accepted) {
            let _ = match pod.contains(' ') {
                true => writeln!(words, "pods of {pod} could run"),
                false => writeln!(words, "pod {pod} could run"),
            };
        }
        words
    }
}

fn shown(pod: &VmPod) -> String {
    let own = || format!("{}/{}", pod.meta.namespace, pod.meta.name);
    pod.maker.clone().unwrap_or_else(own)
}

#[cfg(test)]
mod tests {
    use disklet_core::config::Config;
    use disklet_core::resolve::Unseen;

    use super::*;

    /// The verdict of one who has nothing but the input, and may not read the rest.
    fn verdict(text: &str) -> Verdict {
        let (mut objects, mut diags) = (Objects::with_templates(), Diagnostics::default());
        let input = Input {
            name: "pod.yaml".into(),
            text: text.to_owned(),
        };
        let input = prepared(input, &mut diags);
        objects.read(&input, &Namespace::parse("prod").unwrap(), &mut diags);
        let hidden = put_off_claims(&mut objects);
        let unseen = Unseen::objects(hidden.clone());
        let (config, facts) = (Config::default(), Facts::default());
        resolve_seeing(&objects, &config, &facts, &unseen, &mut diags);
        let hidden = hidden.into_iter().map(|it| (it, "later".to_owned()));
        Verdict::of(&objects, diags, &hidden.collect())
    }

    const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: vm, annotations: {kubernetes.io/target-runtime: virtlet.cloud}}
spec:
  MORE
  containers: [{name: vm, image: virtlet.cloud/cirros}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
# Not a VM, and no concern of ours.
apiVersion: v1
kind: Pod
metadata: {name: other}
spec: {hostNetwork: true, containers: [{name: a, image: b}]}
";

    #[test]
    fn a_pod_whose_claim_comes_with_it_could_run() {
        let verdict = verdict(&POD.replace("MORE", ""));
        assert!(verdict.accepted, "{verdict:?}");
        let words = verdict.in_words();
        assert!(words.contains("pod prod/vm could run\n"), "{words}");
        assert!(
            words.contains("not judged:") && words.contains("data"),
            "{words}"
        );
    }

    /// What `kubectl get` shows is judged as what was applied.
    #[test]
    fn a_launcher_is_judged_by_its_vm_pod() {
        let launcher = |more: &str| {
            format!(
                "
  apiVersion: v1
  kind: Pod
  metadata:
    name: vm
    labels: {{disklet.io/vm: vm}}
    finalizers: [disklet.io/agent]
    annotations:
      kubernetes.io/target-runtime: virtlet.cloud
      disklet.io/vm-pod: '{{\"containers\": [{{\"name\": \"vm\", \"image\": \"virtlet.cloud/cirros\"}}]}}'
  spec:
    {more}
    automountServiceAccountToken: false
    containers: [{{name: vm, image: example.com/disklet, volumeMounts: [{{name: disklet, mountPath: /run/disklet}}]}}]
    volumes:
    - {{name: disklet, emptyDir: {{}}}}
"
            )
        };
        let alone = launcher("").replace("\n  ", "\n");
        let list = format!(
            "apiVersion: v1\nkind: List\nitems:\n-{}",
            launcher("").trim_start_matches("\n ")
        );
        for text in [alone, list] {
            let verdict = verdict(&text);
            assert!(verdict.accepted, "{text}\n{verdict:?}");
            assert!(verdict.notices.is_empty(), "{text}\n{verdict:?}");
            assert_eq!(verdict.in_words(), "pod prod/vm could run\n");
        }
        let text = launcher("hostNetwork: true").replace("\n  ", "\n");
        let verdict_of = verdict(&text);
        let json = serde_json::to_value(&verdict_of).unwrap();
        assert_eq!(json["problems"][0]["field"], "spec.hostNetwork", "{json}");
        assert!(json["problems"][0]["line"].is_null(), "{json}");
        // One that stands for nothing is a pod with things that no VM pod has.
        let text = launcher("")
            .replace("\n  ", "\n")
            .replace("\"containers\"", "\"none\"");
        assert!(!verdict(&text).accepted);
    }

    #[test]
    fn what_a_vm_pod_of_a_cluster_cannot_have_is_refused_by_its_field() {
        let verdict = verdict(&POD.replace("MORE", "hostNetwork: true"));
        assert!(!verdict.accepted);
        let json: serde_json::Value = serde_json::to_value(&verdict).unwrap();
        assert_eq!(json["problems"].as_array().map(Vec::len), Some(1), "{json}");
        let problem = &json["problems"][0];
        assert_eq!(problem["field"], "spec.hostNetwork");
        assert_eq!(
            (&problem["file"], &problem["line"]),
            (&"pod.yaml".into(), &6.into())
        );
        assert_eq!(json["pods"], serde_json::json!(["prod/vm"]));
        assert!(!verdict.in_words().contains("could run"));
    }

    const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: prod}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {kubernetes.io/target-runtime: virtlet.cloud, VirtletVCPUCount: \"COUNT\"}
    spec:
      MORE
      containers: [{name: vm, image: virtlet.cloud/cirros}]
";

    #[test]
    fn pods_that_others_would_make_are_judged_by_their_template() {
        let text = DEPLOYMENT.replace("MORE", "").replace("COUNT", "2");
        let verdict_of = verdict(&text);
        assert!(verdict_of.accepted, "{verdict_of:?}");
        assert_eq!(
            verdict_of.in_words(),
            "pods of Deployment prod/web could run\n"
        );
        // Neither is one that has nothing to do with us a problem.
        let other = text.replace("virtlet.cloud, ", "docker, ");
        assert!(!verdict(&other).accepted);

        let text = DEPLOYMENT
            .replace("MORE", "hostNetwork: true")
            .replace("COUNT", "none");
        let json = serde_json::to_value(verdict(&text)).unwrap();
        let problems = json["problems"].as_array().unwrap().iter();
        let mut fields: Vec<_> = problems.map(|it| it["field"].as_str().unwrap()).collect();
        fields.sort_unstable();
        assert_eq!(
            fields,
            [
                "spec.template.metadata.annotations.VirtletVCPUCount",
                "spec.template.spec.hostNetwork"
            ]
        );
        assert_eq!(json["pods"], serde_json::json!(["Deployment prod/web"]));
    }

    #[test]
    fn a_stateful_sets_claims_are_disks_of_its_pods() {
        let text = DEPLOYMENT
            .replace("Deployment", "StatefulSet")
            .replace("COUNT", "1");
        let text = text.replace("MORE", "").replace(
            "virtlet.cloud/cirros}]",
            "virtlet.cloud/cirros, volumeDevices: [{name: data, devicePath: /dev/data}]}]",
        );
        let claims = "  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: fast, volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
        let verdict_of = verdict(&format!("{text}{claims}"));
        assert!(verdict_of.accepted, "{verdict_of:?}");
        let words = verdict_of.in_words();
        assert!(
            words.contains("pods of StatefulSet prod/web could run\n"),
            "{words}"
        );
        assert!(words.contains("data-web-0"), "{words}");
        // Without them nobody knows the volume.
        let verdict_of = verdict(&text);
        assert!(!verdict_of.accepted);
        let field = serde_json::to_value(&verdict_of.problems[0]).unwrap()["field"].clone();
        assert!(
            field
                .as_str()
                .unwrap()
                .starts_with("spec.template.spec.containers[0]"),
            "{field}"
        );
    }

    #[test]
    fn a_cron_jobs_pods_are_judged_as_well() {
        let text = DEPLOYMENT.replace("COUNT", "none").replace("MORE", "");
        let (head, template) = text.split_once("  template:").unwrap();
        let template = template.replace('\n', "\n    ");
        let head = head
            .replace("apps/v1", "batch/v1")
            .replace("Deployment", "CronJob");
        let text = format!("{head}  jobTemplate:\n    spec:\n      template:{template}");
        let verdict = verdict(&text);
        let problem = serde_json::to_value(&verdict.problems[0]).unwrap();
        assert_eq!(
            problem["field"],
            "spec.jobTemplate.spec.template.metadata.annotations.VirtletVCPUCount"
        );
    }

    #[test]
    fn an_input_without_a_vm_pod_is_a_mistake() {
        let verdict = verdict("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}");
        assert!(!verdict.accepted);
        assert_eq!(
            verdict.problems[0].message,
            "there is no VM pod in the input"
        );
    }
}
