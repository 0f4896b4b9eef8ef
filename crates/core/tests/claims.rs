//! Binding of claims, against a specification that says what a right answer
//! is without saying how to find it.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "claims/model.rs"]
mod model;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use model::{Claim, Volume, World, bind, world};

/// For each claim by number, the number of its volume.
type Bound = BTreeMap<usize, usize>;

impl World {
    fn claim_of(&self, volume: &Volume) -> Option<usize> {
        let (namespace, name) = volume.kept_for.as_ref()?;
        self.claims
            .iter()
            .position(|claim| claim.namespace == *namespace && claim.name == *name)
    }

    fn is_kept_for_another(&self, volume: usize, claim: usize) -> bool {
        let volume = &self.volumes[volume];
        volume.kept_for.is_some() && self.claim_of(volume) != Some(claim)
    }

    /// The volumes that name a claim, and that it could take.
    fn keepers(&self, claim: usize) -> Vec<usize> {
        (0..self.volumes.len())
            .filter(|n| self.claim_of(&self.volumes[*n]) == Some(claim))
            .filter(|n| fits_kept(&self.volumes[*n], &self.claims[claim]))
            .collect()
    }

    /// The volumes that a claim names, or that name it: the user's own choice.
    fn named(&self, claim: usize) -> Option<Vec<usize>> {
        let by_claim = self.claims[claim].wanted;
        by_claim
            .map(|volume| vec![volume])
            .or_else(|| Some(self.keepers(claim)).filter(|keepers| !keepers.is_empty()))
    }

    /// Whether the claim may have a volume that it names, or that names it.
    fn agree(&self, number: usize, claim: usize) -> bool {
        let (volume, wanted) = (&self.volumes[number], self.claims[claim].wanted);
        let claimed = &self.claims[claim];
        match (wanted == Some(number), self.claim_of(volume) == Some(claim)) {
            (true, true) => fits_pair(volume, claimed),
            (false, true) => fits_kept(volume, claimed),
            (true, false) => fits(volume, claimed),
            (false, false) => false,
        }
    }

    /// Whether the claim may take the volume without either naming the other.
    fn suits(&self, volume: usize, claim: usize) -> bool {
        let (volume, claim) = (&self.volumes[volume], &self.claims[claim]);
        volume.kept_for.is_none()
            && fits(volume, claim)
            && claim.tier.is_none_or(|tier| volume.tier == Some(tier))
            && volume.phase.is_none_or(|phase| phase == "Available")
    }
}

fn fits_pair(volume: &Volume, claim: &Claim) -> bool {
    volume.block == claim.block
        && !volume.deleted
        && !matches!(volume.phase, Some("Released" | "Failed" | "Pending"))
}

fn fits_kept(volume: &Volume, claim: &Claim) -> bool {
    fits_pair(volume, claim) && volume.size >= claim.size && claim.modes.is_subset(&volume.modes)
}

fn fits(volume: &Volume, claim: &Claim) -> bool {
    fits_kept(volume, claim) && volume.class == claim.class
}

/// What the controller prefers comes first.
fn rank(volume: &Volume) -> (usize, u64) {
    (volume.modes.len(), volume.size)
}

/// Every volume that was given may be given to that claim.
fn is_sound(world: &World, bound: &Bound) -> Result<(), TestCaseError> {
    let distinct: BTreeSet<_> = bound.values().collect();
    prop_assert_eq!(
        distinct.len(),
        bound.len(),
        "a volume has two claims: {:?}",
        bound
    );
    for (claim, volume) in bound {
        let (claim, volume) = (*claim, *volume);
        let says_bound = world.claims[claim].phase == Some("Bound");
        prop_assert!(world.claims[claim].phase.is_none() || says_bound);
        prop_assert!(!world.is_kept_for_another(volume, claim));
        match world.named(claim) {
            Some(named) => {
                prop_assert!(named.contains(&volume));
                // What the cluster has bound is its business.
                prop_assert!(says_bound || world.agree(volume, claim));
            }
            None => prop_assert!(world.suits(volume, claim)),
        }
    }
    Ok(())
}

/// No claim goes without a volume, or has one that can do more, or is larger, for no reason.
fn is_complete(world: &World, bound: &Bound) -> Result<(), TestCaseError> {
    let given: BTreeSet<_> = bound.values().copied().collect();
    for claim in 0..world.claims.len() {
        if world.claims[claim]
            .phase
            .is_some_and(|phase| phase != "Bound")
        {
            continue;
        }
        let Some(named) = world.named(claim) else {
            let left = (0..world.volumes.len())
                .filter(|volume| !given.contains(volume) && world.suits(*volume, claim))
                .map(|volume| rank(&world.volumes[volume]))
                .min();
            let had = bound
                .get(&claim)
                .map(|volume| rank(&world.volumes[*volume]));
            match (had, left) {
                (None, left) => prop_assert_eq!(left, None, "claim {} is left out", claim),
                (Some(had), Some(left)) => {
                    prop_assert!(had <= left, "claim {claim} has too much");
                }
                (Some(_), None) => {}
            }
            continue;
        };
        // One that both sides agree on, and nobody else asks for, is had.
        let others_want = |volume: usize| {
            let wants = |other: usize| other != claim && world.claims[other].wanted == Some(volume);
            (0..world.claims.len()).any(wants)
        };
        let all_good = named.iter().all(|volume| {
            *volume < world.volumes.len()
                && !world.is_kept_for_another(*volume, claim)
                && world.agree(*volume, claim)
                && !others_want(*volume)
        });
        if all_good {
            prop_assert!(bound.contains_key(&claim), "claim {claim} has no {named:?}");
        }
    }
    Ok(())
}

/// More than usual: each case is small, and it takes several coincidences for
/// two claims to meet at one volume. The environment may ask for yet more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: default.cases.max(1000),
        failure_persistence: None,
        ..default
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn claims_are_bound_as_specified(world in world()) {
        let bound = bind(&world, &world.documents());
        is_sound(&world, &bound)?;
        is_complete(&world, &bound)?;
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(
        (world, shuffled) in world().prop_flat_map(|world| {
            let documents = Just(world.documents()).prop_shuffle();
            (Just(world), documents)
        })
    ) {
        let in_order = bind(&world, &world.documents());
        prop_assert_eq!(bind(&world, &shuffled), in_order);
    }
}
