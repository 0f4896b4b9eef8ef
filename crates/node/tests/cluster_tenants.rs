//! Tenants who want what is not theirs: refused with a reason, and nothing is left.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use std::fs;
use std::process::Command;

use kube::Tenant;
use kube::guests::{have_small_guest, vm};
use kube::storage::{Folder, claim, disk, is_open, local, write_disk};

const READY: &str = ".status.conditions[?(@.type==\"Ready\")]";
const ACCEPTED: &str = ".status.conditions[?(@.type==\"Accepted\")]";

/// Names are names, and belong to the VM's own namespace.
#[test]
#[ignore = "needs a cluster: script/test"]
fn what_is_in_other_namespaces_is_out_of_reach() {
    have_small_guest();
    let (tenant, other) = (Tenant::with_own_rights("thief"), Tenant::new("victim"));
    // As whoever is asked for this by itself.
    let (may, said) = tenant.try_kubectl(&["-n", &other.name, "get", "secrets"]);
    assert!(!may && said.contains("forbidden"), "{said}");
    let folder = Folder::new(&other);
    let volume = folder.volume("data");
    write_disk(&volume.join("disk.img"), "SECRET");
    other.apply(&claim(&other, "data", "Filesystem", &local(&volume)));
    other.kubectl(&[
        "create",
        "secret",
        "generic",
        "key",
        "--from-literal=userdata=SECRET",
    ]);

    let victim = &other.name;
    let claims = [
        format!("../{victim}/data"),
        format!("{victim}/data"),
        format!("{victim}%2fdata"),
    ];
    for (nth, name) in claims.iter().enumerate() {
        let vm_name = format!("claims-{nth}");
        let disk = format!("      - {{source: {{pvc: {{claimname: \"{name}\"}}}}}}");
        let manifest = vm(&vm_name, &disk, &["stay"]);
        assert_refused(&tenant, &folder, &manifest, name);
    }
    for (nth, name) in [format!("../{victim}/secrets/key"), format!("{victim}/key")]
        .iter()
        .enumerate()
    {
        let vm_name = format!("secrets-{nth}");
        let manifest = vm(&vm_name, "", &["stay"]);
        let (manifest, _) = manifest.split_once("    userData").expect("user data");
        let manifest = format!("{manifest}    secretRef: {{name: \"{name}\"}}\n");
        assert_refused(&tenant, &folder, &manifest, name);
    }

    // By their plain names there are none in the tenant's namespace.
    tenant.apply(&vm("plain-claim", &disk("data", ""), &["stay"]));
    tenant.await_field(
        20,
        "vm/plain-claim",
        &format!("{ACCEPTED}.reason"),
        "ClaimNotBound",
    );
    let manifest = vm("plain-secret", "", &["stay"]);
    let (manifest, _) = manifest.split_once("    userData").expect("user data");
    tenant.apply(&format!("{manifest}    secretRef: {{name: key}}\n"));
    tenant.await_field(90, "vm/plain-secret", &format!("{READY}.reason"), "Refused");
    let message = tenant.field("vm/plain-secret", &format!("{READY}.message"));
    let message = message.expect("a message");
    assert!(
        message.contains("key") && !message.contains("SECRET"),
        "{message}"
    );
    assert!(!is_open(&volume.join("disk.img")));
}

/// The API server does not take it. Without its webhook the controller would say the
/// same, which its own tests show.
fn assert_refused(tenant: &Tenant, folder: &Folder, manifest: &str, wanted: &str) {
    let (created, said) = create(tenant, folder, manifest);
    assert!(!created && said.contains(wanted), "{said}");
    assert_eq!(tenant.kubectl(&["get", "vms", "-o", "name"]), "");
}

/// An object near the 1.5 MB that etcd takes.
#[test]
#[ignore = "needs a cluster: script/test"]
fn huge_objects_are_refused_and_disturb_nobody() {
    have_small_guest();
    let tenant = Tenant::new("huge");
    let folder = Folder::new(&tenant);
    let before = restarts();
    let disks: String = (0..20_000)
        .map(|n| disk(&format!("disk-{n}"), ""))
        .collect();
    let thousands = vm("thousands", &disks, &["stay"]);
    assert_refused(&tenant, &folder, &thousands, "20001 entries");
    // The API server itself is slow with each change of this one.
    let entries: String = (0..30_000).map(|n| format!("      key-{n}: x\n")).collect();
    let entries = format!("  running: false\n  cloudInit:\n    metaData:\n{entries}");
    let many = vm("many-entries", "", &["stay"]).replace("  cloudInit:\n", &entries);
    let (created, said) = create(&tenant, &folder, &many);
    assert!(created, "{said}");
    // Much text is no harm: the guest gets it.
    let text = "x".repeat(1 << 20);
    let much = vm("much-text", "", &["stay".to_owned(), format!(": {text}")]);
    // The guest need not be up to be ended.
    let much = much.replace("spec:\n", "spec:\n  terminationGracePeriodSeconds: 5\n");
    let (created, said) = create(&tenant, &folder, &much);
    assert!(created, "{said}");
    tenant.await_field(120, "vm/much-text", ".status.phase", "Running");
    tenant.kubectl(&["delete", "vm", "much-text", "--timeout=300s"]);
    tenant.kubectl(&["delete", "vm", "many-entries", "--wait=false"]);
    assert_eq!(restarts(), before, "a program of ours has ended");
}

/// `kubectl apply` would keep a copy of it in an annotation, which is too large.
fn create(tenant: &Tenant, folder: &Folder, manifest: &str) -> (bool, String) {
    let file = folder.0.join("manifest.yaml");
    fs::write(&file, manifest).expect("a file");
    tenant.try_kubectl(&["create", "-f", &file.display().to_string()])
}

/// How often our programs were started again.
fn restarts() -> String {
    let counts = "jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
    let ours = [
        "get",
        "pods",
        "-l",
        "disklet.io/component in (agent, controller)",
    ];
    let mut kubectl = Command::new("kubectl");
    kube::run(
        kubectl
            .args(["-n", "disklet"])
            .args(ours)
            .args(["-o", counts]),
    )
}
