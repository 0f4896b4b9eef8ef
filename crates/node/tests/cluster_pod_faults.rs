//! VM pods that come and go, while parts of Disklet and of Kubernetes are killed.

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

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use faults::Part;
use history::{GAP, RECORD, check, judge, so_far};
use kube::guests::{NODE, have_small_guest};
use kube::storage::{Folder, Loop, claim, local, write_blank};
use kube::{Tenant, on_node, run, until};
use world::{
    Chance, all_is_wanted, alone, commit, have_idle_guest, pod_of, tell, until_nothing_is_left,
};

const PARTS: [Part; 5] = [
    Part::Agent,
    Part::Controller,
    Part::Libvirt,
    Part::Kubelet,
    Part::Containerd,
];

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
const PASSERS_BY: usize = 3;

/// A StatefulSet of guests, and the disks on which they write.
struct Pets<'t> {
    tenant: &'t Tenant,
    disks: Vec<PathBuf>,
    /// How often each was deleted while its guest wrote.
    deleted: [usize; PETS],
    _devices: Vec<Loop>,
    _folder: Folder,
}

impl<'t> Pets<'t> {
    fn new(tenant: &'t Tenant) -> Self {
        let folder = Folder::new(tenant);
        let named = |pet: usize| folder.0.join(format!("pet-{pet}"));
        let disks: Vec<PathBuf> = (0..PETS).map(named).collect();
        let mut devices = Vec::new();
        for (pet, disk) in disks.iter().enumerate() {
            write_blank(disk);
            let device = Loop::of(disk);
            let volume = local(Path::new(&device.path));
            let name = format!("history-pet-{pet}");
            tenant.apply(&claim(tenant, &name, "Block", &volume));
            devices.push(device);
        }
        tenant.apply(&pets(PETS));
        let pets = Self {
            tenant,
            disks,
            deleted: [0; PETS],
            _devices: devices,
            _folder: folder,
        };
        (0..PETS).for_each(|pet| pets.await_boot(pet, 0));
        pets
    }

    /// So many boots of a pet, and one more, have been written down.
    fn await_boot(&self, pet: usize, before: usize) {
        until(240, &format!("another guest of pet-{pet} writes"), || {
            (so_far(&self.disks[pet]).len() > before).then_some(())
        });
    }

    /// It goes on writing, as the same guest.
    fn await_writing(&self, pet: usize) {
        let before = so_far(&self.disks[pet]);
        until(30, &format!("pet-{pet} goes on"), || {
            let now = so_far(&self.disks[pet]);
            assert_eq!(now.len(), before.len(), "pet-{pet} was not deleted");
            (now != before).then_some(())
        });
    }

    /// One of them is deleted, and while it goes, or its successor comes, a part is
    /// killed. The other one does not notice.
    fn suffer(&mut self, part: Part, chance: &mut Chance) {
        let pet = chance.below(PETS);
        let other = (pet + 1) % PETS;
        let before = self.disks.iter().map(|disk| so_far(disk).len());
        let before: Vec<_> = before.collect();
        let begun = Instant::now();
        let name = format!("pet-{pet}");
        self.tenant
            .kubectl(&["delete", "pod", &name, "--wait=false"]);
        self.deleted[pet] += 1;
        come_and_go(self.tenant, chance);
        pause(chance, 8_000);
        part.kill();
        pause(chance, 3_000);
        part.mend();
        let away = begun.elapsed().as_secs_f32();
        self.await_boot(pet, before[pet]);
        assert_eq!(
            so_far(&self.disks[other]).len(),
            before[other],
            "pet-{other}"
        );
        self.await_writing(other);
        tell(&format!(
            "{part:?}, while {name} came and went: {away:.1} s, and its guest after {:.1} s",
            begun.elapsed().as_secs_f32()
        ));
    }

    fn check(&self) {
        for (pet, disk) in self.disks.iter().enumerate() {
            let boots = check(disk);
            let said: u64 = boots.iter().map(|(_, said)| said).sum();
            tell(&format!(
                "pet-{pet}: {} boots, one after the other, {said} records",
                boots.len()
            ));
            assert!(boots.len() > self.deleted[pet], "{boots:?}");
        }
    }
}

fn pause(chance: &mut Chance, most: usize) {
    let length = chance.below(most);
    std::thread::sleep(Duration::from_millis(length as u64));
}

/// Others come and go. What cannot be done at the moment is not done.
fn come_and_go(tenant: &Tenant, chance: &mut Chance) {
    tenant.try_apply(&passer_by(chance.below(PASSERS_BY)));
    let pod = format!("passer-by-{}", chance.below(PASSERS_BY));
    tenant.try_kubectl(&["delete", "pod", &pod, "--wait=false"]);
}

/// Each VM on the node, as `record UUID POD`, and what there is under its UUID.
const MACHINES: &str = r#"
for record in /var/lib/disklet/vms/*/record.json; do
    [ ! -e "$record" ] || sed -n 's/.*"uuid": *"\([^"]*\)".*/uuid \1/p; s/.*"pod": *"\([^"]*\)".*/pod \1/p; s/.*"phase": *"\([^"]*\)".*/phase \1/p' "$record"
done
virsh -q -c qemu:///system list --uuid | sed '/^$/d; s/^/domain /'
for qemu in $(grep -la '^/usr/bin/qemu-system' /proc/[0-9]*/cmdline 2>/dev/null || true); do
    tr '\0' '\n' <"$qemu" | sed -n 's/^guest=\([0-9a-f-]\{36\}\)-.*/process \1/p'
done"#;

/// The UIDs of pods, and the VMs of the node that are recorded, defined and run.
#[derive(Debug, Default, PartialEq, Eq)]
struct World {
    pods: BTreeSet<String>,
    /// Those that are about to go.
    going: BTreeSet<String>,
    /// The pods of records, and their VMs.
    recorded: BTreeMap<String, String>,
    domains: Vec<String>,
    processes: Vec<String>,
}

impl World {
    fn now() -> Self {
        let mut world = Self::default();
        let path =
            "jsonpath={range .items[*]}{.metadata.uid} {.metadata.deletionTimestamp}{\"\\n\"}{end}";
        let pods = ["get", "pods", "-A", "-l", "disklet.io/vm", "-o", path];
        for pod in run(Command::new("kubectl").args(pods)).lines() {
            let (uid, deleted) = pod.split_once(' ').expect("two words");
            let set = match deleted.is_empty() {
                true => &mut world.pods,
                false => &mut world.going,
            };
            set.insert(uid.to_owned());
        }
        let mut uuid = String::new();
        for line in on_node(NODE, &["sh", "-c", MACHINES]).lines() {
            let (what, of) = line.split_once(' ').expect("two words");
            match what {
                "uuid" => of.clone_into(&mut uuid),
                "pod" => drop(world.recorded.insert(of.to_owned(), uuid.clone())),
                "domain" => world.domains.push(of.to_owned()),
                "process" => world.processes.push(of.to_owned()),
                _ => {}
            }
        }
        world.domains.sort();
        world.processes.sort();
        world
    }

    /// Whether each pod has its own VM, and no other VM is there.
    fn is_as_the_objects_say(&self) -> bool {
        let recorded: BTreeSet<_> = self.recorded.keys().cloned().collect();
        let mut vms: Vec<_> = self.recorded.values().cloned().collect();
        vms.sort();
        self.going.is_empty()
            && self.pods.len() >= PETS
            && recorded == self.pods
            && self.domains == vms
            && self.processes == vms
    }
}

/// There is one running QEMU, and one domain, of each VM pod, and no other.
fn await_a_machine_for_each_pod() {
    let mut seen = World::default();
    let end = Instant::now() + Duration::from_secs(180);
    loop {
        let now = World::now();
        if now.is_as_the_objects_say() && now == seen {
            return tell(&format!("{} VM pods, each with its VM", now.pods.len()));
        }
        assert!(Instant::now() < end, "{now:#?}");
        seen = now;
        std::thread::sleep(Duration::from_secs(1));
    }
}

#[test]
fn a_machine_of_another_pod_is_seen() {
    let texts = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let world = |pods: &[&str], vms: &[(&str, &str)], domains: &[&str]| World {
        pods: texts(pods).into_iter().collect(),
        recorded: vms
            .iter()
            .map(|(pod, vm)| ((*pod).to_owned(), (*vm).to_owned()))
            .collect(),
        domains: texts(domains),
        processes: texts(domains),
        ..World::default()
    };
    let right = [("a", "1"), ("b", "2")];
    assert!(world(&["a", "b"], &right, &["1", "2"]).is_as_the_objects_say());
    // As many, and not the same.
    assert!(!world(&["a", "c"], &right, &["1", "2"]).is_as_the_objects_say());
    assert!(!world(&["a", "b"], &right, &["1", "3"]).is_as_the_objects_say());
    assert!(!world(&["a", "b"], &right, &["1", "1"]).is_as_the_objects_say());
}

/// The guests' own words, on their disks, show that none of them ever ran beside
/// itself, and that none was started over what another had not finished. Every part is
/// killed in each round, in an order that the commit decides.
#[test]
#[ignore = "needs a cluster: script/test"]
fn no_vm_runs_twice_whatever_is_killed() {
    let _alone = alone();
    have_small_guest();
    have_idle_guest();
    let rounds = if all_is_wanted() { 4 } else { 1 };
    let seed = commit();
    tell(&format!("{rounds} rounds, from {seed:#x}"));
    let mut chance = Chance::new(seed);
    let tenant = Tenant::new("mishaps");
    let mut pets = Pets::new(&tenant);
    for _ in 0..rounds {
        let mut parts = PARTS;
        chance.shuffle(&mut parts);
        for part in parts {
            pets.suffer(part, &mut chance);
        }
    }
    for part in ["agent", "controller", "libvirt"] {
        pod_of(part);
    }
    let ready = ".status.readyReplicas";
    tenant.await_field(300, "statefulset/pet", ready, &PETS.to_string());
    await_a_machine_for_each_pod();
    tenant.kubectl(&["delete", "statefulset", "pet"]);
    tenant.kubectl(&["delete", "pods", "--all", "--timeout=300s"]);
    until_nothing_is_left(120, "VM pods that came and went");
    pets.check();
}

/// What one guest writes in a row: who it is, from which record on, and how many.
type Row<'a> = (&'a str, usize, usize);

/// Blank sectors.
fn blank<'a>(sectors: usize) -> Row<'a> {
    ("", 0, sectors)
}

/// A disk with these records, and nothing behind them.
fn history(rows: &[Row<'_>]) -> Vec<u8> {
    let mut disk = Vec::new();
    for (boot, first, count) in rows {
        for record in *first..first + count {
            let mut sector = [0; 512];
            if !boot.is_empty() {
                let text = format!("{boot} {record}\n");
                sector[..text.len()].copy_from_slice(text.as_bytes());
            }
            disk.extend(sector);
        }
    }
    disk.extend([0; 1024]);
    disk
}

#[test]
fn guests_one_after_the_other_are_seen_in_their_history() {
    assert_eq!(judge(&history(&[])), Ok(Vec::new()));
    let rows = [
        ("a", 0, 2),
        blank(GAP),
        ("b", 0, 3),
        blank(GAP),
        ("c", 0, 1),
    ];
    let boots = [("a", 2), ("b", 3), ("c", 1)].map(|(boot, said)| (boot.to_owned(), said));
    assert_eq!(judge(&history(&rows)), Ok(boots.to_vec()));
}

#[test]
fn a_vm_that_runs_twice_is_seen_in_its_history() {
    let all: &[(&[Row<'_>], &str)] = &[
        // The older one ends before the younger one, and after it.
        (
            &[("a", 0, 105), blank(GAP - 5), ("b", 0, 52)],
            "sector 164: b has begun 59 sectors behind what was there, not 64",
        ),
        (
            &[("a", 0, 164), ("b", 0, 52), ("a", 164, 9)],
            "sector 164: b has begun 0 sectors behind what was there, not 64",
        ),
        // They begin at the same time.
        (
            &[("a", 0, 1), ("b", 0, 1), ("a", 1, 1)],
            "sector 1: b has begun 0 sectors behind what was there, not 64",
        ),
        (
            &[("a", 0, 2), blank(GAP), ("b", 0, 1), ("a", 2, 1)],
            "sector 67: a goes on after another",
        ),
        // One writes over the other.
        (
            &[("a", 0, 9), blank(GAP), ("b", 1, 1)],
            "sector 73: b has begun elsewhere",
        ),
        (
            &[("a", 0, 100), ("b", 0, 52)],
            "sector 100: b has begun 0 sectors behind what was there, not 64",
        ),
        (&[("a", 0, 1), ("a", 2, 1)], "sector 1: 2 after 1 records"),
        (
            &[("a", 0, 1), blank(1), ("a", 1, 1)],
            "sector 2: a has left out 1 sectors",
        ),
        (
            &[blank(GAP), ("a", 0, 1)],
            "sector 64: a has begun 64 sectors behind what was there, not 0",
        ),
        (
            &[("a", 0, 1), ("no record", 0, 1)],
            "sector 1: \"no record 0\"",
        ),
    ];
    for (bad, why) in all {
        assert_eq!(judge(&history(bad)), Err((*why).to_owned()));
    }
}
