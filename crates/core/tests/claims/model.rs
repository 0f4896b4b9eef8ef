//! Claims and volumes with few different properties, so that they often meet.

use std::collections::{BTreeMap, BTreeSet};

use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::resolve::resolve;
use proptest::prelude::*;

/// All claims and volumes of an input. Volumes are named by their number.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) claims: Vec<Claim>,
    pub(crate) volumes: Vec<Volume>,
}

#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) namespace: &'static str,
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) block: bool,
    pub(crate) class: &'static str,
    pub(crate) modes: BTreeSet<&'static str>,
    /// The label that the claim's selector asks for.
    pub(crate) tier: Option<&'static str>,
    /// `volumeName`: a volume's number, perhaps of one that does not exist.
    pub(crate) wanted: Option<usize>,
    pub(crate) phase: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub(crate) struct Volume {
    pub(crate) size: u64,
    pub(crate) block: bool,
    pub(crate) class: &'static str,
    pub(crate) modes: BTreeSet<&'static str>,
    pub(crate) tier: Option<&'static str>,
    /// `claimRef`: namespace and name.
    pub(crate) kept_for: Option<(&'static str, String)>,
    /// Somebody has deleted it.
    pub(crate) deleted: bool,
    pub(crate) phase: Option<&'static str>,
}

const MOST: usize = 6;
const NAMESPACES: [&str; 2] = ["default", "other"];
const MODES: [&str; 3] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(words)
}

/// Nothing, more often than something.
fn seldom<T: std::fmt::Debug + Clone + 'static>(
    strategy: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.3, strategy)
}

fn modes() -> impl Strategy<Value = BTreeSet<&'static str>> {
    prop_oneof![
        2 => Just(BTreeSet::new()),
        1 => prop::collection::btree_set(one_of(&MODES), 0..3),
    ]
}

fn class() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => Just(""), 1 => Just("fast")]
}

fn claim(number: usize) -> impl Strategy<Value = Claim> {
    let phase = prop_oneof![8 => Just(None), 1 => Just(Some("Bound")), 1 => Just(Some("Pending"))];
    (
        (
            one_of(&NAMESPACES),
            1..4_u64,
            prop::bool::weighted(0.9),
            class(),
            modes(),
        ),
        (
            seldom(one_of(&["gold", "silver"])),
            seldom(0..MOST + 1),
            phase,
        ),
    )
        .prop_map(
            move |((namespace, size, block, class, modes), (tier, wanted, phase))| Claim {
                namespace,
                // The same names in both namespaces.
                name: format!("claim-{}", number / 2),
                size,
                block,
                class,
                modes,
                tier,
                wanted,
                phase,
            },
        )
}

fn volume() -> impl Strategy<Value = Volume> {
    let kept_for = (one_of(&NAMESPACES), 0..MOST / 2)
        .prop_map(|(namespace, number)| (namespace, format!("claim-{number}")));
    let phase =
        prop_oneof![6 => Just(None), 1 => Just(Some("Available")), 1 => Just(Some("Released"))];
    (
        (1..5_u64, prop::bool::weighted(0.9), class(), modes()),
        (
            prop::option::of(one_of(&["gold", "silver"])),
            seldom(kept_for),
            prop::bool::weighted(0.1),
            phase,
        ),
    )
        .prop_map(
            |((size, block, class, modes), (tier, kept_for, deleted, phase))| Volume {
                size,
                block,
                class,
                modes,
                tier,
                kept_for,
                deleted,
                phase,
            },
        )
}

pub(crate) fn world() -> impl Strategy<Value = World> {
    let claims = (0..=MOST).prop_flat_map(|count| (0..count).map(claim).collect::<Vec<_>>());
    let volumes = prop::collection::vec(volume(), 0..=MOST);
    (claims, volumes).prop_map(|(mut claims, volumes)| {
        let mut seen = BTreeSet::new();
        claims.retain(|claim| seen.insert((claim.namespace, claim.name.clone())));
        World { claims, volumes }
    })
}

fn mode(block: bool) -> &'static str {
    if block { "Block" } else { "Filesystem" }
}

fn listed(words: &BTreeSet<&'static str>) -> String {
    let words: Vec<_> = words.iter().copied().collect();
    words.join(", ")
}

impl World {
    /// One document for each object, and a VM for each claim.
    pub(crate) fn documents(&self) -> Vec<String> {
        let claims = self
            .claims
            .iter()
            .enumerate()
            .flat_map(|(n, claim)| claim.documents(n));
        let volumes = self
            .volumes
            .iter()
            .enumerate()
            .map(|(n, volume)| volume.document(n));
        claims.chain(volumes).collect()
    }
}

impl Claim {
    fn documents(&self, number: usize) -> [String; 2] {
        let Self {
            namespace, name, ..
        } = self;
        let mut spec = format!(
            "volumeMode: {}, storageClassName: \"{}\", accessModes: [{}], \
             resources: {{requests: {{storage: {}Gi}}}}",
            mode(self.block),
            self.class,
            listed(&self.modes),
            self.size
        );
        if let Some(tier) = self.tier {
            spec += &format!(", selector: {{matchLabels: {{tier: {tier}}}}}");
        }
        if let Some(wanted) = self.wanted {
            spec += &format!(", volumeName: volume-{wanted}");
        }
        let status = self.phase.map_or(String::new(), |phase| {
            format!("status: {{phase: {phase}}}\n")
        });
        let meta = |name: &str| format!("metadata: {{name: {name}, namespace: {namespace}}}\n");
        [
            format!(
                "kind: PersistentVolumeClaim\n{}spec: {{{spec}}}\n{status}",
                meta(name)
            ),
            format!(
                "kind: Pod\n{}spec:\n  runtimeClassName: disklet\n  \
                 containers: [{{name: vm, image: cirros}}]\n  \
                 volumes: [{{name: disk, persistentVolumeClaim: {{claimName: {name}}}}}]\n",
                meta(&format!("vm-{number}"))
            ),
        ]
    }
}

impl Volume {
    fn document(&self, number: usize) -> String {
        let mut spec = format!(
            "volumeMode: {}, storageClassName: \"{}\", accessModes: [{}], \
             capacity: {{storage: {}Gi}}, local: {{path: /srv/{number}}}",
            mode(self.block),
            self.class,
            listed(&self.modes),
            self.size
        );
        if let Some((namespace, name)) = &self.kept_for {
            spec += &format!(", claimRef: {{namespace: {namespace}, name: {name}}}");
        }
        let labels = self
            .tier
            .map_or(String::new(), |tier| format!(", labels: {{tier: {tier}}}"));
        let status = self.phase.map_or(String::new(), |phase| {
            format!("status: {{phase: {phase}}}\n")
        });
        let deleted = match self.deleted {
            true => ", deletionTimestamp: '2026-01-02T03:04:05Z'",
            false => "",
        };
        format!(
            "kind: PersistentVolume\nmetadata: {{name: volume-{number}{labels}{deleted}}}\n\
             spec: {{{spec}}}\n{status}"
        )
    }
}

/// What each claim is bound to, by numbers, as the plans show it. A claim
/// without a volume leaves its VM unplanned.
pub(crate) fn bind(world: &World, documents: &[String]) -> BTreeMap<usize, usize> {
    let input = Input {
        name: "world.yaml".into(),
        text: documents.join("---\n"),
    };
    let mut diags = Diagnostics::default();
    let mut objects = Objects::default();
    let namespace = Namespace::parse("default").unwrap();
    objects.read(&input, &namespace, &mut diags);
    assert_eq!(
        diags.errors(),
        0,
        "{:?}\n{}",
        diags.into_sorted(),
        input.text
    );
    let plans = resolve(&objects, &Config::default(), &Facts::default(), &mut diags);
    assert_eq!(plans.len() + diags.errors(), world.claims.len());
    let number = |name: &str| name.rsplit_once('-').unwrap().1.parse().unwrap();
    plans
        .iter()
        .map(|plan| {
            let claim = plan.disks[1].claim.as_ref().unwrap();
            let asked: usize = number(plan.name.as_str());
            assert_eq!(claim.claim.as_str(), world.claims[asked].name);
            (asked, number(claim.volume.as_str()))
        })
        .collect()
}
