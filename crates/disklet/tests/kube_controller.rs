//! The controller against a real cluster: `script/kube up`, then
//! `eval "$(script/kube env)"`. No node is needed. What a kubelet and an agent
//! would do is done here, by hand.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/cluster.rs"]
#[allow(dead_code, reason = "the webhook's tests use the rest")]
mod cluster;
#[path = "kube/controller.rs"]
#[allow(dead_code, reason = "the webhook's tests use the rest")]
mod controller;

use std::time::{Duration, Instant};

use cluster::{Place, eventually, kubectl};
use controller::Controller;
use serde_json::json;

const VM: &str = "
apiVersion: disklet.io/v1alpha1
kind: VM
metadata: {name: NAME}
spec:
  restartPolicy: Always
  domain:
    memory: 64Mi
    devices:
      disks:
      - source: {image: {name: example.com/cirros}}
";

fn claimed(name: &str, claim: &str) -> String {
    let source = format!("{{pvc: {{claimname: {claim}}}}}");
    VM.replace("NAME", name)
        .replace("{image: {name: example.com/cirros}}", &source)
}

fn vm(name: &str) -> String {
    VM.replace("NAME", name)
}

/// Finalizer, pod and one event; and as little when the VM runs.
#[test]
#[ignore = "needs script/kube"]
fn a_vm_starts_with_two_writes_and_one_event() {
    let place = Place::new("start");
    place.open_node();
    let controller = Controller::start();
    place.apply(&vm("one"));
    let pod = place.eventually("pod/one", |pod| pod["metadata"]["uid"].is_string());
    assert_eq!(pod["metadata"]["finalizers"], json!(["disklet.io/agent"]));
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "VM");
    assert_eq!(pod["spec"]["restartPolicy"], "Always");
    let one = place.get("vm/one");
    assert_eq!(one["metadata"]["finalizers"], json!(["disklet.io/vm"]));
    place.event("one", "Launching");
    place.eventually("pod/one", |pod| pod["spec"]["nodeName"].is_string());
    place.set_running("one");
    place.agent_says("one", "Running");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(
        controller.writes(),
        "events create done 1, pods create done 1, vms patch done 1"
    );
    let status = &place.get("vm/one")["status"];
    assert_eq!(status["phase"], "Running");
    assert_eq!(
        status["conditions"].as_array().unwrap().len(),
        1,
        "{status}"
    );
}

/// As people type them: what the API server makes of the definitions.
#[test]
#[ignore = "needs script/kube"]
fn objects_are_found_by_their_short_names_and_categories() {
    let place = Place::new("names");
    place.apply(&vm("named"));
    place.apply(
        "apiVersion: virtlet.k8s/v1\n\
         kind: VirtletImageMapping\n\
         metadata: {name: mapped}\n\
         spec: {translations: [{name: a, url: \"https://example.com/a.img\"}]}\n",
    );
    let found = |what: &str| place.kubectl(&["get", what, "-o", "name"]);
    let vm = "vm.disklet.io/named\n";
    let mapping = "virtletimagemapping.virtlet.k8s/mapped\n";
    assert_eq!(found("dvm"), vm);
    assert_eq!(found("vim"), mapping);
    let ours = found("disklet");
    assert!(ours.contains(vm) && ours.contains(mapping), "{ours}");
    let all = found("all");
    assert!(all.contains(vm) && !all.contains(mapping), "{all}");
}

#[test]
#[ignore = "needs script/kube"]
fn a_stopped_vm_has_no_pod_and_a_started_one_has_a_new_one() {
    let place = Place::new("stop");
    let _controller = Controller::start();
    place.apply(&vm("two"));
    let first = place.running("two");
    place.patch("vm/two", &json!({"spec": {"running": false}}));
    place.eventually("pod/two", |pod| {
        !pod["metadata"]["deletionTimestamp"].is_null()
    });
    assert_eq!(
        place.get("vm/two")["status"]["phase"],
        "Running",
        "it still runs"
    );
    place.ended("two");
    place.agent_lets_go("two");
    place.eventually("vm/two", |vm| vm["status"]["phase"] == "Stopped");
    place.event("two", "Stopped");
    place.patch("vm/two", &json!({"spec": {"running": true}}));
    let second = place.eventually("pod/two", |pod| pod["metadata"]["uid"].is_string());
    assert_ne!(second["metadata"]["uid"], first["metadata"]["uid"]);
    place.eventually("vm/two", |vm| vm["status"]["phase"] == "Pending");
}

#[test]
#[ignore = "needs script/kube"]
fn a_deleted_vm_goes_after_its_pod_even_if_that_is_deleted_by_force() {
    let place = Place::new("delete");
    let _controller = Controller::start();
    place.apply(&vm("three"));
    place.running("three");
    place.kubectl(&["delete", "vm", "three", "--wait=false"]);
    place.eventually("pod/three", |pod| {
        !pod["metadata"]["deletionTimestamp"].is_null()
    });
    place.kubectl(&[
        "delete",
        "pod",
        "three",
        "--force",
        "--grace-period=0",
        "--wait=false",
    ]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        place.find("pod/three").is_some(),
        "its agent has not let go"
    );
    assert!(place.find("vm/three").is_some(), "its pod is still there");
    place.agent_lets_go("three");
    place.gone("pod/three");
    place.gone("vm/three");
}

#[test]
#[ignore = "needs script/kube"]
fn a_refused_vm_has_no_pod_and_a_condition_that_says_why() {
    let place = Place::new("refused");
    let _controller = Controller::start();
    place.apply(&vm("four").replace("memory: 64Mi", "memory: 1Mi"));
    let four = place.eventually("vm/four", |vm| vm["status"]["phase"] == "Pending");
    let condition = &four["status"]["conditions"][0];
    assert_eq!(condition["type"], "Accepted");
    assert_eq!(condition["status"], "False");
    assert_eq!(condition["reason"], "Refused");
    assert_eq!(condition["observedGeneration"], 1);
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("spec.domain.memory: too little memory"),
        "{message}"
    );
    place.event("four", "Refused");
    assert!(place.find("pod/four").is_none());
    assert!(four["metadata"]["finalizers"].is_null(), "nothing holds it");

    place.patch("vm/four", &json!({"spec": {"domain": {"memory": "64Mi"}}}));
    place.eventually("pod/four", |pod| pod["metadata"]["uid"].is_string());
    let four = place.eventually("vm/four", |vm| {
        vm["status"]["conditions"][0]["status"] == "True"
    });
    assert_eq!(four["status"]["conditions"][0]["observedGeneration"], 2);
}

#[test]
#[ignore = "needs script/kube"]
fn a_vm_is_launched_as_soon_as_its_claim_is_bound() {
    let place = Place::new("claims");
    let _controller = Controller::start();
    place.apply(&claimed("five", "disk"));
    let five = place.eventually("vm/five", |vm| vm["status"]["phase"] == "Pending");
    let condition = &five["status"]["conditions"][0];
    assert_eq!(condition["reason"], "ClaimNotBound");
    let message = condition["message"].as_str().unwrap();
    assert!(message.contains("the claim disk is missing"), "{message}");
    place.event("five", "ClaimNotBound");

    place.claim("disk");
    place.eventually("vm/five", |vm| {
        let message = vm["status"]["conditions"][0]["message"].as_str();
        message.is_some_and(|message| message.contains("is Pending, not Bound"))
    });
    place.volume("disk", json!({"hostPath": {"path": "/tmp"}}));
    let bound = Instant::now();
    place.eventually("pod/five", |pod| {
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        volumes
            .iter()
            .any(|volume| volume["persistentVolumeClaim"]["claimName"] == "disk")
    });
    assert!(bound.elapsed() < Duration::from_secs(10));
    let claim = place.get("pvc/disk");
    assert_eq!(
        claim["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
}

#[test]
#[ignore = "needs script/kube"]
fn a_claim_that_waits_for_a_pod_is_carried_by_the_launcher() {
    let place = Place::new("awaits");
    let _controller = Controller::start();
    place.class_that_waits();
    place.claim_of_class("later");
    place.apply(&claimed("fourteen", "later"));
    place.eventually("pod/fourteen", |pod| {
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        volumes
            .iter()
            .any(|volume| volume["persistentVolumeClaim"]["claimName"] == "later")
    });
    assert_eq!(place.get("pvc/later")["status"]["phase"], "Pending");
}

#[test]
#[ignore = "needs script/kube"]
fn a_pod_that_the_cluster_does_not_take_is_told_and_tried_again() {
    let place = Place::new("quota");
    let _controller = Controller::start();
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    });
    place.apply(&quota.to_string());
    place.eventually("resourcequota/none", |quota| {
        quota["status"]["hard"]["pods"] == "0"
    });
    place.apply(&vm("thirteen"));
    place.eventually("vm/thirteen", |vm| {
        let conditions = vm["status"]["conditions"].as_array();
        conditions.is_some_and(|all| {
            let refused = |it: &serde_json::Value| {
                let message = it["message"].as_str().unwrap();
                it["reason"] == "PodRefused" && message.contains("exceeded quota")
            };
            all.iter().any(refused)
        })
    });
    place.kubectl(&["delete", "resourcequota", "none"]);
    place.eventually("pod/thirteen", |pod| pod["metadata"]["uid"].is_string());
}

#[test]
#[ignore = "needs script/kube"]
fn a_claim_that_qemu_opens_is_held_while_a_vm_names_it() {
    let place = Place::new("direct");
    let _controller = Controller::start();
    place.claim("lun");
    let iscsi =
        json!({"iscsi": {"targetPortal": "192.0.2.1", "iqn": "iqn.2020-01.test:a", "lun": 1}});
    place.volume("lun", iscsi);
    place.apply(&claimed("six", "lun"));
    let pod = place.eventually("pod/six", |pod| pod["metadata"]["uid"].is_string());
    assert_eq!(
        pod["metadata"]["annotations"]["disklet.io/direct-claims"],
        "lun"
    );
    let held = |claim: &serde_json::Value| {
        let finalizers = claim["metadata"]["finalizers"].as_array();
        finalizers.is_some_and(|all| all.contains(&json!("disklet.io/in-use")))
    };
    assert!(held(&place.get("pvc/lun")));
    // Another VM of that claim, which is never launched.
    place.apply(&claimed("seven", "lun").replace("spec:", "spec:\n  running: false"));
    place.eventually("vm/seven", |vm| vm["status"]["phase"] == "Stopped");
    place.kubectl(&["delete", "pvc", "lun", "--wait=false"]);
    place.kubectl(&["delete", "vm", "six", "--wait=false"]);
    place.gone("vm/six");
    std::thread::sleep(Duration::from_secs(1));
    assert!(held(&place.get("pvc/lun")), "the other VM names it");
    place.kubectl(&["delete", "vm", "seven", "--wait=false"]);
    place.gone("pvc/lun");
}

#[test]
#[ignore = "needs script/kube"]
fn another_pod_of_its_name_is_left_alone_and_the_vm_follows_it() {
    let place = Place::new("taken");
    let _controller = Controller::start();
    let other = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "eight"},
        "spec": {"containers": [{"name": "other", "image": "example.com/other"}]},
    });
    place.apply(&other.to_string());
    let other = place.get("pod/eight");
    place.apply(&vm("eight"));
    let eight = place.eventually("vm/eight", |vm| vm["status"]["phase"] == "Pending");
    assert_eq!(eight["status"]["conditions"][0]["reason"], "NameTaken");
    place.event("eight", "NameTaken");
    assert_eq!(
        place.get("pod/eight")["metadata"]["uid"],
        other["metadata"]["uid"]
    );
    place.kubectl(&["delete", "pod", "eight", "--grace-period=0", "--force"]);
    let ours = place.eventually("pod/eight", |pod| {
        pod["metadata"]["ownerReferences"][0]["kind"] == "VM"
    });
    assert_ne!(ours["metadata"]["uid"], other["metadata"]["uid"]);
}

#[test]
#[ignore = "needs script/kube"]
fn a_pod_that_has_failed_is_replaced_after_a_while_and_a_looping_vm_is_told() {
    let place = Place::new("again");
    let _controller = Controller::start();
    place.apply(&vm("nine"));
    let first = place.running("nine");
    place.looping("nine", 1, "the disk is broken");
    let nine = place.eventually("vm/nine", |vm| vm["status"]["phase"] == "Restarting");
    assert_eq!(nine["status"]["restarts"], 1);
    let launched = nine["status"]["conditions"].as_array().unwrap();
    let launched = launched.iter().find(|it| it["type"] == "Launched").unwrap();
    assert_eq!(launched["reason"], "Crashed");
    let message = "the VM has crashed: the disk is broken; it is started again";
    assert_eq!(launched["message"], message);
    place.event("nine", "Crashed");

    let evicted = Instant::now();
    place.evicted("nine");
    place.agent_lets_go("nine");
    place.eventually("vm/nine", |vm| vm["status"]["restarts"] == 2);
    let second = place.eventually("pod/nine", |pod| {
        pod["metadata"]["uid"] != first["metadata"]["uid"]
    });
    assert!(
        evicted.elapsed() >= Duration::from_secs(9),
        "{:?}",
        evicted.elapsed()
    );
    assert_eq!(
        second["metadata"]["annotations"]["disklet.io/restarts"],
        "2"
    );
}

#[test]
#[ignore = "needs script/kube"]
fn pods_of_a_node_that_is_gone_are_let_go() {
    let place = Place::new("lost");
    let _controller = Controller::start();
    place.apply(&vm("ten"));
    place.running("ten");
    place.kubectl(&["delete", "vm", "ten", "--wait=false"]);
    place.kubectl(&[
        "delete",
        "pod",
        "ten",
        "--force",
        "--grace-period=0",
        "--wait=false",
    ]);
    std::thread::sleep(Duration::from_secs(2));
    assert!(place.find("pod/ten").is_some());
    place.lose_node();
    place.gone("pod/ten");
    place.gone("vm/ten");
}

/// Wherever the controller is killed, the next one ends what it has begun.
#[test]
#[ignore = "needs script/kube"]
fn a_controller_may_be_killed_at_any_time() {
    let place = Place::new("killed");
    for (round, delay) in [0, 40, 80, 120, 200, 400].into_iter().enumerate() {
        let name = format!("kill-{round}");
        let controller = Controller::start();
        place.apply(&vm(&name));
        std::thread::sleep(Duration::from_millis(delay));
        controller.kill();
        let controller = Controller::start();
        let pod = format!("pod/{name}");
        place.eventually(&pod, |pod| pod["metadata"]["uid"].is_string());
        let held = json!(["disklet.io/vm"]);
        assert_eq!(
            place.get(&format!("vm/{name}"))["metadata"]["finalizers"],
            held
        );
        place.kubectl(&["delete", "vm", &name, "--wait=false"]);
        std::thread::sleep(Duration::from_millis(delay));
        controller.kill();
        let _controller = Controller::start();
        place.gone(&pod);
        place.gone(&format!("vm/{name}"));
    }
}

#[test]
#[ignore = "needs script/kube"]
fn of_two_controllers_one_works_and_the_other_follows() {
    let place = Place::new("leader");
    let first = Controller::with(&["--lease-seconds=5"]);
    let second = Controller::with(&["--lease-seconds=5"]);
    eventually("one of the two leads", || first.leads() != second.leads());
    let (leader, other) = if first.leads() {
        (first, second)
    } else {
        (second, first)
    };
    eventually("both are ready", || leader.is_ready() && other.is_ready());
    place.apply(&vm("eleven"));
    place.eventually("pod/eleven", |pod| pod["metadata"]["uid"].is_string());
    assert_eq!(other.writes(), "", "it only waits");
    let killed = Instant::now();
    leader.kill();
    place.apply(&vm("twelve"));
    place.eventually("pod/twelve", |pod| pod["metadata"]["uid"].is_string());
    assert!(
        killed.elapsed() < Duration::from_secs(8),
        "{:?}",
        killed.elapsed()
    );
    // Who ends in order does not keep others waiting.
    let third = Controller::with(&["--lease-seconds=60"]);
    eventually("the third waits", || third.is_ready());
    let ended = Instant::now();
    other.end();
    eventually("the third leads", || third.leads());
    assert!(
        ended.elapsed() < Duration::from_secs(12),
        "{:?}",
        ended.elapsed()
    );
}

#[test]
#[ignore = "needs script/kube"]
fn a_tenants_strange_objects_disturb_nobody() {
    let place = Place::new("strange");
    let _controller = Controller::start();
    // The longest name, which is no label.
    let long = format!("{}.b", "a".repeat(250));
    place.apply(&vm(&long));
    place.eventually(&format!("pod/{long}"), |pod| {
        pod["metadata"]["uid"].is_string()
    });
    let huge = format!("a: {}", "x".repeat(900_000));
    let huge = vm("huge") + &format!("  cloudInit: {{userData: \"{huge}\"}}\n");
    place.create(&huge);
    place.eventually("pod/huge", |pod| pod["metadata"]["uid"].is_string());
    let mut many = vm("many").replace("      - source: {image: {name: example.com/cirros}}\n", "");
    for _ in 0..2000 {
        many += "      - {source: {sauce: 1}}\n";
    }
    place.create(&many);
    let many = place.eventually("vm/many", |vm| vm["status"]["phase"] == "Pending");
    let message = many["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(
        message.len() < 8000 && message.contains("more problems"),
        "{message}"
    );
    kubectl(&["get", "--raw", "/healthz"]);
}
