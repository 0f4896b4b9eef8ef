//! Parts of Disklet and of Kubernetes that go while VMs come, run and go: the world
//! then equals the objects.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/faults.rs"]
mod faults;
#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/world.rs"]
mod world;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use faults::Part;
use kube::guests::{have_small_guest, vm};
use kube::{Tenant, until};
use world::{
    alone, have_idle_guest, idle_vm, pod_of, replace_pod, seed, tell, until_nothing_is_left,
};

/// How often the guest has said that it is there.
fn ticks(tenant: &Tenant, vm: &str) -> usize {
    tenant.kubectl(&["logs", vm]).matches("TICK").count()
}

/// Types a line on the console until the guest has answered.
fn have_said(tenant: &Tenant, vm: &str, line: &str, answer: &str) {
    let attach = format!("kubectl -n {} attach -it {vm}", tenant.name);
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &attach, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("script(1) starts");
    let mut keys = terminal.stdin.take().expect("there is a pipe");
    until(60, &format!("the guest says {answer}"), || {
        // What is typed before kubectl is attached is lost.
        write!(keys, "{line}\r").expect("the terminal reads");
        std::thread::sleep(Duration::from_secs(1));
        tenant.kubectl(&["logs", vm]).contains(answer).then_some(())
    });
    drop(keys);
    terminal.kill().expect("it can be ended");
    terminal.wait().expect("it ends");
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn agent_and_libvirt_are_replaced_under_a_running_vm() {
    let _alone = alone();
    have_small_guest();
    let tenant = Tenant::new("outlives");
    let guest = ["(while :; do echo TICK; sleep 1; done) &", "stay"];
    tenant.apply(&vm("outlives", "", &guest));
    tenant.await_console(180, "outlives", "GUEST-READY");
    tenant.await_ready(30, "outlives");
    let qemu = tenant.qemu("outlives").expect("QEMU runs");
    let since = tenant.condition("outlives", "Ready", "lastTransitionTime");
    for (round, part) in ["agent", "libvirt"].into_iter().enumerate() {
        replace_pod(part);
        assert_eq!(tenant.qemu("outlives"), Some(qemu.clone()), "{part}");
        let before = ticks(&tenant, "outlives");
        until(30, "the guest goes on", || {
            (ticks(&tenant, "outlives") > before + 1).then_some(())
        });
        let line = format!("echo SAID-{round}-$((6 * 7))");
        have_said(&tenant, "outlives", &line, &format!("SAID-{round}-42"));
        tenant.await_ready(30, "outlives");
    }
    // It has not been anything else meanwhile, and was started once.
    assert_eq!(
        tenant.condition("outlives", "Ready", "lastTransitionTime"),
        since
    );
    let events = tenant.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]);
    let started = events.split(' ').filter(|reason| *reason == "Started");
    // One of the pod, by the kubelet, and one of the VM.
    assert_eq!(started.count(), 2, "{events}");
    tenant.kubectl(&["delete", "vm", "outlives", "--timeout=300s"]);
    until_nothing_is_left(60, "a VM whose agent and libvirt were replaced");
}

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Applied,
    PodMade,
    LauncherRuns,
    QemuRuns,
    Deleted,
    QemuToldToEnd,
    QemuGone,
}

const PARTS: [Part; 4] = [
    Part::Agent,
    Part::Controller,
    Part::Kubelet,
    Part::ApiServer,
];
const MOMENTS: [Moment; 7] = [
    Moment::Applied,
    Moment::PodMade,
    Moment::LauncherRuns,
    Moment::QemuRuns,
    Moment::Deleted,
    Moment::QemuToldToEnd,
    Moment::QemuGone,
];

impl Moment {
    fn is_delete(self) -> bool {
        matches!(self, Self::Deleted | Self::QemuToldToEnd | Self::QemuGone)
    }

    /// Has a VM get there.
    fn reach(self, tenant: &Tenant, vm: &str) {
        tenant.apply(&idle_vm(vm, "OnFailure"));
        let pod = format!("pod/{vm}");
        match self {
            Self::Applied => {}
            Self::PodMade => until(60, "there is a pod", || {
                tenant.field(&pod, ".metadata.uid").map(drop)
            }),
            Self::LauncherRuns => tenant.await_field(60, &pod, ".status.phase", "Running"),
            Self::QemuRuns => until(60, "QEMU runs", || tenant.qemu(vm).map(drop)),
            Self::Deleted | Self::QemuToldToEnd | Self::QemuGone => {
                tenant.await_ready(90, vm);
                tenant.kubectl(&["delete", "vm", vm, "--wait=false"]);
            }
        }
        match self {
            Self::QemuToldToEnd => std::thread::sleep(Duration::from_millis(700)),
            Self::QemuGone => until(60, "QEMU is gone", || {
                tenant.qemu(vm).is_none().then_some(())
            }),
            _ => {}
        }
    }
}

fn killed_at(tenant: &Tenant, part: Part, moment: Moment) {
    let begun = Instant::now();
    let cell = format!("{part:?} killed at {moment:?}");
    let vm = format!("kill-{part:?}-{moment:?}").to_lowercase();
    moment.reach(tenant, &vm);
    part.kill();
    // Long enough for others to notice.
    std::thread::sleep(Duration::from_millis(500));
    part.mend();
    if !moment.is_delete() {
        tenant.await_ready(180, &vm);
        tenant.kubectl(&["delete", "vm", &vm, "--timeout=300s"]);
    }
    until(120, &format!("{cell}: the VM is gone"), || {
        let (found, text) = tenant.try_kubectl(&["get", "vm", &vm]);
        (!found && text.contains("NotFound")).then_some(())
    });
    until_nothing_is_left(60, &cell);
    tell(&format!("{cell}: {:.1} s", begun.elapsed().as_secs_f32()));
}

/// Every part at every moment; without DISKLET_ALL_KILLS two of them, which the commit
/// chooses.
#[test]
#[ignore = "needs a cluster: script/test"]
fn whatever_is_killed_the_world_equals_the_objects() {
    let _alone = alone();
    have_idle_guest();
    pod_of("controller");
    let tenant = Tenant::new("killed");
    let all = PARTS.map(|part| MOMENTS.map(|moment| (part, moment)));
    let all = all.concat();
    let chosen = match seed() {
        None => all,
        Some(seed) => {
            // Half of them apart: never of the same part.
            let first = usize::try_from(seed).expect("a number") % all.len();
            let second = (first + all.len() / 2) % all.len();
            vec![all[first], all[second]]
        }
    };
    for (part, moment) in chosen {
        killed_at(&tenant, part, moment);
    }
}
