//! Which volume each claim is bound to.
//!
//! In a cluster that is the API server's word: a claim that has a status is
//! taken as it says. Claims from plain files are bound here as the
//! PersistentVolume controller would do it, except that its choice between
//! equals depends on timing and ours does not.

use std::collections::{BTreeMap, BTreeSet};

use crate::manifest::{Claim, Fill, Key, Objects, PersistentVolume, VolumeMode};
use crate::names::ObjectName;

/// The outcome for every claim of the input.
#[derive(Debug)]
pub(crate) struct Bindings(BTreeMap<Key, Result<ObjectName, NotBound>>);

/// What binds.
#[derive(Clone, Copy)]
struct Binder<'o> {
    objects: &'o Objects,
    /// The class of claims that name none.
    default_class: Option<&'o str>,
}

/// Why a claim has no volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotBound {
    /// The API server says that it is not bound.
    Phase(String),
    /// It is being deleted.
    Deleted,
    /// It has a volume, which somebody fills or shall fill.
    NotFilled(Fill),
    /// The volume it names is not in the input.
    VolumeMissing(ObjectName),
    /// The volume it names belongs to another claim.
    VolumeTaken(ObjectName),
    /// The volume it names does not fit it.
    VolumeUnfit(ObjectName, String),
    /// No volume of the input fits it.
    NoMatch {
        /// For each volume, why.
        reasons: Vec<(ObjectName, String)>,
        /// The claim's class, its own or the default.
        class: String,
    },
}

impl Bindings {
    /// Binds all claims. Claims that name their volume, or that a volume
    /// names, go first; the rest follow in the order of their names. Each takes,
    /// of the volumes that fit, those with the fewest access modes, and of them the
    /// smallest.
    pub(crate) fn of(objects: &Objects) -> Self {
        let mut bindings = BTreeMap::new();
        let mut taken: BTreeSet<ObjectName> = BTreeSet::new();
        let mut open = Vec::new();
        let binder = Binder::of(objects);
        for (key, claim) in &objects.claims {
            match binder.already_bound(claim) {
                Some(Ok(volume)) if taken.contains(&volume) => {
                    bindings.insert(key.clone(), Err(NotBound::VolumeTaken(volume)));
                }
                Some(outcome) => {
                    taken.extend(outcome.iter().cloned());
                    bindings.insert(key.clone(), outcome);
                }
                None => open.push((key, claim)),
            }
        }
        for (key, claim) in open {
            let outcome = binder.best_fitting(claim, &taken);
            taken.extend(outcome.iter().cloned());
            bindings.insert(key.clone(), outcome);
        }
        // Its volume is nobody else's for that.
        for (key, outcome) in &mut bindings {
            if let (Ok(_), Some(fill)) = (&*outcome, unfinished(objects, key)) {
                *outcome = Err(NotBound::NotFilled(fill));
            }
        }
        Self(bindings)
    }

    /// The volume of a claim of the input; absent if there is no such claim.
    pub(crate) fn volume(&self, claim: &Key) -> Option<&Result<ObjectName, NotBound>> {
        self.0.get(claim)
    }
}

fn unfinished(objects: &Objects, claim: &Key) -> Option<Fill> {
    objects
        .claims
        .get(claim)?
        .fill
        .filter(|fill| !fill.is_done())
}

/// The claims of the input that nobody has bound, and that no volume of it fits.
#[must_use]
pub fn unbound_claims(objects: &Objects) -> Vec<Key> {
    let bindings = Bindings::of(objects).0.into_iter();
    let unbound = bindings.filter(|(_, bound)| matches!(bound, Err(NotBound::NoMatch { .. })));
    unbound.map(|(key, _)| key).collect()
}

/// The volumes that a cluster may bind a claim to that is not bound yet.
pub(crate) fn candidates<'o>(claim: &Claim, objects: &'o Objects) -> Vec<&'o PersistentVolume> {
    if let Some(wanted) = &claim.volume {
        return objects.volumes.get(&wanted.value).into_iter().collect();
    }
    let kept: Vec<_> = objects
        .volumes
        .values()
        .filter(|volume| kept_for(volume, claim) && misfit_of_kept(volume, claim).is_none())
        .collect();
    if !kept.is_empty() {
        return kept;
    }
    let binder = Binder::of(objects);
    let fits = |volume: &&PersistentVolume| {
        volume.claim.is_none() && binder.misfit(volume, claim).is_none()
    };
    objects.volumes.values().filter(fits).collect()
}

/// More are not told.
const MOST_REASONS: usize = 5;

impl<'o> Binder<'o> {
    fn of(objects: &'o Objects) -> Self {
        Self {
            objects,
            default_class: objects.default_class().map(|class| class.name.as_str()),
        }
    }

    /// The API server gives claims that name no class the default one.
    fn class_of<'c>(&'c self, claim: &'c Claim) -> &'c str {
        let class = claim.class.as_deref();
        class.or(self.default_class).unwrap_or_default()
    }

    fn already_bound(self, claim: &Claim) -> Option<Result<ObjectName, NotBound>> {
        // In a cluster, who has it keeps it; nobody begins with it.
        if claim.deleted && claim.phase.is_none() {
            return Some(Err(NotBound::Deleted));
        }
        if let Some(phase) = claim.phase.as_deref().filter(|phase| *phase != "Bound") {
            return Some(Err(NotBound::Phase(phase.to_owned())));
        }
        if let Some(wanted) = &claim.volume {
            let name = &wanted.value;
            let Some(volume) = self.objects.volumes.get(name) else {
                return Some(Err(NotBound::VolumeMissing(name.clone())));
            };
            if kept_for_another(volume, claim) {
                return Some(Err(NotBound::VolumeTaken(name.clone())));
            }
            // Two that name each other are a pair, whatever else they say.
            let paired = claim.phase.is_some() || kept_for(volume, claim);
            let misfit = match paired {
                true => misfit_of_pair(volume, claim),
                false => self.misfit_of_named(volume, claim),
            };
            return Some(match misfit {
                Some(why) if claim.phase.is_none() => Err(NotBound::VolumeUnfit(name.clone(), why)),
                _ => Ok(name.clone()),
            });
        }
        let volumes = self.objects.volumes.values();
        let keepers = volumes.filter(|volume| kept_for(volume, claim));
        let fitting = keepers.filter(|volume| misfit_of_kept(volume, claim).is_none());
        let keeper = fitting.min_by_key(|volume| volume.access_modes.len())?;
        Some(Ok(keeper.name.clone()))
    }

    /// A volume that is kept for the claim and does not fit keeps it from no other.
    fn best_fitting(
        self,
        claim: &Claim,
        taken: &BTreeSet<ObjectName>,
    ) -> Result<ObjectName, NotBound> {
        let mut reasons = Vec::new();
        let mut best: Option<&PersistentVolume> = None;
        let rank = |volume: &PersistentVolume| (volume.access_modes.len(), volume.capacity);
        for volume in self.objects.volumes.values() {
            if kept_for(volume, claim)
                && let Some(why) = misfit_of_kept(volume, claim)
            {
                reasons.insert(
                    0,
                    (volume.name.clone(), format!("is kept for it, but {why}")),
                );
                reasons.truncate(MOST_REASONS);
                continue;
            }
            // Enough is known of why there is none, and this one is none either.
            if reasons.len() >= MOST_REASONS && volume.capacity < claim.request {
                continue;
            }
            let why = if taken.contains(&volume.name) || kept_for_another(volume, claim) {
                Some("belongs to another claim".to_owned())
            } else {
                self.misfit(volume, claim)
            };
            match why {
                Some(why) if reasons.len() < MOST_REASONS => {
                    reasons.push((volume.name.clone(), why));
                }
                Some(_) => {}
                // Volumes come in the order of their names, so of two equals the
                // first stays.
                None if best.is_none_or(|best| rank(volume) < rank(best)) => {
                    best = Some(volume);
                }
                None => {}
            }
        }
        match best {
            Some(volume) => Ok(volume.name.clone()),
            None => Err(NotBound::NoMatch {
                reasons,
                class: self.class_of(claim).to_owned(),
            }),
        }
    }

    /// What even a volume that the claim names must fulfil.
    fn misfit_of_named(self, volume: &PersistentVolume, claim: &Claim) -> Option<String> {
        misfit_of_kept(volume, claim).or_else(|| self.misfit_of_class(volume, claim))
    }

    fn misfit_of_class(self, volume: &PersistentVolume, claim: &Claim) -> Option<String> {
        let class = self.class_of(claim);
        if volume.class != class {
            let by_default = match claim.class {
                None if !class.is_empty() => r#", the default (storageClassName: "" is none)"#,
                _ => "",
            };
            return Some(format!(
                "is of storage class {:?}, the claim of {class:?}{by_default}",
                volume.class
            ));
        }
        None
    }

    fn misfit(self, volume: &PersistentVolume, claim: &Claim) -> Option<String> {
        if volume
            .phase
            .as_deref()
            .is_some_and(|phase| phase != "Available")
        {
            return Some("is not available".to_owned());
        }
        if !claim.selector.selects(&volume.labels) {
            return Some("is not selected by the claim's labels".to_owned());
        }
        self.misfit_of_named(volume, claim)
    }
}

/// What a volume must fulfil that names the claim itself. Its class need not
/// be the claim's.
fn misfit_of_kept(volume: &PersistentVolume, claim: &Claim) -> Option<String> {
    if let Some(why) = misfit_of_pair(volume, claim) {
        return Some(why);
    }
    if volume.capacity < claim.request {
        return Some(format!(
            "has {}, the claim asks for {}",
            volume.capacity, claim.request
        ));
    }
    let mut modes = claim.access_modes.iter();
    let lacking = modes.find(|mode| !volume.access_modes.contains(mode))?;
    Some(format!("lacks the access mode {lacking}"))
}

/// What even two that name each other must fulfil: no kubelet shows a volume
/// in another way than its own.
fn misfit_of_pair(volume: &PersistentVolume, claim: &Claim) -> Option<String> {
    let other_mode = || (volume.mode != claim.mode).then(|| mode_misfit(volume.mode));
    gone(volume).or_else(other_mode).map(str::to_owned)
}

/// Why nobody can have the volume any more, or not yet.
fn gone(volume: &PersistentVolume) -> Option<&'static str> {
    if volume.deleted {
        return Some("is being deleted");
    }
    match volume.phase.as_deref()? {
        "Released" => Some("is Released"),
        "Failed" => Some("is Failed"),
        "Pending" => Some("is Pending"),
        _ => None,
    }
}

fn kept_for(volume: &PersistentVolume, claim: &Claim) -> bool {
    let (namespace, name) = (&claim.meta.namespace, &claim.meta.name);
    let uid = claim.meta.uid.as_deref();
    volume.claim.as_ref().is_some_and(|kept| {
        // A new claim of an old one's name is another claim.
        let same = kept
            .uid
            .as_deref()
            .zip(uid)
            .is_none_or(|(kept, uid)| kept == uid);
        same && kept.namespace == namespace.as_str() && kept.name == name.as_str()
    })
}

fn kept_for_another(volume: &PersistentVolume, claim: &Claim) -> bool {
    volume.claim.is_some() && !kept_for(volume, claim)
}

fn mode_misfit(mode: VolumeMode) -> &'static str {
    match mode {
        VolumeMode::Block => "is a block volume, and the claim asks for a filesystem",
        VolumeMode::Filesystem => "is a filesystem volume, and the claim asks for a block device",
    }
}

impl NotBound {
    /// What to tell, and what to do.
    pub(super) fn explain(&self) -> (String, String) {
        match self {
            Self::Phase(phase) => (
                format!("the claim is {phase}, not Bound"),
                "wait until the cluster has bound it, or see kubectl describe pvc".to_owned(),
            ),
            Self::Deleted => (
                "the claim is being deleted".to_owned(),
                "name another claim, or create it anew once it is gone".to_owned(),
            ),
            Self::NotFilled(fill) => (
                format!("the claim {}", fill.why_not()),
                format!(
                    "fill it, with disklet upload or disklet populate; if it is full, take its annotation {} away",
                    Fill::ANNOTATION
                ),
            ),
            Self::VolumeMissing(volume) => (
                format!("the claim's volume {volume} is not in the input"),
                format!("give the PersistentVolume {volume} with -f as well"),
            ),
            Self::VolumeTaken(volume) => (
                format!("the claim's volume {volume} belongs to another claim"),
                "name another volume, or mend the volume's claimRef".to_owned(),
            ),
            Self::VolumeUnfit(volume, why) => (
                format!("the claim's volume {volume} {why}"),
                "make the claim and its volume agree".to_owned(),
            ),
            Self::NoMatch { reasons, class } if reasons.is_empty() => (
                "the claim is not bound: the input has no PersistentVolume".to_owned(),
                provision_help(class),
            ),
            Self::NoMatch { reasons, class } => {
                let told: Vec<_> = reasons
                    .iter()
                    .map(|(volume, why)| format!("{volume} {why}"))
                    .collect();
                (
                    format!(
                        "the claim is not bound: no volume fits ({})",
                        told.join("; ")
                    ),
                    provision_help(class),
                )
            }
        }
    }
}

fn provision_help(class: &str) -> String {
    if class.is_empty() {
        "give a PersistentVolume that fits with -f".to_owned()
    } else {
        format!(
            "give the PersistentVolume that class {class} made for it with -f, such as from kubectl get pv -o yaml"
        )
    }
}
