//! The webhook of a real API server: `script/lib/kube/bare.sh` has one. Controllers
//! are processes here, behind a Service whose endpoints are written by hand.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/cluster.rs"]
#[allow(dead_code, reason = "the controller's tests use the rest")]
mod cluster;
#[path = "kube/controller.rs"]
#[allow(dead_code, reason = "the controller's tests use the rest")]
mod controller;
#[path = "kube/webhook.rs"]
mod webhook;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster::{Place, eventually, kubectl_says};
use serde_json::json;
use webhook::Webhook;

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
";

fn vm(name: &str) -> String {
    VM.replace("NAME", name)
}

/// One of which a launcher is made, and which would run.
const POD: &str = "
apiVersion: v1
kind: Pod
metadata:
  generateName: vm-
  annotations: {kubernetes.io/target-runtime: virtlet.cloud}
spec:
  containers: [{name: vm, image: virtlet.cloud/cirros}]
";

/// Whether a VM pod that is created now is a launcher. Nothing is created.
fn is_launched(place: &Place) -> bool {
    let create = ["-n", place.namespace(), "create", "--dry-run=server"];
    let (taken, said) = kubectl_says(&[&create[..], &["-o", "yaml", "-f", "-"]].concat(), POD);
    assert!(taken, "{said}");
    said.contains("disklet.io/vm-pod:")
}

/// Two things are wrong with it, and one is only to be noticed.
fn bad(name: &str) -> String {
    let disks = "disks:\n      - source: {rbd: {monitors: [10.0.0.1], pool: p, image: i}}\n        sreial: X";
    vm(name)
        .replace("memory: 64Mi", "memory: 1Mi")
        .replace("disks:", disks)
}

#[test]
#[ignore = "needs script/kube"]
fn a_bad_vm_is_refused_when_it_is_applied() {
    let place = Place::new("webhook");
    let webhook = Webhook::installed();
    let _controller = webhook.controller(&[]);
    let (taken, said) = place.try_apply(&bad("wrong"));
    assert!(!taken, "{said}");
    for wanted in [
        "vms.disklet.io",
        "denied the request: 2 problems:\n",
        "\nspec.domain.devices.disks[0].sreial: unknown field \"sreial\"",
        "did you mean \"serial\"?",
        "\nspec.domain.memory: too little memory for a VM (found: \"1Mi\"",
        "Warning: spec.domain.devices.disks[0].source.rbd: without a Secret",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert!(place.find("vm/wrong").is_none());

    place.apply(&vm("right"));
    let (taken, said) = place.try_apply(&bad("right"));
    assert!(!taken && said.contains("2 problems"), "{said}");
    place.patch("vm/right", &json!({"metadata": {"labels": {"a": "b"}}}));
    place.patch(
        "vm/right",
        &json!({"spec": {"domain": {"memory": "128Mi"}}}),
    );
    let made = "metadata: {generateName: made-}";
    place.create(&vm("x").replace("metadata: {name: x}", made));
    place.kubectl(&["delete", "vms", "--all"]);
}

/// What came while nobody was there is refused by a condition, can be changed in
/// parts, and goes.
#[test]
#[ignore = "needs script/kube"]
fn vms_are_taken_while_no_controller_is_there() {
    let place = Place::new("outage");
    let webhook = Webhook::installed();
    let controller = webhook.controller(&[]);
    assert!(!place.try_apply(&bad("slipped")).0);
    controller.kill();
    let began = Instant::now();
    place.apply(&bad("slipped"));
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );

    let _controller = webhook.controller(&[]);
    place.eventually("vm/slipped", |vm| {
        let condition = &vm["status"]["conditions"][0];
        let message = condition["message"].as_str().unwrap_or_default();
        condition["reason"] == "Refused" && message.contains("unknown field \"sreial\"")
    });
    place.patch(
        "vm/slipped",
        &json!({"metadata": {"finalizers": ["example.com/held"]}}),
    );
    let (done, said) = kubectl_says(
        &[
            "-n",
            place.namespace(),
            "patch",
            "vm/slipped",
            "--type=merge",
            "-p",
            r#"{"spec":{"domain":{"memory":"64Mi"}}}"#,
        ],
        "",
    );
    assert!(
        done && said.contains("still refused: spec.domain.devices.disks[0].sreial"),
        "{said}"
    );
    let (done, said) = kubectl_says(
        &[
            "-n",
            place.namespace(),
            "patch",
            "vm/slipped",
            "--type=merge",
            "-p",
            r#"{"spec":{"domain":{"cpu":0}}}"#,
        ],
        "",
    );
    assert!(!done && said.contains("spec.domain.cpu"), "{said}");
    place.kubectl(&["delete", "vm", "slipped", "--wait=false"]);
    place.patch("vm/slipped", &json!({"metadata": {"finalizers": null}}));
    place.gone("vm/slipped");
}

/// The policy is to take VMs if the webhook cannot be believed: so a bad VM that
/// is taken, or a VM pod without a launcher, shows a call that failed.
#[test]
#[ignore = "needs script/kube"]
fn certificates_are_exchanged_while_vms_are_judged() {
    let place = Place::new("rotation");
    let webhook = Webhook::installed();
    let life = ["--webhook-certificate-life=30"];
    let controllers = [webhook.controller(&life), webhook.controller(&life)];
    webhook.reached_at(&[&controllers[0], &controllers[1]]);
    let first = webhook.generations();
    let ends = AtomicBool::new(false);
    let calls: u32 = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut calls = 0;
                    while !ends.load(Ordering::Relaxed) {
                        let (taken, said) = place.try_apply(&bad("judged"));
                        assert!(
                            !taken && said.contains("2 problems"),
                            "call {calls}: {said}"
                        );
                        assert!(is_launched(&place), "call {calls}");
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        // Two exchanges, by whichever replica comes first, and both serve the new one.
        let began = Instant::now();
        let mut newest = first.clone();
        let mut exchanges = 0;
        while exchanges < 2 && began.elapsed() < Duration::from_secs(100) {
            std::thread::sleep(Duration::from_millis(500));
            let now = webhook.generations();
            exchanges += u32::from(now.last() != newest.last());
            newest = now;
        }
        std::thread::sleep(Duration::from_secs(6));
        ends.store(true, Ordering::Relaxed);
        let calls = callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum();
        assert_eq!(exchanges, 2, "{newest:?}");
        calls
    });
    assert!(calls > 20, "{calls}");
    let served: Vec<_> = controllers.iter().map(webhook::serves_until).collect();
    assert_eq!(served[0], served[1]);
    assert!(served[0] > *first.last().unwrap(), "{served:?} {first:?}");
}

/// Two replicas that start together agree on one certificate, and what somebody
/// breaks is mended.
#[test]
#[ignore = "needs script/kube"]
fn what_is_broken_is_made_anew() {
    let place = Place::new("mended");
    let webhook = Webhook::installed();
    let life = ["--webhook-certificate-life=120"];
    let both = [webhook.start(&life), webhook.start(&life)];
    eventually("both are ready", || {
        both.iter().all(controller::Controller::is_ready)
    });
    webhook.reached_at(&[&both[0], &both[1]]);
    assert_eq!(webhook.generations().len(), 1);
    assert_eq!(
        webhook::serves_until(&both[0]),
        webhook::serves_until(&both[1])
    );
    let is_refused = || !place.try_apply(&bad("judged")).0 && place.find("vm/judged").is_none();
    let judged = |what: &str| {
        eventually(what, || {
            let refused = is_refused();
            place.kubectl(&["delete", "vm", "judged", "--ignore-not-found"]);
            refused
        });
        eventually(&format!("{what}, also about pods"), || is_launched(&place));
    };
    judged("the webhook is asked");
    webhook.forget_authority();
    eventually("all webhooks have an authority", || {
        webhook.has_authorities()
    });
    judged("the authority is told again");
    webhook.spoil_secret();
    eventually("the Secret is whole", || webhook.generations().len() == 1);
    judged("a new authority is told");
    webhook.delete_secret();
    eventually("there is a Secret", || webhook.generations().len() == 1);
    judged("a new Secret's authority is told");
}
