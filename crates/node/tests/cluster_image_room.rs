//! Images on a real cluster's node while no VM waits for them: fetched beforehand, and
//! given up when there is no room, unless a VM uses them.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;

use kube::guests::{NODE, assert_said, have_small_guest};
use kube::images::Web;
use kube::pods::{delete_pod, vm_pod};
use kube::{Tenant, cluster_directory, on_node, run, until};
use serde_json::{Value, json};
use world::{alone, pod_of, replace_pod, until_nothing_is_left};

const RUNS: &str = ".status.conditions[?(@.type==\"disklet.io/running\")].status";

fn disklet(arguments: &[&str]) -> String {
    run(Command::new("kubectl")
        .args(["-n", "disklet"])
        .args(arguments))
}

/// The configuration of the nodes. When this is dropped, it is as it was.
struct Configuration(String);

impl Configuration {
    fn now() -> Self {
        let path = "jsonpath={.data.config\\.yaml}";
        Self(disklet(&["get", "configmap", "disklet-config", "-o", path]))
    }

    fn write(text: &str) {
        let patch = json!({"data": {"config.yaml": text}}).to_string();
        disklet(&[
            "patch",
            "configmap",
            "disklet-config",
            "--type=merge",
            "-p",
            &patch,
        ]);
    }

    /// The same and more; another agent heeds it.
    fn with(&self, more: &str) {
        Self::write(&format!("{}\n{more}", self.0));
        replace_pod("agent");
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        Self::write(&self.0);
        replace_pod("agent");
    }
}

/// The names of images in the node's store.
fn images() -> Vec<String> {
    let disklet = cluster_directory().join("shared/disklet");
    let disklet = disklet.display().to_string();
    let listed = on_node(NODE, &[&disklet, "images", "ls", "--output", "json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let all = listed.as_array();
    let names = all.expect("a list").iter().map(|it| it["name"].as_str());
    names.flatten().map(str::to_owned).collect()
}

fn has(image: &str) -> bool {
    images().iter().any(|it| it == image)
}

/// As if all that the store has had been used last some hours ago.
fn let_time_pass() {
    let disks = "find /var/lib/disklet/images/sha256 -type f -exec touch -d '3 hours ago' {} +";
    on_node(NODE, &["sh", "-c", disks]);
}

/// A VM pod with an image on which nothing boots.
fn pod(name: &str, image: &str) -> String {
    vm_pod(name, "", &["stay"])
        .replace("virtlet.cloud/small", &format!("virtlet.cloud/{image}"))
        .replace("GracePeriodSeconds: 20", "GracePeriodSeconds: 1")
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn images_come_beforehand_and_go_when_nobody_uses_them() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("room");
    let web = Web::start(&tenant);
    let _mapping = web.map(&tenant);
    let named = |name: &str| format!("{}/{name}", tenant.name);
    let [wanted, used, left] = ["first", "open", "second"].map(named);
    let configuration = Configuration::now();

    // Nobody has asked for it but the administrator.
    let before = format!("prePull: [{wanted}]\n");
    configuration.with(&before);
    until(60, "the image of prePull is there", || {
        has(&wanted).then_some(())
    });
    tenant.apply(&pod("at-once", &wanted));
    tenant.await_field(120, "pod/at-once", RUNS, "True");
    let told = tenant.kubectl(&["get", "events"]);
    assert!(!told.contains("pulling image"), "{told}");
    delete_pod(&tenant, "at-once");

    tenant.apply(&pod("user", &used));
    tenant.apply(&pod("leaves", &left));
    for pod in ["pod/user", "pod/leaves"] {
        tenant.await_field(120, pod, RUNS, "True");
    }
    delete_pod(&tenant, "leaves");
    assert!(
        [&wanted, &used, &left].iter().all(|it| has(it)),
        "{:?}",
        images()
    );
    let qemu = tenant.qemu("user-vm");

    // The filesystem is fuller than one per cent. What was used a moment ago stays.
    let full = format!("{before}imageGC: {{highPercent: 1, lowPercent: 1}}\n");
    configuration.with(&full);
    let removed = |image: &str| {
        let log = disklet(&["logs", &pod_of("agent")]);
        log.contains("removed an image that no VM uses") && log.contains(image)
    };
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(has(&left) && !removed(&left), "{:?}", images());
    let_time_pass();
    replace_pod("agent");
    until(60, "the image that nobody uses goes", || {
        (!has(&left)).then_some(())
    });
    until(30, "the log says so", || removed(&left).then_some(()));
    // A VM, the administrator, and whoever has brought one by hand, keep theirs.
    let kept = images();
    for image in [&wanted, &used, "small"] {
        assert!(kept.iter().any(|it| it == image), "{image}: {kept:?}");
    }
    assert_eq!(tenant.qemu("user-vm"), qemu);
    // Fetched again it comes again, and is told of.
    tenant.apply(&pod("again", &left));
    tenant.await_field(120, "pod/again", RUNS, "True");
    let told = tenant.kubectl(&["describe", "pod", "again"]);
    assert_said(&told, &[&format!("pulled image {left}")]);
    delete_pod(&tenant, "again");

    // It was its use that has kept it.
    delete_pod(&tenant, "user");
    let_time_pass();
    replace_pod("agent");
    until(60, "the image goes once its VM has gone", || {
        (!has(&used)).then_some(())
    });
    assert!(has(&wanted) && has("small"), "{:?}", images());
    until_nothing_is_left(60, "VM pods whose images came and went");
}
