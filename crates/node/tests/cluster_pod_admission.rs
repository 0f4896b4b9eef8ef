//! What API servers take for a VM pod, on a real cluster: nothing that a plan refuses, and
//! nothing that other webhooks, or updates, have made of it.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::io::Write;
use std::process::{Command, Stdio};

use kube::guests::assert_said;
use kube::pods::{delete_pod, vm_pod};
use kube::storage::{Folder, Tied};
use kube::{Tenant, cluster_directory, repository, run, until};
use serde_json::{Value, json};

/// What `disklet plan` says against a manifest, each problem in the form that webhooks
/// have: all in one line.
fn planned(tenant: &Tenant, manifest: &str) -> Vec<String> {
    let mut plan = Command::new(cluster_directory().join("shared/disklet"))
        .args(["plan", "--namespace", &tenant.name, "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("disklet starts");
    let mut stdin = plan.stdin.take().expect("a pipe");
    stdin.write_all(manifest.as_bytes()).expect("it reads");
    drop(stdin);
    let output = plan.wait_with_output().expect("it ends");
    let told = String::from_utf8(output.stderr).expect("a text");
    let mut problems: Vec<(String, Vec<String>)> = Vec::new();
    for line in told.lines() {
        if let Some(problem) = line.strip_prefix("error: ") {
            // Behind the place in the text, which webhooks never see.
            let (_, words) = problem.split_once(": ").expect("a place");
            problems.push((words.to_owned(), Vec::new()));
        } else if let (Some(detail), Some((_, details))) =
            (line.strip_prefix("  "), problems.last_mut())
        {
            details.push(detail.to_owned());
        }
    }
    let sentence = |(words, details): (String, Vec<String>)| match details.is_empty() {
        true => words,
        false => format!("{words} ({})", details.join("; ")),
    };
    problems.into_iter().map(sentence).collect()
}

/// What is wrong with VM pods, each in another way, as more of their spec.
const WRONG: [&str; 9] = [
    "  volumes: [{name: d, flexVolume: {driver: virtlet/flexvolume_driver, options: {type: qcow2, capasity: 1Gi}}}]",
    "  volumes: [{name: d, flexVolume: {driver: virtlet/flexvolume_driver, options: {type: qcow3}}}]",
    "  volumes: [{name: d, flexVolume: {driver: virtlet/flexvolume_driver, options: {type: raw, path: /etc/passwd}}}]",
    "  volumes: [{name: d, flexVolume: {driver: virtlet/flexvolume_driver, options: {type: ceph, monitor: 127.0.0.1}}}]",
    "  volumes: [{name: d, emptyDir: {}}]",
    "  volumes: [{name: d, hostPath: {path: /srv}}]",
    "  - {name: second, image: virtlet.cloud/small}",
    "  initContainers: [{name: first, image: virtlet.cloud/small}]",
    "    volumeMounts: [{name: d, mountPath: /data}]
  volumes: [{name: d, flexVolume: {driver: virtlet/flexvolume_driver, options: {type: qcow2, part: \"-1\"}}}]",
];

/// The same, as annotations.
const WRONG_ANNOTATIONS: [&str; 5] = [
    "VirtletVCPUCount: none",
    "VirtletVCPUCuont: \"2\"",
    "VirtletDiskDriver: ide",
    "VirtletCloudInitMetaData: \"{\"",
    "VirtletRootVolumeSize: large",
];

/// A VM pod with so many disks, its root and the one for cloud-init included, which no
/// node runs.
fn with_disks(count: usize, driver: &str) -> String {
    let volume = |nth: usize| {
        let options = "{type: qcow2, capacity: 16MB}";
        format!(
            "\n  - {{name: d{nth}, flexVolume: {{driver: virtlet/flexvolume_driver, options: {options}}}}}"
        )
    };
    let volumes: String = (2..count).map(volume).collect();
    let more = format!("  nodeSelector: {{no-node: has-this}}\n  volumes:{volumes}");
    let annotations = format!("  annotations:\n    VirtletDiskDriver: {driver}\n");
    vm_pod("bad", &more, &["stay"]).replace("  annotations:\n", &annotations)
}

/// The most disks that each driver has.
const MOST_DISKS: [(&str, usize); 2] = [("virtio", 20), ("scsi", 26)];

#[test]
#[ignore = "needs a cluster: script/test"]
fn what_a_plan_refuses_is_refused_with_its_words() {
    let tenant = Tenant::new("refused");
    for (driver, most) in MOST_DISKS {
        tenant.apply(&with_disks(most, driver));
        tenant.kubectl(&["delete", "pod", "bad", "--timeout=300s"]);
    }
    let too_many = MOST_DISKS.map(|(driver, most)| with_disks(most + 1, driver));
    let specs = WRONG.iter().map(|more| vm_pod("bad", more, &["stay"]));
    let annotated = WRONG_ANNOTATIONS.iter().map(|annotation| {
        let annotations = format!("  annotations:\n    {annotation}\n");
        vm_pod("bad", "", &["stay"]).replace("  annotations:\n", &annotations)
    });
    for manifest in specs.chain(annotated).chain(too_many) {
        let problems = planned(&tenant, &manifest);
        assert!(!problems.is_empty(), "a plan takes\n{manifest}");
        let (taken, told) = tenant.try_apply(&manifest);
        assert!(!taken, "{told}\n{manifest}");
        let message = match &problems[..] {
            [problem] => problem.clone(),
            several => format!("{} problems:\n{}", several.len(), several.join("\n")),
        };
        let denied = "admission webhook \"vm-pods.disklet.io\" denied the request: ";
        let (_, words) = told.split_once(denied).expect(&told);
        assert_eq!(words.trim_end(), message, "{manifest}");
    }
    assert_eq!(tenant.kubectl(&["get", "pods", "-o", "name"]), "");
}

/// Another webhook, which is asked after ours, and again if ours has changed something.
struct Meddler {
    name: String,
    _process: Tied,
}

impl Meddler {
    /// It changes pods of the tenant at this operation.
    fn start(tenant: &Tenant, folder: &Folder, operation: &str, patch: &Value) -> Self {
        let mut command = Command::new(repository().join("script/lib/kube/meddler.py"));
        command.arg(this_computer()).arg(folder.0.join("meddler"));
        let (process, facts) = Tied::start(command.arg(patch.to_string()));
        let facts: Value = serde_json::from_str(&facts).expect("facts");
        let name = format!("zz-{}", tenant.name);
        let label = format!("meddled={}", tenant.name);
        run(Command::new("kubectl").args([
            "label",
            "namespace",
            &tenant.name,
            "--overwrite",
            &label,
        ]));
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": "meddler.disklet.test",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "reinvocationPolicy": "IfNeeded",
                "namespaceSelector": {"matchLabels": {"meddled": tenant.name}},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": [operation]}],
                "clientConfig": {"url": facts["url"], "caBundle": facts["authority"]},
            }],
        });
        tenant.apply(&configuration.to_string());
        Self {
            name,
            _process: process,
        }
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        let _ = Command::new("kubectl")
            .args(["delete", "mutatingwebhookconfiguration", &self.name])
            .output();
    }
}

/// The address of this computer as API servers see it: the first of their network.
fn this_computer() -> String {
    let path = "jsonpath={.clusters[0].cluster.server}";
    let server = run(Command::new("kubectl").args(["config", "view", "--minify", "-o", path]));
    let host = server.trim_start_matches("https://").split(':').next();
    let (network, _) = host.and_then(|it| it.rsplit_once('.')).expect("an address");
    format!("{network}.1")
}

/// API servers hear of a webhook a little later.
fn await_refusal(tenant: &Tenant, mut tried: impl FnMut(usize) -> (bool, String)) -> String {
    let mut nth = 0;
    let told = until(30, "the other webhook is asked", || {
        nth += 1;
        let (taken, told) = tried(nth);
        (!taken).then_some(told)
    });
    tenant.kubectl(&["delete", "pods", "--all", "--wait=false"]);
    told
}

/// A launcher that is no launcher any more does not come into being.
#[test]
#[ignore = "needs a cluster: script/test"]
fn what_other_webhooks_make_of_a_launcher_is_refused() {
    let added = json!({"name": "proxy", "image": "example.com/proxy"});
    for (nth, (change, wanted)) in [
        (
            json!([{"op": "add", "path": "/spec/initContainers", "value": [added]}]),
            "spec.initContainers: a VM pod has one container and no initContainers",
        ),
        (
            json!([{"op": "add", "path": "/spec/containers/0/env", "value": [{"name": "A", "value": "b"}]}]),
            "spec.containers[0].env: this is not as Disklet makes the launcher of a VM pod",
        ),
        (
            json!([{"op": "add", "path": "/metadata/annotations/VirtletVCPUCount", "value": "none"}]),
            "metadata.annotations.VirtletVCPUCount: ",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let tenant = Tenant::new(&format!("meddled-{nth}"));
        let folder = Folder::new(&tenant);
        let _meddler = Meddler::start(&tenant, &folder, "CREATE", &change);
        let told = await_refusal(&tenant, |nth| {
            tenant.try_apply(&vm_pod(&format!("vm-{nth}"), "", &["stay"]))
        });
        let denied = format!("webhook \"vm-pods.disklet.io\" denied the request: {wanted}");
        assert_said(&told, &[&denied]);
    }
}

/// An administrator's policy for all pods, such as another registry, is one for launchers.
#[test]
#[ignore = "needs a cluster: script/test"]
fn what_is_decided_about_all_pods_is_decided_about_launchers() {
    let tenant = Tenant::new("policed");
    let folder = Folder::new(&tenant);
    let change = json!([
        {"op": "replace", "path": "/spec/containers/0/image", "value": "mirror.example/disklet:1"},
        {"op": "add", "path": "/metadata/annotations/example.com~1seen", "value": "yes"},
    ]);
    let _meddler = Meddler::start(&tenant, &folder, "CREATE", &change);
    let seen = ".metadata.annotations.example\\.com/seen";
    let pod = until(30, "the other webhook is asked", || {
        tenant.kubectl(&["delete", "pods", "--all", "--timeout=300s"]);
        tenant.apply(&vm_pod("vm", "", &["stay"]));
        tenant.field("pod/vm", seen)
    });
    assert_eq!(pod, "yes");
    let image = tenant.field("pod/vm", ".spec.containers[0].image");
    assert_eq!(image.as_deref(), Some("mirror.example/disklet:1"));
    delete_pod(&tenant, "vm");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_vm_pod_stays_as_it_was_created() {
    let tenant = Tenant::new("stays");
    // It waits, as no node has that.
    tenant.apply(&vm_pod(
        "vm",
        "  nodeSelector: {no-node: has-this}",
        &["stay"],
    ));
    let stays = "a VM pod stays as it was created";
    for (arguments, wanted) in [
        (&["annotate", "pod", "vm", "VirtletVCPUCount=2"][..], stays),
        (
            &["annotate", "pod", "vm", "VirtletVCPUCuont=2"][..],
            "did you mean \"VirtletVCPUCount\"?",
        ),
        (
            &["annotate", "pod", "vm", "kubernetes.io/target-runtime-"][..],
            stays,
        ),
        (
            &["set", "image", "pod/vm", "vm-vm=example.com/other"][..],
            stays,
        ),
    ] {
        let (done, told) = tenant.try_kubectl(arguments);
        assert!(!done && told.contains("launchers.disklet.io"), "{told}");
        assert_said(&told, &[wanted]);
    }
    // What is nobody's business but its author's.
    tenant.kubectl(&["label", "pod", "vm", "app=web"]);
    tenant.kubectl(&["annotate", "pod", "vm", "example.com/note=this"]);

    // What another webhook makes of a harmless update is no better.
    let folder = Folder::new(&tenant);
    let change = json!([{"op": "replace", "path": "/spec/containers/0/image", "value": "example.com/other"}]);
    let meddler = Meddler::start(&tenant, &folder, "UPDATE", &change);
    let told = until(30, "the other webhook is asked", || {
        let (done, told) = tenant.try_kubectl(&["label", "pod", "vm", "--overwrite", "app=db"]);
        (!done).then_some(told)
    });
    assert_said(
        &told,
        &["launchers.disklet.io", "spec.containers[0].image: ", stays],
    );
    drop(meddler);
    tenant.kubectl(&["delete", "pod", "vm", "--timeout=300s"]);
}
