//! VM pods that come and go, while parts of Disklet and of Kubernetes are killed at
//! random; and many at once.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/faults.rs"]
mod faults;
#[path = "kube/history.rs"]
mod history;
#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use faults::Part;
use history::{RECORD, check};
use kube::guests::{NODE, have_small_guest};
use kube::storage::{Folder, Loop, claim, local, write_blank};
use kube::{Tenant, run, until};
use world::{alone, have_idle_guest, pod_of, seed, tell, until_nothing_is_left};

const PARTS: [Part; 5] = [
    Part::Agent,
    Part::Controller,
    Part::Libvirt,
    Part::Kubelet,
    Part::Containerd,
];

/// Numbers that only the seed decides.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        // Xorshift, which must not begin with nothing.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("a number") % end
    }
}

/// Guests that write down on their disk that they run.
fn pets(count: usize) -> String {
    format!(
        "apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: pet}}
spec:
  serviceName: pet
  replicas: {count}
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: pet}}}}
  template:
    metadata:
      labels: {{app: pet}}
      annotations:
        kubernetes.io/target-runtime: virtlet.cloud
        VirtletCloudInitUserDataScript: |
          #!/bin/sh
          #guest: {RECORD}
          #guest: stay
    spec:
      terminationGracePeriodSeconds: 8
      containers:
      - name: pet-vm
        image: virtlet.cloud/small
        resources: {{limits: {{memory: 128Mi}}}}
        volumeDevices: [{{name: history, devicePath: /dev/history}}]
  volumeClaimTemplates:
  - metadata: {{name: history}}
    spec:
      storageClassName: \"\"
      volumeMode: Block
      accessModes: [ReadWriteOnce]
      resources: {{requests: {{storage: 8Mi}}}}
"
    )
}

/// A guest that does nothing, and goes soon.
fn passer_by(number: usize) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: passer-by-{number}
  annotations: {{kubernetes.io/target-runtime: virtlet.cloud}}
spec:
  runtimeClassName: disklet
  terminationGracePeriodSeconds: 6
  containers:
  - name: passer-by-{number}-vm
    image: virtlet.cloud/idle
    resources: {{limits: {{memory: 32Mi}}}}
"
    )
}

const PETS: usize = 2;

/// Something happens to somebody. What cannot be done at the moment is not done.
fn mishap(tenant: &Tenant, chance: &mut Chance) {
    match chance.below(6) {
        0 => {
            let pet = format!("pet-{}", chance.below(PETS));
            tenant.try_kubectl(&["delete", "pod", &pet, "--wait=false"]);
        }
        1 => {
            tenant.try_apply(&passer_by(chance.below(3)));
        }
        2 => {
            let pod = format!("passer-by-{}", chance.below(3));
            tenant.try_kubectl(&["delete", "pod", &pod, "--wait=false"]);
        }
        _ => {
            let part = PARTS[chance.below(PARTS.len())];
            let begun = Instant::now();
            part.kill();
            std::thread::sleep(Duration::from_millis(100 * chance.below(30) as u64));
            part.mend();
            tell(&format!("{part:?}: {:.1} s", begun.elapsed().as_secs_f32()));
        }
    }
}

fn await_pets(tenant: &Tenant) {
    tenant.await_field(
        300,
        "statefulset/pet",
        ".status.readyReplicas",
        &PETS.to_string(),
    );
}

/// The guests' own words, on their disks, show that none of them ever ran beside
/// itself, and that none was started over what another had not finished.
#[test]
#[ignore = "needs a cluster: script/test"]
fn no_vm_runs_twice_whatever_is_killed() {
    let _alone = alone();
    have_small_guest();
    have_idle_guest();
    let (from, length) = match seed() {
        None => (0x5eed, 300),
        Some(seed) => (seed, 60),
    };
    tell(&format!("{length} s of mishaps, from {from:#x}"));
    let mut chance = Chance(from | 1);
    let tenant = Tenant::new("mishaps");
    let folder = Folder::new(&tenant);
    let disks: Vec<PathBuf> = (0..PETS)
        .map(|pet| folder.0.join(format!("pet-{pet}")))
        .collect();
    let mut devices = Vec::new();
    for (pet, disk) in disks.iter().enumerate() {
        write_blank(disk);
        let device = Loop::of(disk);
        let volume = local(Path::new(&device.path));
        tenant.apply(&claim(
            &tenant,
            &format!("history-pet-{pet}"),
            "Block",
            &volume,
        ));
        devices.push(device);
    }
    tenant.apply(&pets(PETS));
    await_pets(&tenant);
    let end = Instant::now() + Duration::from_secs(length);
    while Instant::now() < end {
        mishap(&tenant, &mut chance);
    }
    for part in ["agent", "controller", "libvirt"] {
        pod_of(part);
    }
    await_pets(&tenant);
    tenant.kubectl(&["delete", "statefulset", "pet"]);
    tenant.kubectl(&["delete", "pods", "--all", "--timeout=180s"]);
    until_nothing_is_left(120, "VM pods that came and went");
    for disk in &disks {
        let boots = check(disk);
        tell(&format!("{boots} boots, one after the other"));
    }
}

/// The number of pods, which whoever runs the test may choose.
fn many() -> usize {
    let told = std::env::var("DISKLET_MANY_PODS");
    told.map_or(8, |told| told.parse().expect("a number of pods"))
}

/// When the node's readiness has last changed.
fn node_is_ready_since() -> String {
    let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")]['status','lastTransitionTime']}";
    run(Command::new("kubectl").args(["get", "node", NODE, "-o", path]))
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn many_vm_pods_run_at_once() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("many");
    let before = node_is_ready_since();
    assert!(before.starts_with("True"), "{before}");
    let many = many();
    let begun = Instant::now();
    tenant.apply(&format!(
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
      terminationGracePeriodSeconds: 30
      containers:
      - {{name: many-vm, image: virtlet.cloud/small, resources: {{limits: {{memory: 96Mi}}, requests: {{cpu: 10m}}}}}}
"
    ));
    until(300, &format!("{many} guests have booted"), || {
        let logs = [
            "logs",
            "-l",
            "app=many",
            "--tail=-1",
            "--max-log-requests=100",
        ];
        let said = tenant.try_kubectl(&logs).1;
        (said.matches("GUEST-READY").count() == many).then_some(())
    });
    tell(&format!(
        "{many} VM pods in {:.0} s",
        begun.elapsed().as_secs_f32()
    ));
    tenant.await_field(
        60,
        "deployment/many",
        ".status.readyReplicas",
        &many.to_string(),
    );
    tenant.kubectl(&["delete", "deployment", "many"]);
    until_nothing_is_left(180, "many VM pods");
    assert_eq!(node_is_ready_since(), before);
}
