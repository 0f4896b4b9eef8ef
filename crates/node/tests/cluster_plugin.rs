//! `kubectl disklet` on a real cluster: what users see of VMs with the rights that
//! they have, and a guest's console.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "other tests need the rest")]
mod kube;
#[path = "kube/plugin.rs"]
mod plugin;

use std::process::Command;

use kube::{Tenant, on_node, repository, run, until};
use plugin::Plugin;
use serde_json::Value;

/// What is in it must be nowhere else.
const PASSWORD: &str = "correct-horse-7";

const VM: &str = "
apiVersion: disklet.io/v1alpha1
kind: VM
metadata: {name: NAME}
spec:
  running: false
  domain:
    memory: 64Mi
    devices:
      disks:
      - source: {image: {name: example.com/cirros}}
      - {name: data, source: {pvc: {claimname: data}}}
      - name: far
        source: {iscsi: {host: {name: 10.9.8.7}, portal: iqn.2001-04.com.example:x, lun: 1, auth: {secretRef: chap}}}
  cloudInit: {secretRef: {name: user-data}}
";

/// A claim with its volume, and two Secrets.
fn have_storage(tenant: &Tenant) {
    let name = &tenant.name;
    tenant.apply(&format!(
        "
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {name}, labels: {{disklet.test/tenant: {name}}}}}
spec:
  storageClassName: ''
  accessModes: [ReadWriteOnce]
  capacity: {{storage: 1Gi}}
  claimRef: {{namespace: {name}, name: data}}
  local: {{path: /srv/data}}
  nodeAffinity: {{required: {{nodeSelectorTerms: [{{matchExpressions: [{{key: kubernetes.io/hostname, operator: In, values: [node1]}}]}}]}}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: data}}
spec:
  storageClassName: ''
  volumeName: {name}
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 1Gi}}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: chap}}
stringData: {{username: vm, password: {PASSWORD}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: user-data}}
stringData:
  userdata: |
    #cloud-config
    password: {PASSWORD}
"
    ));
    tenant.await_field(60, "pvc/data", ".status.phase", "Bound");
}

/// An account of the tenant's that may read what is named, and nothing else.
fn account(tenant: &Tenant, name: &str, rules: &str) -> String {
    tenant.apply(&format!(
        "
apiVersion: v1
kind: ServiceAccount
metadata: {{name: {name}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: {name}}}
rules:
{rules}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: {name}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {name}}}
subjects: [{{kind: ServiceAccount, name: {name}}}]
"
    ));
    format!("--as=system:serviceaccount:{}:{name}", tenant.name)
}

/// Removes what is outside the tenant's namespace.
struct Volume(String);

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("kubectl")
            .args(["delete", "pv", &self.0, "--wait=false"])
            .output();
    }
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_plan_has_what_its_user_may_see_and_no_secret() {
    let tenant = Tenant::new("plugin-plan");
    let _volume = Volume(tenant.name.clone());
    let plugin = Plugin::of(&tenant);
    have_storage(&tenant);
    let file = VM.replace("NAME", "planned");
    let all = plugin.said(&["plan", "-f", "-"], &file);
    assert_eq!(all.code, Some(0), "{}", all.err);
    // The nodes have the volume where the kubelet puts it, which an administrator's files cannot say.
    for wanted in [
        "claim data: ",
        "/pods/<pod uid>/volumes/kubernetes.io~local-volume/",
        "iscsi iqn.2001-04.com.example:x/1",
    ] {
        assert!(all.out.contains(wanted), "{wanted}: {}", all.out);
    }
    assert!(!all.out.contains("known at launch"), "{}", all.out);

    // One who may read VMs and claims: neither volumes, which are the cluster's, nor Secrets.
    let few = account(
        &tenant,
        "few",
        "- {apiGroups: [disklet.io], resources: [vms], verbs: [get]}
- {apiGroups: [''], resources: [persistentvolumeclaims], verbs: [get]}",
    );
    let some = plugin.said(&["plan", "-f", "-", &few], &file);
    assert_eq!(some.code, Some(0), "{}", some.err);
    for wanted in [
        format!("by PersistentVolume {}, known at launch", tenant.name),
        format!(
            "iscsi iqn.2001-04.com.example:x/1 by Secret chap of namespace {}, known at launch",
            tenant.name
        ),
        format!(
            "user data: Secret user-data of namespace {}, known at launch",
            tenant.name
        ),
    ] {
        assert!(some.out.contains(&wanted), "{wanted}: {}", some.out);
    }
    assert!(some.err.contains("Secret chap"), "{}", some.err);
    assert!(
        some.err.contains("the nodes' configuration is not known"),
        "{}",
        some.err
    );

    // The VM itself, in all forms.
    tenant.apply(&file);
    for form in ["table", "tree", "json", "yaml", "xml"] {
        for who in [&["-o", form][..], &["-o", form, &few]] {
            let said = plugin.said(&[&["plan", "planned"], who].concat(), "");
            assert_eq!(said.code, Some(0), "{form}: {}", said.err);
            assert!(!said.out.is_empty());
            for text in [said.out, said.err] {
                assert!(!text.contains(PASSWORD), "{form}: {text}");
            }
        }
    }
    let plans: Value =
        serde_json::from_str(&plugin.done(&["plan", "planned", "-o", "json"])).expect("JSON");
    let uid = tenant
        .field("vm/planned", ".metadata.uid")
        .expect("it is there");
    assert!(
        plans[0]["cloudInit"].to_string().contains(&uid),
        "{plans:#}"
    );
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_plan_refuses_what_the_launch_would() {
    let tenant = Tenant::new("plugin-refuse");
    let plugin = Plugin::of(&tenant);
    let file = VM
        .replace("NAME", "wrong")
        .replace("memory: 64Mi", "memroy: 64Mi");
    let said = plugin.said(&["plan", "-f", "-"], &file);
    assert_eq!(said.code, Some(1), "{}", said.err);
    for wanted in [
        "spec.domain.memroy: unknown field \"memroy\"",
        "the claim data is missing",
        "the Secret chap is missing",
        "nothing was planned",
    ] {
        assert!(said.err.contains(wanted), "{wanted}: {}", said.err);
    }
    assert_eq!(said.out, "");

    let none = plugin.said(&["plan", "nobody"], "");
    assert_eq!(none.code, Some(1));
    assert!(none.err.contains("there is no such VM"), "{}", none.err);
    let nobody = plugin.said(
        &[
            "plan",
            "nobody",
            "--as=system:serviceaccount:default:default",
        ],
        "",
    );
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.err.contains("cannot get resource"), "{}", nobody.err);
    for (wrong, wanted) in [
        (&["plan"][..], "NAME"),
        (&["plan", "a", "-f", "b"], "cannot be used"),
        (&["describe"], "NAME"),
        (&["descibe", "a"], "'describe'"),
        (&["console", "a", "--request-timeout=soon"], "such as 90s"),
    ] {
        let said = plugin.said(wrong, "");
        assert_eq!(said.code, Some(2), "{wrong:?}: {}", said.err);
        assert!(
            said.err.to_lowercase().contains(&wanted.to_lowercase()),
            "{wrong:?}: {}",
            said.err
        );
    }
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn flags_are_those_of_kubectl() {
    let tenant = Tenant::new("plugin-flags");
    let plugin = Plugin::of(&tenant);
    tenant.apply(&VM.replace("NAME", "flagged"));
    let own = std::env::var("KUBECONFIG").expect("script/lib/kube/installed.sh sets it");
    let own = format!("--kubeconfig={own}");
    let server = run(Command::new("kubectl").args([
        "config",
        "view",
        "-o",
        "jsonpath={.clusters[0].cluster.server}",
    ]));
    let directory =
        std::env::var("DISKLET_KUBE_DIR").expect("script/lib/kube/installed.sh runs this");
    let token = std::fs::read_to_string(format!("{directory}/token")).expect("a token");
    let token = format!("--token={}", token.trim());
    for flags in [
        &[own.as_str()][..],
        // As for kubectl, a certificate of the kubeconfig would count before a token.
        &["--user=nobody", &token],
        &["--request-timeout=20s"],
        &["--request-timeout=0"],
        &["-s", server.trim()],
    ] {
        let text = plugin.done(&[&["describe", "flagged"], flags].concat());
        assert!(text.contains("flagged"), "{text}");
    }
    for (flags, wanted) in [
        (&["--kubeconfig=/nonexistent"][..], "no cluster to ask"),
        (&["--context=nowhere"], "nowhere"),
        (&["--cluster=nowhere"], "nowhere"),
        (&["--user=nobody", "--token=wrong"], "does not know you"),
        (
            &["--server=https://127.0.0.1:1", "--request-timeout=5s"],
            "error: VM",
        ),
    ] {
        let said = plugin.said(&[&["describe", "flagged"], flags].concat(), "");
        assert_eq!(said.code, Some(1), "{flags:?}: {}", said.out);
        assert!(said.err.contains(wanted), "{flags:?}: {}", said.err);
    }
    let offered = plugin.completed(&["describe", "-n", &tenant.name, ""]);
    assert_eq!(offered, "flagged\n:4\n");
    assert_eq!(plugin.completed(&["de"]), "describe\n:4\n");
    assert!(
        plugin
            .completed(&["plan", "--out"])
            .starts_with("--output\n")
    );
}

/// The guest with Linux is in the node's image store.
fn have_small_guest() {
    let script = repository().join("script/lib/guest_image.sh");
    let image = run(Command::new("bash").arg(script).arg("small"));
    let shared = std::env::var("DISKLET_KUBE_DIR").expect("script/lib/kube/installed.sh runs this");
    let file = format!("{shared}/shared/small.img");
    if !std::path::Path::new(&file).exists() {
        run(Command::new("cp").args(["--sparse=always", image.trim(), &file]));
    }
    let disklet = format!("{shared}/shared/disklet");
    let pull = ["images", "pull", "virtlet.cloud/small", "--from", &file];
    on_node("node1", &[&[disklet.as_str()], &pull[..]].concat());
}

const TALKER: &str = "
apiVersion: disklet.io/v1alpha1
kind: VM
metadata: {name: NAME}
spec:
  restartPolicy: Never
  domain:
    memory: 128Mi
    devices:
      disks:
      - source: {image: {name: virtlet.cloud/small}}
  cloudInit:
    userData: |
      #!/bin/sh
      #guest: stay
";

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_console_is_the_guests() {
    have_small_guest();
    let tenant = Tenant::new("plugin-console");
    let plugin = Plugin::of(&tenant);
    tenant.apply(&TALKER.replace("NAME", "talker"));
    tenant.await_console(180, "talker", "GUEST-READY");

    let text = plugin.done(&["describe", "talker"]);
    for wanted in [
        "Running; it shall run",
        "node1",
        "Ready: yes",
        "image virtlet.cloud/small",
        "pod talker, Running, on node1",
        "Launching",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let objects: Value =
        serde_json::from_str(&plugin.done(&["describe", "talker", "-o", "json"])).expect("JSON");
    assert_eq!(objects["vm"]["status"]["phase"], "Running");
    assert_eq!(objects["launcher"]["metadata"]["name"], "talker");
    assert!(
        objects["events"]
            .as_array()
            .is_some_and(|events| !events.is_empty())
    );
    assert!(
        plugin
            .done(&["describe", "talker", "-o", "yaml"])
            .contains("\nvm:\n")
    );

    // On a terminal, key by key, until the key that leaves.
    let mut terminal = plugin.on_a_terminal(&["console", "talker"]);
    let said = terminal.read_until("Ctrl-] detaches.");
    assert!(
        said.contains(&format!("Console of {}/talker.", tenant.name)),
        "{said}"
    );
    terminal.press(b"\r");
    terminal.read_until("guest# ");
    terminal.press(b"echo $((6*7))-fingers\r");
    terminal.read_until("42-fingers");
    // The launcher's terminal is as large as this one.
    let sizes = "for p in $(pgrep -f 'disklet launch'); do stty -F /proc/$p/fd/0 size 2>/dev/null || true; done";
    until(20, "the size is told", || {
        let sizes = on_node("node1", &["sh", "-c", sizes]);
        sizes.lines().any(|size| size == "33 99").then_some(())
    });
    // Ctrl-C is the guest's.
    terminal.press(b"sleep 600\r");
    std::thread::sleep(std::time::Duration::from_secs(1));
    terminal.press(b"\x03");
    terminal.press(b"echo still-$((1+1))\r");
    terminal.read_until("still-2");
    terminal.press(b"\x1d");
    let (code, _) = terminal.end();
    assert_eq!(code, 0);
    assert_eq!(
        tenant.field("vm/talker", ".status.phase").as_deref(),
        Some("Running")
    );

    // Without a terminal, as a pipe.
    let piped = plugin.said(&["console", "talker"], "echo piped-$((40+2))\n");
    assert_eq!(piped.code, Some(0), "{}", piped.err);
    assert!(piped.out.contains("piped-42"), "{}", piped.out);

    // Who may not attach is told by the API server's words.
    let looker = account(
        &tenant,
        "looker",
        "- {apiGroups: ['', disklet.io], resources: [vms, pods], verbs: [get]}",
    );
    let refused = plugin.said(&["console", "talker", &looker], "");
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.err.contains("pods/attach"), "{}", refused.err);

    // Two at once; both are told of the VM's end.
    let mut first = plugin.on_a_terminal(&["console", "talker"]);
    first.read_until("Ctrl-] detaches.");
    first.press(b"\r");
    first.read_until("guest# ");
    tenant.kubectl(&[
        "patch",
        "vm",
        "talker",
        "--type=merge",
        "-p",
        r#"{"spec":{"running":false}}"#,
    ]);
    let (code, said) = first.end();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("/talker does not run any more"), "{said}");
    until(60, "the VM is stopped", || {
        let phase = tenant.field("vm/talker", ".status.phase");
        (phase.as_deref() == Some("Stopped")).then_some(())
    });
    let stopped = plugin.said(&["console", "talker"], "");
    assert_eq!(stopped.code, Some(1), "{}", stopped.out);
    assert!(stopped.err.contains("does not run"), "{}", stopped.err);
    let text = plugin.done(&["describe", "talker"]);
    assert!(text.contains("Stopped; it shall not run"), "{text}");
}

const VM_POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: NAME
  annotations:
    kubernetes.io/target-runtime: virtlet.cloud
    VirtletCloudInitUserDataSource: secret/user-data
spec:
  nodeSelector: {no-node: has-this}
  containers: [{name: vm, image: virtlet.cloud/cirros}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
";

#[test]
#[ignore = "needs a cluster: script/test"]
fn vm_pods_are_judged_before_they_are_applied() {
    let tenant = Tenant::new("plugin-validate");
    let _volume = Volume(tenant.name.clone());
    let plugin = Plugin::of(&tenant);
    let judged = |text: &str, more: &[&str]| {
        plugin.said(&[&["vm-pod", "validate", "-"], more].concat(), text)
    };
    let file = VM_POD.replace("NAME", "judged");
    // What the pod names is not there.
    let said = judged(&file, &[]);
    assert_eq!(said.code, Some(1), "{}", said.out);
    for wanted in ["the Secret user-data is missing", "data", "<stdin>:"] {
        assert!(said.err.contains(wanted), "{wanted}: {}", said.err);
    }
    have_storage(&tenant);
    let said = judged(&file, &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let could = format!("pod {}/judged could run", tenant.name);
    assert!(said.out.contains(&could), "{}", said.out);
    assert!(!said.out.contains(PASSWORD) && !said.err.contains(PASSWORD));

    // One who may not read the Secret is not told that it is missing.
    let few = account(
        &tenant,
        "few",
        "- {apiGroups: [''], resources: [persistentvolumeclaims], verbs: [get]}",
    );
    let said = judged(&file, &["-o", "json", &few]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let verdict: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!(verdict["accepted"], true, "{verdict:#}");
    assert!(verdict["unseen"].to_string().contains("Secret user-data"));

    // The webhook says the same, of what it sees.
    let wrong = file.replace("  nodeSelector:", "  hostNetwork: true\n  nodeSelector:");
    let said = judged(&wrong, &["-o", "json"]);
    assert_eq!(said.code, Some(1), "{}", said.err);
    let verdict: Value = serde_json::from_str(&said.out).expect("JSON");
    let problem = &verdict["problems"][0];
    assert_eq!(problem["field"], "spec.hostNetwork");
    let (applied, told) = tenant.try_apply(&wrong);
    assert!(!applied, "{told}");
    let message = problem["message"].as_str().expect("a message");
    assert!(
        told.contains("spec.hostNetwork") && told.contains(message),
        "{told}"
    );
    // What could run is taken.
    tenant.apply(&file);
    tenant.kubectl(&["delete", "pod", "judged", "--timeout=300s"]);
    assert_eq!(plugin.completed(&["vm-pod", ""]), "validate\n:4\n");
}
