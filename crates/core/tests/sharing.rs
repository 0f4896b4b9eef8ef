//! Who may use a storage together, against a model that knows what each way of
//! writing it down means.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "sharing/model.rs"]
mod model;
#[path = "sharing/spellings.rs"]
mod spellings;

use disklet_core::config::Config;
use disklet_core::diag::{Diagnostics, Severity};
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::resolve::resolve;
use proptest::prelude::*;

use model::{Access, Disk, Machine, Way, World, world};

/// Two disks of one storage that must not be there at once.
fn conflict(one: &Disk, two: &Disk) -> bool {
    let together = match (one.access, two.access) {
        // Alone.
        (Access::WriteExclusive, _) | (_, Access::WriteExclusive) => false,
        (Access::WriteShared, other) => other == Access::WriteShared,
        (Access::ReadShared, other) => other == Access::ReadShared,
    };
    one.storage.is(two.storage) && !together
}

/// One claim is one disk of a machine, however it is used.
fn has_claim_twice(machine: &Machine) -> bool {
    let claims = machine.disks.iter().filter_map(|disk| match disk.way {
        Way::Claim(name, _) => Some(name),
        Way::Direct(_) | Way::Flex(_) => None,
    });
    let mut claims: Vec<_> = claims.collect();
    let all = claims.len();
    claims.sort_unstable();
    claims.dedup();
    claims.len() < all
}

/// A machine is on one node.
fn is_torn(machine: &Machine) -> bool {
    let disks = &machine.disks;
    let far = |one: &Disk| disks.iter().any(|two| one.storage.is_far_from(two.storage));
    disks.iter().any(far)
}

/// Two machines are two pods.
fn have_one_pods(one: &Machine, two: &Machine) -> bool {
    let meet = |one: &Disk, two: &Disk| {
        one.storage.is(two.storage) && (one.is_for_one_pod() || two.is_for_one_pod())
    };
    let mut disks = one.disks.iter();
    disks.any(|one| two.disks.iter().any(|two| meet(one, two)))
}

fn is_free_of_conflict(world: &World) -> bool {
    let machines = &world.machines;
    let disks: Vec<_> = machines.iter().flat_map(|it| &it.disks).collect();
    let meets = |(index, one): (usize, &&Disk)| disks[..index].iter().any(|two| conflict(one, two));
    let twice = |(index, one): (usize, &Machine)| {
        let before = &machines[..index];
        before.iter().any(|two| have_one_pods(one, two))
    };
    !disks.iter().enumerate().any(meets)
        && !disks.iter().any(|disk| disk.shares_filesystem())
        && !machines.iter().enumerate().any(twice)
        && !machines.iter().any(has_claim_twice)
        && !machines.iter().any(is_torn)
}

/// How many plans there are, and all errors.
fn outcome(text: &str) -> (usize, Vec<String>) {
    let mut diags = Diagnostics::default();
    let mut objects = Objects::default();
    let input = Input {
        name: "world.yaml".into(),
        text: text.to_owned(),
    };
    let namespace = Namespace::parse("default").unwrap();
    objects.read(&input, &namespace, &mut diags);
    let node = Input {
        name: "node.yaml".into(),
        text: spellings::NODE.to_owned(),
    };
    let facts = Facts::read(&node, &mut diags);
    let plans = resolve(&objects, &Config::default(), &facts, &mut diags);
    let errors = diags.into_sorted().into_iter();
    let errors = errors.filter(|problem| problem.severity == Severity::Error);
    (plans.len(), errors.map(|error| error.message).collect())
}

/// Nothing else is wrong with these inputs.
fn is_about_sharing(error: &str) -> bool {
    error.starts_with("two VMs would use ")
        || error.starts_with("two disks lead to one storage")
        || error == "one claim cannot be two disks"
        || error == "no node has all volumes of the VM"
        || error.starts_with("a disk.img cannot be write-shared")
}

/// Many: each is small, and there are many pairs of spellings.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(4000),
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn who_uses_a_storage_agrees_with_all_who_do(world in world()) {
        let text = world.document();
        let (plans, errors) = outcome(&text);
        for error in &errors {
            prop_assert!(is_about_sharing(error), "{error}\n{text}");
        }
        if is_free_of_conflict(&world) {
            prop_assert_eq!(&errors, &Vec::<String>::new(), "{}", text);
            prop_assert_eq!(plans, world.machines.len());
        } else {
            prop_assert_ne!(&errors, &Vec::<String>::new(), "{}", text);
        }
    }

    /// So that neither half of the test above is empty.
    #[test]
    fn worlds_are_of_both_kinds(worlds in prop::collection::vec(world(), 100)) {
        let free = worlds.iter().filter(|world| is_free_of_conflict(world)).count();
        prop_assert!((10..=90).contains(&free), "{free} of 100 are free of conflict");
    }
}
