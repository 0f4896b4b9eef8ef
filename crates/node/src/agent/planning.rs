//! From a launcher pod to a plan: the VM object, and whatever its plan looks
//! for, come from the API server as text and are read as files would be.

use std::collections::{BTreeMap, BTreeSet};

use disklet::manifests::look;
use disklet::pull::{Order, Tenant, ensure_for};
use disklet::store::{Reliance, Store};
use disklet_core::config::Config;
use disklet_core::diag::{Diagnostics, Origin, Severity};
use disklet_core::facts::{Facts, ImageFact, Questions};
use disklet_core::images::{Keyring, PullPolicy};
use disklet_core::launch::{LeftOut, leave_out};
use disklet_core::live::RunningVm;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Sha256;
use disklet_core::plan::{Claimed, Plan, Source};
use disklet_core::resolve::{Reference, resolve_asking};
use disklet_core::units::ByteSize;
use serde_json::Value;

use super::Shared;
use super::cluster::Cluster;
use super::mappings::Mappings;
use super::pod::LauncherPod;
use super::progress::{Missing, Told, missing};
use super::tokens;
use crate::executor::demand_supported;
use crate::failure::{Failure, Result};

/// Why there is no plan.
#[derive(Debug)]
pub(super) enum NoPlan {
    /// The VM's author, or whoever made what it refers to, has to change
    /// something.
    Refused(String),
    /// An image does not come.
    NoImage(Missing),
    /// Something did not work, and may work later.
    Failed(Failure),
}

impl From<Failure> for NoPlan {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A plan; the images that it relies on stay until `images` is dropped.
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) generation: Option<i64>,
    #[expect(dead_code, reason = "kept for its drop")]
    pub(super) images: Reliance,
}

/// A VM as the API server has it.
struct Known<'k> {
    cluster: &'k Cluster,
    config: &'k Config,
    mappings: &'k Mappings,
    pod: &'k LauncherPod,
    texts: Vec<Value>,
    asked: BTreeSet<Reference>,
    /// The VM runs: disks that only a new pod can carry are left out.
    runs: bool,
}

/// What a VM object wants of a VM that runs by it.
pub(super) struct Wish<'w> {
    known: Known<'w>,
    facts: Facts,
    /// The plan that it would be started by, without what only a new pod can carry.
    pub(super) plan: Plan,
    pub(super) generation: Option<i64>,
    /// Claims that are left out.
    pub(super) left_out: Vec<LeftOut>,
    #[expect(dead_code, reason = "kept for its drop")]
    images: Reliance,
}

impl Wish<'_> {
    /// How a disk of the plan comes into the VM, which has it not.
    pub(super) fn addition(&self, disk: &str, vm: RunningVm) -> std::result::Result<Plan, NoPlan> {
        let mut disks = self.plan.disks.iter();
        let origin = disks.find(|it| it.name == disk).and_then(|it| it.origin);
        let Some(origin) = origin else {
            let why = "it is made for the VM, and is there from its start".to_owned();
            return Err(NoPlan::Refused(why));
        };
        let (mut objects, mut diags) = self.known.objects();
        objects.attach_nth(origin, vm);
        let config = self.known.config;
        let mut plans = resolve_asking(&objects, config, &self.facts, &mut diags).plans;
        let plan = match plans.pop() {
            Some(plan) if diags.errors() == 0 => plan,
            _ => return Err(NoPlan::Refused(in_words(diags))),
        };
        // One without a name has that of its place, which another disk may still have.
        match plan.disks.iter().all(|it| it.name == disk) {
            true => Ok(plan),
            false => Err(NoPlan::Refused(
                "its place is taken while the VM runs\n  help: give the disk a name".to_owned(),
            )),
        }
    }
}

/// Plans what a VM object that has changed wants, and has the images for it in the store.
pub(super) fn wish<'w>(
    cluster: &'w Cluster,
    shared: &'w Shared,
    pod: &'w LauncherPod,
    earlier: &BTreeMap<String, String>,
    progress: &Told<'_>,
) -> std::result::Result<Wish<'w>, NoPlan> {
    let (known, generation) = Known::of(cluster, shared, pod, true)?;
    let left_out = known.left_out();
    let (facts, plan, images) = known.plan(&shared.config, earlier, progress)?;
    Ok(Wish {
        known,
        facts,
        plan,
        generation,
        left_out,
        images,
    })
}

/// Plans a launcher's VM, and has its images in the store. `earlier` are those that
/// it has had, by their names: what stands on them goes on with them.
pub(super) fn plan(
    cluster: &Cluster,
    shared: &Shared,
    pod: &LauncherPod,
    earlier: &BTreeMap<String, String>,
    progress: &Told<'_>,
) -> std::result::Result<Planned, NoPlan> {
    let (known, generation) = Known::of(cluster, shared, pod, false)?;
    let (_, plan, images) = known.plan(&shared.config, earlier, progress)?;
    demand_claims(&plan, pod)?;
    if let Some(why) = pod.has_no_room_for(plan.domain.memory) {
        return Err(NoPlan::Refused(why));
    }
    Ok(Planned {
        plan,
        generation,
        images,
    })
}

/// What was fetched may have been removed again before it was relied on.
fn demand_images(store: &Store, facts: &Facts) -> Result<()> {
    for (name, fact) in &facts.images {
        if !store.disk(&fact.digest).exists() {
            let what = format!("image {name} was removed while it was about to be used");
            return Err(Failure::new(what).into_outage());
        }
        store.touch(&fact.digest);
    }
    Ok(())
}

/// A volume is opened by the kubelet or by QEMU, never by both. The launcher may
/// have been made before anybody knew which volume a claim gets.
fn demand_claims(plan: &Plan, pod: &LauncherPod) -> std::result::Result<(), NoPlan> {
    for disk in &plan.disks {
        let Some(Claimed { claim, volume, .. }) = &disk.claim else {
            continue;
        };
        let by_kubelet = matches!(
            disk.source,
            Source::DiskImage { .. } | Source::BlockClaim(_)
        );
        let what = match (by_kubelet, pod.opened.contains(claim.as_str())) {
            (true, false) => "the kubelet has to open it, and the launcher pod does not have it",
            // A VM pod's flexvolumes are mounted to have their driver called; any other
            // claim of a VM pod is the kubelet's.
            (false, true) if !pod.is_vm_pod() => {
                "QEMU has to open it, and the kubelet has done so for the launcher pod"
            }
            _ => continue,
        };
        return Err(NoPlan::Refused(format!(
            "disk {}: volume {volume} of claim {claim}: {what}\n  help: the pod was made before the claim \
             was bound: it is made anew, or delete it",
            disk.name
        )));
    }
    Ok(())
}

impl<'k> Known<'k> {
    /// A VM, all that its plan looks for, and its generation.
    fn of(
        cluster: &'k Cluster,
        shared: &'k Shared,
        pod: &'k LauncherPod,
        runs: bool,
    ) -> std::result::Result<(Self, Option<i64>), NoPlan> {
        let Some(vm) = cluster.vm(pod)? else {
            return Err(NoPlan::Refused("the pod's VM object is gone".to_owned()));
        };
        let generation = vm["metadata"]["generation"].as_i64();
        let mut known = Self {
            cluster,
            config: &shared.config,
            mappings: &shared.mappings,
            pod,
            texts: vec![vm],
            asked: BTreeSet::new(),
            runs,
        };
        known.gather()?;
        Ok((known, generation))
    }

    /// The plan, what it goes by, and its images, which are in the store.
    fn plan(
        &self,
        config: &Config,
        earlier: &BTreeMap<String, String>,
        progress: &Told<'_>,
    ) -> std::result::Result<(Facts, Plan, Reliance), NoPlan> {
        let store = Store::configured(config);
        let fetched = self.fetch_images(&store, earlier, progress)?;
        let unread = |error| Failure::new("the image store cannot be read").because(error);
        let images = store.rely().map_err(unread)?;
        let (objects, _) = self.objects();
        let mut facts = self.facts(&objects)?;
        // What was found for this tenant, not what a name stands for by now.
        facts.images = fetched;
        demand_images(&store, &facts)?;
        let plan = self.resolve(&facts)?;
        demand_supported(&plan)?;
        Ok((facts, plan, images))
    }

    /// Fetches until nothing new is asked for.
    fn gather(&mut self) -> Result<()> {
        loop {
            let (objects, mut diags) = self.objects();
            let facts = self.facts(&objects)?;
            let missing = resolve_asking(&objects, self.config, &facts, &mut diags).missing;
            let new: Vec<_> = missing.difference(&self.asked).cloned().collect();
            if new.is_empty() {
                return Ok(());
            }
            for wanted in new {
                self.texts.extend(self.cluster.get(&wanted)?);
                self.asked.insert(wanted);
            }
        }
    }

    fn objects(&self) -> (Objects, Diagnostics) {
        let mut objects = Objects::default();
        let mut diags = Diagnostics::default();
        for text in &self.texts {
            let name = |key: &str| text["metadata"][key].as_str().unwrap_or_default();
            let input = Input {
                name: Origin::object(format!(
                    "{} {}",
                    text["kind"].as_str().unwrap_or_default(),
                    name("name")
                )),
                text: text.to_string(),
            };
            objects.read(&input, &self.pod.namespace, &mut diags);
        }
        if self.runs {
            self.leave_out(&mut objects);
        }
        (objects, diags)
    }

    fn leave_out(&self, objects: &mut Objects) -> Vec<LeftOut> {
        let Some(mut vm) = objects.vms.pop() else {
            return Vec::new();
        };
        let left = leave_out(&mut vm, objects, &self.pod.carried);
        objects.vms.push(vm);
        left
    }

    /// The disks that only a new pod can carry.
    fn left_out(&self) -> Vec<LeftOut> {
        let whole = Self {
            runs: false,
            texts: self.texts.clone(),
            asked: BTreeSet::new(),
            ..*self
        };
        let (mut objects, _) = whole.objects();
        self.leave_out(&mut objects)
    }

    fn facts(&self, objects: &Objects) -> Result<Facts> {
        let questions = Questions::of(objects, self.config);
        let mut facts = look(&questions, self.config);
        facts.tokens = tokens::read(self.config, &questions.tokens)?;
        let key = (self.pod.namespace.clone(), self.pod.name.clone());
        facts.launchers.insert(key, self.pod.uid.clone());
        Ok(facts)
    }

    /// The one plan, or every reason why there is none.
    fn resolve(&self, facts: &Facts) -> std::result::Result<Plan, NoPlan> {
        let (objects, mut diags) = self.objects();
        let mut plans = resolve_asking(&objects, self.config, facts, &mut diags).plans;
        match plans.pop() {
            Some(plan) if diags.errors() == 0 => Ok(plan),
            _ => Err(NoPlan::Refused(in_words(diags))),
        }
    }

    /// Only for manifests that are right.
    fn fetch_images(
        &self,
        store: &Store,
        earlier: &BTreeMap<String, String>,
        progress: &Told<'_>,
    ) -> std::result::Result<BTreeMap<String, ImageFact>, NoPlan> {
        let (objects, _) = self.objects();
        self.resolve(&self.facts(&objects)?)?;
        let keyring = self.keyring(progress)?;
        let mut fetched = BTreeMap::new();
        for image in objects.images() {
            let before = earlier.get(image.as_written());
            if let Some(fact) = before.and_then(|digest| on_node(store, digest)) {
                fetched.insert(image.name().to_owned(), fact);
                continue;
            }
            let tenant = Tenant {
                keyring: &keyring,
                policy: policy_of(&objects),
            };
            let order = Order {
                mapping: self.mappings.now()?,
                ..Order::of(image)
            };
            let fact = ensure_for(self.config, &tenant, &order, progress)
                .map_err(|error| NoPlan::NoImage(missing(&error)))?;
            progress.has(image, &fact);
            fetched.insert(image.name().to_owned(), fact);
        }
        Ok(fetched)
    }

    /// The credentials of the pod. One that is missing or wrong may not be needed:
    /// it is told, and the others are tried, as the kubelet does.
    fn keyring(&self, progress: &Told<'_>) -> Result<Keyring> {
        let mut keyring = Keyring::default();
        for name in &self.pod.pull_secrets {
            let key = (self.pod.namespace.clone(), name.clone());
            let taken = match self.cluster.get(&Reference::Secret(key)) {
                Ok(Some(secret)) => keyring.take(&secret),
                Ok(None) => Err("there is no such Secret".to_owned()),
                Err(failure) if failure.is_outage() => return Err(failure),
                Err(failure) => Err(failure.to_string()),
            };
            if let Err(why) = taken {
                progress.unusable_secret(name, &why);
            }
        }
        Ok(keyring)
    }
}

/// An image by the digest that a VM's record has.
fn on_node(store: &Store, digest: &str) -> Option<ImageFact> {
    let digest = Sha256::parse_hex(digest)?;
    let size = store.disk(&digest).metadata().ok()?.len();
    let size = ByteSize::from_bytes(size);
    Some(ImageFact { digest, size })
}

/// That of the VM pod; VM objects do not say.
fn policy_of(objects: &Objects) -> PullPolicy {
    let pod = objects.vm_pods.first();
    pod.map_or(PullPolicy::default(), |pod| pod.container.pull_policy)
}

/// Everything that is wrong: what, in which field, and what to do.
fn in_words(diags: Diagnostics) -> String {
    let errors = diags.into_sorted().into_iter();
    let errors = errors.filter(|it| it.severity == Severity::Error);
    let lines: Vec<_> = errors
        .map(|error| error.in_words_of(|_| None).to_string())
        .collect();
    match lines.is_empty() {
        true => "the VM has no plan".to_owned(),
        false => lines.join("\n"),
    }
}
