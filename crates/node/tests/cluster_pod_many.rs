//! Many VM pods at once, on one node.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use kube::guests::{NODE, have_image, have_small_guest};
use kube::{Tenant, cluster_directory, run, until};
use world::{alone, tell, until_nothing_is_left};

const USUAL: usize = 8;

/// The number of pods, which whoever runs the test may choose.
fn many() -> usize {
    let told = std::env::var("DISKLET_MANY_PODS");
    told.map_or(USUAL, |told| told.parse().expect("a number of pods"))
}

/// What a guest says when it runs.
const READY: &str = "GUEST-READY";

/// The guest of 64 MiB, in which no Linux of a distribution boots: one sector of code. It
/// says that it is there, and on each tick of the BIOS's clock, 18 times a second, it does
/// nothing.
fn have_tiny_guest() {
    let mut code = vec![0xba, 0xf8, 0x03]; // mov dx,0x3f8
    for byte in READY.bytes().chain(*b"\r\n") {
        code.extend([0xb0, byte, 0xee]); // mov al,byte; out dx,al
    }
    code.extend([0xfb, 0xf4, 0xeb, 0xfd]); // sti; hlt; jmp back to hlt
    let mut disk = vec![0; 1 << 20];
    disk[..code.len()].copy_from_slice(&code);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    let file = cluster_directory().join("shared/tiny.img");
    std::fs::write(&file, disk).expect("a file");
    have_image("tiny", &file);
}

/// The node's readiness, and since when it is so.
fn readiness() -> String {
    let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")]['status','lastTransitionTime']}";
    run(Command::new("kubectl").args(["get", "node", NODE, "-o", path]))
}

/// Looks at the node all the time.
fn watched<'s>(
    scope: &'s thread::Scope<'s, '_>,
    is_over: &'s AtomicBool,
) -> ScopedJoinHandle<'s, Vec<String>> {
    scope.spawn(|| {
        let mut seen = vec![readiness()];
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_secs(1));
            let now = readiness();
            if seen.last() != Some(&now) {
                seen.push(now);
            }
        }
        seen
    })
}

fn deployment(image: &str, memory: &str, many: usize) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{name: many}}
spec:
  replicas: {many}
  progressDeadlineSeconds: 400
  selector: {{matchLabels: {{app: many}}}}
  template:
    metadata:
      labels: {{app: many}}
      annotations:
        kubernetes.io/target-runtime: virtlet.cloud
        VirtletCloudInitUserDataScript: |
          #!/bin/sh
          #guest: stay
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - {{name: many-vm, image: virtlet.cloud/{image}, resources: {{limits: {{memory: {memory}}}, requests: {{cpu: 10m}}}}}}
"
    )
}

/// All of them run within 5 minutes, say so, and go; the node is ready all the time.
fn run_at_once(tenant: &Tenant, image: &str, memory: &str, many: usize) {
    let begun = Instant::now();
    let since = || begun.elapsed().as_secs_f32();
    tenant.apply(&deployment(image, memory, many));
    until(300, &format!("{many} guests have booted"), || {
        let logs = [
            "logs",
            "-l",
            "app=many",
            "--tail=-1",
            "--max-log-requests=100",
        ];
        let said = tenant.try_kubectl(&logs).1;
        (said.matches(READY).count() == many).then_some(())
    });
    let booted = since();
    let left = Duration::from_secs(300).saturating_sub(begun.elapsed());
    let ready = ".status.readyReplicas";
    tenant.await_field(left.as_secs(), "deployment/many", ready, &many.to_string());
    tell(&format!(
        "{many} VM pods of {memory}: booted after {booted:.0} s, ready after {:.0} s",
        since()
    ));
    tenant.kubectl(&["delete", "deployment", "many"]);
    until_nothing_is_left(240, "many VM pods");
    tell(&format!("nothing is left of them after {:.0} s", since()));
}

fn many_run_at_once(name: &str, image: &str, memory: &str, many: usize) {
    let tenant = Tenant::new(name);
    let before = readiness();
    assert!(before.starts_with("True"), "{before}");
    let is_over = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let watched = watched(scope, &is_over);
        // Also if it fails, or nobody would stop looking.
        let over = Over(&is_over);
        run_at_once(&tenant, image, memory, many);
        drop(over);
        watched.join().expect("the node is looked at")
    });
    assert_eq!(seen, [before]);
}

struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn many_vm_pods_of_64_mebibytes_run_at_once() {
    let _alone = alone();
    have_tiny_guest();
    many_run_at_once("many-tiny", "tiny", "64Mi", many());
}

/// Debian's kernel is unpacked from 16 MiB on, and needs 52 there. Without KVM each boot
/// takes many seconds of a core: who wants more of them measures the machine.
#[test]
#[ignore = "needs a cluster: script/test"]
fn many_vm_pods_with_linux_run_at_once() {
    let _alone = alone();
    have_small_guest();
    many_run_at_once("many", "small", "96Mi", many());
}
