//! VM objects whose claims are not bound yet: who waits for whom.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;

use kube::guests::{assert_said, delete, have_small_guest, vm};
use kube::storage::{
    Folder, Iscsi, claim, disk, host_path, local, read_only, volume_of, write_disk,
};
use kube::{Tenant, until};

/// The class binds its claims to the volumes that there are, once a pod is scheduled.
fn class(tenant: &Tenant, name: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: {name}, labels: {{tenant: {}}}}}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
",
        tenant.name
    )
}

fn claim_of_class(name: &str, class: &str) -> String {
    format!(
        "apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  storageClassName: {class}
  accessModes: [ReadWriteOnce]
  resources: {{requests: {{storage: 4Mi}}}}
---
"
    )
}

/// Claims that wait for their first user: of one it is known that QEMU will open it, of
/// one that the kubelet will, and of one nothing is known when the launcher is made.
#[test]
#[ignore = "needs a cluster: script/test"]
fn claims_are_bound_with_the_launcher_whoever_opens_them() {
    have_small_guest();
    let tenant = Tenant::new("first");
    let folder = Folder::new(&tenant);
    let server = Iscsi::start(&tenant);
    let volume = folder.volume("near");
    write_disk(&volume.join("disk.img"), "from a local volume");
    let [near, far, late] = ["near", "far", "late"].map(|name| format!("{}-{name}", tenant.name));
    let (chap, secret) = server.chap_volume(&tenant);
    tenant.apply(
        &[
            secret,
            class(&tenant, &near),
            class(&tenant, &far),
            class(&tenant, &late),
            claim_of_class("near", &near),
            claim_of_class("far", &far),
            claim_of_class("late", &late),
            volume_of(&tenant, "near", &near, "Filesystem", &local(&volume)),
            "\n---\n".to_owned(),
            volume_of(&tenant, "far", &far, "Filesystem", &server.open_volume()),
        ]
        .concat(),
    );
    until(20, "the volumes are available", || {
        let phases = tenant.kubectl(&[
            "get",
            "pv",
            "-l",
            &format!("tenant={}", tenant.name),
            "-o",
            "jsonpath={.items[*].status.phase}",
        ]);
        (phases == "Available Available").then_some(())
    });
    let disks = [disk("near", ""), disk("far", ""), disk("late", "")];
    let guest = ["near", "far", "late"].map(read_only);
    tenant.apply(&vm("first", &disks.concat(), &guest));
    // Nobody has a volume for the last one.
    let launched = ".status.conditions[?(@.type==\"Launched\")].reason";
    tenant.await_field(60, "vm/first", launched, "Unschedulable");
    let carried = ".spec.volumes[*].persistentVolumeClaim.claimName";
    let carried = tenant.field("pod/first", carried);
    assert_eq!(carried.as_deref(), Some("near far late"));
    let mounts = ".spec.containers[0].volumeMounts[*].name";
    let mounts = tenant.field("pod/first", mounts).expect("mounts");
    assert!(mounts.ends_with("claim-0 claim-2"), "{mounts}");

    tenant.apply(&volume_of(&tenant, "late", &late, "Filesystem", &chap));
    let console = tenant.await_console(240, "first", "GUEST-END");
    assert_said(
        &console,
        &[
            "near READS from a local volume",
            "far READS disk of iscsi open",
            "late READS disk of iscsi chap",
        ],
    );
    let events = tenant.kubectl(&["get", "events", "--field-selector", "reason=ClaimBound"]);
    assert!(events.contains("made anew"), "{events}");
    delete(&tenant, "first");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn a_claim_that_is_bound_later_starts_its_vm() {
    have_small_guest();
    let tenant = Tenant::new("later");
    let folder = Folder::new(&tenant);
    let volume = folder.volume("later");
    write_disk(&volume.join("disk.img"), "bound at last");
    let both = claim(&tenant, "later", "Filesystem", &host_path(&volume));
    let (volume, claim) = both.split_once("---\n").expect("two objects");
    tenant.apply(claim);
    tenant.apply(&vm("later", &disk("later", ""), &[read_only("later")]));
    let accepted = ".status.conditions[?(@.type==\"Accepted\")]";
    tenant.await_field(
        20,
        "vm/later",
        &format!("{accepted}.reason"),
        "ClaimNotBound",
    );
    let message = tenant.field("vm/later", &format!("{accepted}.message"));
    assert!(
        message
            .expect("a message")
            .contains("claim later is Pending")
    );
    let events = tenant.kubectl(&["get", "events", "--field-selector", "reason=ClaimNotBound"]);
    assert!(events.contains("claim later"), "{events}");
    assert_eq!(tenant.field("pod/later", ".metadata.name"), None);
    tenant.apply(volume);
    let console = tenant.await_console(240, "later", "GUEST-END");
    assert_said(&console, &["later READS bound at last"]);
}
