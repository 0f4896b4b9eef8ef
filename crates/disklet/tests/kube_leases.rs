//! Leases of storage on a real API server: who races for one, and what the controller
//! releases. No node is needed; what agents would do is done here.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "kube/cluster.rs"]
#[allow(dead_code, reason = "others need the rest")]
mod cluster;
#[path = "kube/controller.rs"]
#[allow(dead_code, reason = "others need the rest")]
mod controller;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cluster::{Place, eventually, kubectl};
use controller::{Controller, NAMESPACE, have_rights};
use disklet::cluster::client;
use disklet::cluster::leases::{Leases, Outcome};
use disklet_core::lease::{Holder, object_name};
use serde_json::json;

fn holder(number: u32, node: &str, access: &str) -> Holder {
    let holder = json!({
        "uuid": format!("00000000-0000-0000-0000-{number:012}"),
        "namespace": "shop", "name": format!("vm-{number}"),
        "node": node, "boot": "b", "access": access, "since": "then",
    });
    serde_json::from_value(holder).unwrap()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(work)
}

async fn leases_of(namespace: &str) -> Leases {
    let client = client::connect("disklet-test").await.unwrap();
    Leases::new(client, namespace)
}

async fn held(leases: &Leases, object: &str) -> Vec<String> {
    let found = leases.api().get_opt(object).await.unwrap();
    let content = found.map(|lease| disklet::cluster::leases::content_of(&lease).unwrap());
    let holders = content.map_or(Vec::new(), |content| content.holders);
    holders.into_iter().map(|holder| holder.name).collect()
}

/// Takes it some times, and is never there together with another.
async fn come_and_go(leases: Leases, object: String, number: u32, inside: Arc<AtomicU32>) {
    let me = holder(number, &format!("node-{number}"), "write-exclusive");
    let mut times = 0;
    while times < TIMES {
        let taken = leases.take(&object, "unit", &me).await.unwrap();
        if taken != Outcome::Ours {
            assert!(matches!(taken, Outcome::Busy(..)), "{taken:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are there");
        // Said again, it changes nothing.
        let again = leases.take(&object, "unit", &me).await.unwrap();
        assert_eq!(again, Outcome::Ours);
        inside.fetch_sub(1, Ordering::SeqCst);
        leases.release(&object, |it| *it == me).await.unwrap();
        times += 1;
    }
}

/// How often each gets there.
const TIMES: u32 = 4;

#[test]
#[ignore = "needs script/kube"]
fn of_those_who_race_one_is_there_at_a_time() {
    let place = Place::new("race");
    run(async {
        let leases = leases_of(place.namespace()).await;
        let (object, inside) = (object_name("unit"), Arc::new(AtomicU32::new(0)));
        let racers = (0..6).map(|number| {
            let (leases, object) = (leases.clone(), object.clone());
            tokio::spawn(come_and_go(leases, object, number, Arc::clone(&inside)))
        });
        let all = futures::future::join_all(racers);
        let all = tokio::time::timeout(Duration::from_mins(2), all).await;
        for racer in all.unwrap() {
            racer.unwrap();
        }
        assert_eq!(leases.api().get_opt(&object).await.unwrap(), None);
    });
}

/// A Lease may be created by an update: whoever was too slow must not do that.
#[test]
#[ignore = "needs script/kube"]
fn what_was_removed_does_not_come_back() {
    let place = Place::new("stale");
    run(async {
        let leases = leases_of(place.namespace()).await;
        let object = object_name("unit");
        let [one, two] = [1, 2].map(|number| holder(number, "n", "read-shared"));
        for reader in [&one, &two] {
            let taken = leases.take(&object, "unit", reader).await.unwrap();
            assert_eq!(taken, Outcome::Ours);
        }
        assert_eq!(held(&leases, &object).await, ["vm-1", "vm-2"]);
        let writer = holder(3, "n", "write-exclusive");
        let taken = leases.take(&object, "unit", &writer).await.unwrap();
        assert!(matches!(taken, Outcome::Busy(..)), "{taken:?}");
        let seen = leases.api().get(&object).await.unwrap();
        leases.release(&object, |_| true).await.unwrap();
        assert_eq!(held(&leases, &object).await, [] as [&str; 0]);
        // With one holder left, it would be written; without any, deleted.
        assert!(!leases.release_seen(&seen, |it| *it == one).await.unwrap());
        assert!(!leases.release_seen(&seen, |_| true).await.unwrap());
        assert_eq!(leases.api().get_opt(&object).await.unwrap(), None);
        // Nor is one that came since taken for it.
        leases.take(&object, "unit", &writer).await.unwrap();
        assert!(!leases.release_seen(&seen, |_| true).await.unwrap());
        assert!(!leases.release_seen(&seen, |it| *it == one).await.unwrap());
        assert_eq!(held(&leases, &object).await, ["vm-3"]);
    });
}

/// An agent sends a release, hears nothing, and starts the VM again: what is still on its
/// way must not take the storage from it.
#[test]
#[ignore = "needs script/kube"]
fn a_late_release_takes_nothing_from_who_has_asked_again() {
    let place = Place::new("late");
    run(async {
        let leases = leases_of(place.namespace()).await;
        let object = object_name("unit");
        for access in ["write-exclusive", "read-shared"] {
            let (me, other) = (holder(1, "n", access), holder(2, "m", "read-shared"));
            leases.take(&object, "unit", &me).await.unwrap();
            if access == "read-shared" {
                leases.take(&object, "unit", &other).await.unwrap();
            }
            let before = held(&leases, &object).await;
            let seen = leases.api().get(&object).await.unwrap();
            let again = leases.take(&object, "unit", &me).await.unwrap();
            assert_eq!(again, Outcome::Ours);
            let is_me = |it: &Holder| it.uuid == me.uuid;
            assert!(!leases.release_seen(&seen, is_me).await.unwrap());
            assert_eq!(held(&leases, &object).await, before);
            leases.release(&object, |_| true).await.unwrap();
        }
    });
}

#[test]
#[ignore = "needs script/kube"]
fn the_controller_releases_what_lost_nodes_held_and_nothing_else() {
    let place = Place::new("lost");
    have_rights();
    let node = place.namespace();
    let gone = format!("{node}-gone");
    let object = object_name("unit of lost nodes");
    let of = |object: &str| run(async { held(&leases_of(NAMESPACE).await, object).await });
    run(async {
        let leases = leases_of(NAMESPACE).await;
        for (number, node) in [(1, node), (2, &gone)] {
            let reader = holder(number, node, "read-shared");
            leases
                .take(&object, "unit of lost nodes", &reader)
                .await
                .unwrap();
        }
    });
    // A busy machine does not take its lead away.
    let controller = Controller::with(&["--lease-seconds=30"]);
    eventually("the controller leads", || controller.leads());
    eventually("the holder of a node that is not there goes", || {
        of(&object) == ["vm-1"]
    });
    // A node that nobody hears of may run. The one here never was heard of.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(of(&object), ["vm-1"]);
    let taint = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute";
    kubectl(&["taint", "node", node, taint]);
    eventually("that of one that is out of service goes", || {
        of(&object).is_empty()
    });
    let names = kubectl(&["-n", NAMESPACE, "get", "leases", "-o", "name"]);
    assert!(!names.contains(&object), "{names}");
    assert!(controller.leads(), "it still leads");
}
