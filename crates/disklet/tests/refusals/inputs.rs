//! Files and directories that cannot be read, and inputs in which a problem
//! could be lost.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use super::program::{Outcome, POD, Scratch, plan, program_for_seconds, run};

fn plan_path(path: &Path) -> Outcome {
    plan(&[Path::new("-f"), path], b"")
}

#[test]
fn a_file_without_permission_is_refused_by_name() {
    let scratch = Scratch::new("forbidden");
    let file = scratch.file("pod.yaml", POD);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    // Root may read it anyway.
    if fs::read(&file).is_err() {
        let shown = file.display();
        plan_path(&file).assert_says(&format!("{shown}: cannot be read: Permission denied"));
    }
}

#[test]
fn a_directory_without_manifests_is_refused_by_name() {
    let scratch = Scratch::new("empty");
    let shown = scratch.path().display();
    let wanted = format!("{shown}: the directory has no manifests");
    plan_path(scratch.path()).assert_says(&wanted);
    scratch.file("README.txt", "not a manifest");
    scratch.file("pod.yaml.orig", POD);
    fs::create_dir(scratch.path().join("below.yaml")).unwrap();
    fs::write(scratch.path().join("below.yaml/pod.yaml"), POD).unwrap();
    plan_path(scratch.path()).assert_says(&wanted);
}

#[test]
fn links_that_lead_nowhere_or_in_circles_are_noticed() {
    let scratch = Scratch::new("circles");
    scratch.file("pod.yaml", POD);
    symlink(scratch.path(), scratch.path().join("self")).unwrap();
    let args = ["--offline", "-R", "-f"].map(Path::new);
    let outcome = plan(&[&args[..], &[scratch.path()]].concat(), b"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    symlink("absent", scratch.path().join("z.yaml")).unwrap();
    let outcome = plan_path(scratch.path());
    outcome.assert_says("z.yaml: cannot be read: No such file or directory");
}

#[test]
fn a_name_that_is_no_text_is_shown_somehow() {
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9\x1b[2J.yaml");
    plan_path(Path::new(name)).assert_says("cannot be read");
}

#[test]
fn a_name_that_would_deceive_is_shown_as_it_is() {
    for (name, shown) in [
        ("pod-\u{202e}lmay.exe", "pod-\\u{202e}lmay.exe: "),
        ("pod\u{200b}.yaml", "pod\\u{200b}.yaml: "),
    ] {
        plan_path(Path::new(name)).assert_says(shown);
    }
}

/// Without a writer, reading a pipe would never end.
#[test]
fn a_pipe_in_a_directory_is_not_waited_for() {
    let scratch = Scratch::new("pipe");
    let pipe = scratch.path().join("a-pipe.yaml");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    symlink(&pipe, scratch.path().join("link-to-a-pipe.yaml")).unwrap();
    let of_directory = || {
        let mut command = program_for_seconds(20);
        command
            .args(["plan", "--offline", "-f"])
            .arg(scratch.path());
        run(command, b"")
    };
    of_directory().assert_says("the directory has no manifests");
    scratch.file("pod.yaml", POD);
    let outcome = of_directory();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("VM default/vm"));
}

/// Such as the substitution of a command in a shell.
#[test]
fn a_pipe_that_is_named_is_read() {
    let scratch = Scratch::new("named-pipe");
    let pipe = scratch.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut command = program_for_seconds(20);
    command.args(["plan", "--offline", "-f"]).arg(&pipe);
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&pipe, POD).unwrap());
        run(command, b"")
    });
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

/// Where they lie in the directory of the manifests, they are not read as such.
#[test]
fn facts_and_configuration_may_lie_among_the_manifests() {
    let scratch = Scratch::new("together");
    scratch.file("pod.yaml", POD);
    let config = scratch.file("config.yaml", "dataDir: /srv/disklet\n");
    let facts = scratch.file(
        "facts.yaml",
        "kind: NodeFacts\napiVersion: disklet.io/v1alpha1\n",
    );
    let [directory, with_config, with_facts] = ["-f", "--config", "--facts"].map(Path::new);
    let mut args = vec![directory, scratch.path(), with_facts, &facts];
    plan(&args, b"").assert_says("give the configuration file with --config instead of -f");
    args.extend([with_config, &config]);
    let outcome = plan(&args, b"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.stderr, "");
    assert!(outcome.stdout.contains("/srv/disklet/volumes"));
}

#[test]
fn standard_input_is_read_once() {
    let outcome = plan(&["-f", "-", "-f", "-"], POD.as_bytes());
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("standard input can be read once"));
}

#[test]
fn a_refused_vm_is_not_lost_among_skipped_objects() {
    let mut text: String = (0..600)
        .map(|n| format!("kind: Service\nmetadata: {{name: s{n}}}\n---\n"))
        .collect();
    text += &POD.replace("image: cirros", "image: a b");
    plan(&["-f", "-"], text.as_bytes()).assert_says("spec.containers[0].image: the image name");
}

/// All fields that Kubernetes has where a plan looks.
#[test]
fn fields_of_kubernetes_are_no_slips() {
    let text = r#"
{apiVersion: v1, kind: Pod,
 metadata: {name: vm, namespace: default, generateName: x, uid: x, labels: {}, annotations: {}, finalizers: [],
   generation: 1, managedFields: [], ownerReferences: [], resourceVersion: "1", selfLink: x, creationTimestamp: x},
 spec: {runtimeClassName: disklet, activeDeadlineSeconds: 1, affinity: {}, dnsConfig: {}, dnsPolicy: x,
   enableServiceLinks: true, hostAliases: [], hostIPC: false, hostNetwork: false, hostPID: false, hostUsers: true,
   imagePullSecrets: [], nodeName: x, nodeSelector: {}, os: {}, overhead: {}, preemptionPolicy: x, priority: 1,
   priorityClassName: x, readinessGates: [], resourceClaims: [], resources: {}, restartPolicy: x, schedulerName: x,
   schedulingGates: [], securityContext: {}, setHostnameAsFQDN: false, shareProcessNamespace: false, subdomain: x,
   terminationGracePeriodSeconds: 1, tolerations: [], topologySpreadConstraints: [], volumes: [
     {name: c, persistentVolumeClaim: {claimName: c}},
     {name: s, secret: {secretName: s}},
     {name: p, projected: {sources: [{configMap: {name: m}}, {serviceAccountToken: {path: t, audience: x, expirationSeconds: 1}}]}}],
   containers: [{name: vm, image: cirros, args: [], command: [], imagePullPolicy: Always, lifecycle: {}, livenessProbe: {},
     ports: [], readinessProbe: {}, resizePolicy: [], restartPolicy: x, securityContext: {}, startupProbe: {}, stdin: true,
     stdinOnce: true, terminationMessagePath: x, terminationMessagePolicy: x, tty: true, workingDir: x,
     resources: {limits: {cpu: 1, ephemeral-storage: 1}, claims: []},
     env: [{name: A, valueFrom: {configMapKeyRef: {name: m, key: a}}}],
     volumeMounts: [{name: s, mountPath: /s, mountPropagation: x, recursiveReadOnly: x}]}]},
 status: {phase: Running, conditions: [], hostIP: x, message: x, nominatedNodeName: x, podIP: x, qosClass: x, reason: x}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: c},
 spec: {accessModes: [ReadWriteOnce], dataSource: {}, dataSourceRef: {}, volumeAttributesClassName: x, resources: {requests: {storage: 1Gi}, limits: {}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v},
 spec: {accessModes: [ReadWriteOnce], mountOptions: [], nodeAffinity: {}, persistentVolumeReclaimPolicy: x, volumeAttributesClassName: x,
   capacity: {storage: 1Gi}, claimRef: {name: c, apiVersion: v1, kind: x, fieldPath: x, resourceVersion: x},
   csi: {driver: x, fsType: x, volumeHandle: x, volumeAttributes: {}, nodeStageSecretRef: {}}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {a: eA==}, immutable: true, type: Opaque}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {a: b}, immutable: true}
"#;
    let outcome = plan(&["--offline", "-f", "-"], text.as_bytes());
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
}

#[test]
fn notices_beyond_what_anybody_reads_are_counted() {
    let service = |n| format!("kind: Service\nmetadata: {{name: s{n}}}\n---\n");
    let mut text: String = (0..70).map(service).collect();
    text += "kind: VirtualMachine\nmetadata: {name: other}\n---\n";
    text += &POD.replace(
        "{name: vm}",
        "{name: vm, annotations: {disklet.io/recreate-root: \"true\"}}",
    );
    let outcome = plan(&["--offline", "-f", "-"], text.as_bytes());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches("notice: <stdin>").count(), 50);
    for wanted in [
        "VirtualMachine objects are not planned",
        "[disklet.io/recreate-root]: has no effect",
    ] {
        assert!(outcome.stderr.contains(wanted), "{}", outcome.stderr);
    }
    let last = outcome.stderr.lines().last();
    assert_eq!(last, Some("notice: and 22 more notices"));
    let json = plan(
        &["--offline", "--diagnostics", "json", "-f", "-"],
        text.as_bytes(),
    );
    assert!(
        json.stderr.contains("\"and 22 more notices\""),
        "{}",
        json.stderr
    );
}

#[test]
fn more_problems_than_anybody_reads_are_counted() {
    let volumes: String = (0..2000)
        .map(|n| format!("  - name: v{n}\n    emptyDir: {{}}\n"))
        .collect();
    let outcome = plan(
        &["-f", "-"],
        format!("{POD}  volumes:\n{volumes}").as_bytes(),
    );
    outcome.assert_says("refused: 2000 problems, of which the first 500 are shown");
    let first = POD.lines().count() + 3;
    assert!(
        outcome
            .stderr
            .starts_with(&format!("error: <stdin>:{first}:"))
    );
}

#[test]
fn one_refused_vm_leaves_the_others_unplanned() {
    let bad = POD.replace("image: cirros", "image: a b");
    let outcome = plan(
        &["-f", "-"],
        format!("{}---\n{bad}", POD.replace("vm}", "good}")).as_bytes(),
    );
    outcome.assert_refused();
    assert_eq!(outcome.stdout, "");
}

#[test]
fn problems_come_in_the_order_of_files_and_lines() {
    let scratch = Scratch::new("order");
    let bad = POD
        .replace("image: cirros", "image: a b")
        .replace("name: vm\n", "name: ../vm\n");
    let z = scratch.file("z.yaml", &bad);
    let a = scratch.file("a.yaml", bad.replace("{name: vm}", "{name: other}"));
    let outcome = plan(&[Path::new("-f"), &z, Path::new("-f"), &a], b"");
    outcome.assert_refused();
    let places: Vec<_> = outcome
        .stderr
        .lines()
        .filter_map(|line| line.strip_prefix("error: "))
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let of = |path: &Path, place: &str| format!("{}:{place}", path.display());
    assert_eq!(
        places,
        [
            of(&z, "7:11"),
            of(&z, "8:12"),
            of(&a, "7:11"),
            of(&a, "8:12")
        ]
    );
}
