//! The agent killed at every boundary between two steps of a launcher's VM, and of
//! its end: the next agent finishes it, or undoes it.

#![expect(
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others need the rest")]
mod kube;
#[path = "kube/own_agents.rs"]
mod own_agents;
#[allow(dead_code, reason = "others cut the rest")]
#[path = "kills/shown.rs"]
mod shown;
#[path = "kube/world.rs"]
mod world;

use std::time::Instant;

use kube::{Tenant, until};
use own_agents::{Agent, WithoutAgent};
use shown::Shown;
use world::{alone, have_idle_guest, idle_vm, seed, tell, until_nothing_is_left};

/// A guard against an agent that never gets to its end.
const MOST: u32 = 40;
/// Where QEMU is there and nobody has let it run, and around that.
const OF_LAUNCHERS: [&str; 4] = [
    "before ExposeSocket",
    "before StartDomain",
    "before JoinLauncher",
    "before ResumeDomain",
];

fn is_gone(tenant: &Tenant, vm: &str) -> bool {
    !tenant.try_kubectl(&["get", "vm", vm]).0
}

fn is_ready(tenant: &Tenant, vm: &str) -> bool {
    tenant.condition(vm, "Ready", "status").as_deref() == Some("True")
}

/// Applies a VM, kills its agent there, and has the next one go on. Where it was
/// killed; nothing if it got to its end.
fn cut_in_create(tenant: &Tenant, vm: &str, cut: &str, is_wanted: bool) -> Option<String> {
    let begun = Instant::now();
    let mut agent = Agent::start(cut);
    tenant.apply(&idle_vm(vm, "OnFailure"));
    let place = agent.cut(|| is_ready(tenant, vm));
    match &place {
        Some(place) => {
            // Nobody has said that it runs, whatever QEMU does.
            assert!(!is_ready(tenant, vm), "{place}: Ready");
            if !is_wanted {
                tenant.kubectl(&["delete", "vm", vm, "--wait=false"]);
            }
        }
        // The end has boundaries of its own.
        None => agent.stop(),
    }
    let agent = Agent::start("");
    if is_wanted || place.is_none() {
        tenant.await_ready(60, vm);
        tenant.kubectl(&["delete", "vm", vm, "--timeout=300s"]);
    }
    until(60, &format!("{place:?}: the VM is gone"), || {
        is_gone(tenant, vm).then_some(())
    });
    agent.stop();
    let what = format!("agent cut {place:?} ({cut}), VM wanted: {is_wanted}");
    until_nothing_is_left(30, &what);
    tell(&format!("{what}: {:.1} s", begun.elapsed().as_secs_f32()));
    place
}

/// Deletes a VM that runs, kills its agent there, and has the next one go on.
fn cut_in_delete(tenant: &Tenant, vm: &str, boundary: &str) -> Option<String> {
    let first = Agent::start("");
    tenant.apply(&idle_vm(vm, "OnFailure"));
    tenant.await_ready(60, vm);
    first.stop();
    let mut agent = Agent::start(boundary);
    tenant.kubectl(&["delete", "vm", vm, "--wait=false"]);
    let place = agent.cut(|| is_gone(tenant, vm));
    if place.is_some() {
        assert!(!is_gone(tenant, vm), "gone before all is freed: {place:?}");
        agent = Agent::start("");
    }
    until(60, "the VM is gone", || is_gone(tenant, vm).then_some(()));
    agent.stop();
    let what = format!("agent cut {place:?} ({boundary}) in delete");
    until_nothing_is_left(30, &what);
    tell(&what);
    place
}

#[test]
#[ignore = "needs a cluster: script/test"]
fn an_agent_that_was_killed_between_steps_is_followed_by_one_that_goes_on() {
    let _alone = alone();
    have_idle_guest();
    let without = WithoutAgent::new();
    let tenant = Tenant::new("cuts");
    match seed() {
        None => all(&tenant),
        Some(seed) => some(&tenant, seed),
    }
    drop(without);
}

fn all(tenant: &Tenant) {
    let mut places = Vec::new();
    for is_wanted in [true, false] {
        let boundaries = 1..MOST;
        let cut = |boundary: u32| {
            let vm = format!("cut-{boundary}-{is_wanted}");
            cut_in_create(tenant, &vm, &boundary.to_string(), is_wanted)
        };
        places.extend(boundaries.map_while(cut));
    }
    for step in Shown::Launchers.steps() {
        let cut = format!("before {step:?}");
        assert!(OF_LAUNCHERS.contains(&cut.as_str()), "never cut {cut}");
    }
    for place in OF_LAUNCHERS {
        let times = places.iter().filter(|cut| *cut == place).count();
        assert!(times >= 2, "cut {times} times {place}: {places:?}");
    }
    let deleting = (1..MOST).map_while(|boundary| {
        let vm = format!("cut-delete-{boundary}");
        cut_in_delete(tenant, &vm, &boundary.to_string())
    });
    let deleting: Vec<_> = deleting.collect();
    assert!(deleting.contains(&"Forgetting".to_owned()), "{deleting:?}");
}

fn some(tenant: &Tenant, seed: u64) {
    // The last one leaves QEMU paused in its launcher's cgroup: always.
    let last = OF_LAUNCHERS[3];
    let chosen = OF_LAUNCHERS[usize::try_from(seed % 3).expect("a small number")];
    for (vm, place, is_wanted) in [("cut-last", last, true), ("cut-chosen", chosen, false)] {
        let cut = cut_in_create(tenant, vm, place, is_wanted);
        assert_eq!(cut.as_deref(), Some(place));
    }
    let removing = (1 + seed % 5).to_string();
    assert!(cut_in_delete(tenant, "cut-delete", &removing).is_some());
}
