//! What holds for every input and every plan.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use disklet_core::config::Config;
use disklet_core::diag::{Diagnostic, Diagnostics, Severity};
use disklet_core::domain::Bus;
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::plan::{Access, CopyMode, HostPath, Master, Plan, PlannedDisk, Source, Step};
use disklet_core::resolve::resolve;
use disklet_core::text::Reveal;
use disklet_core::yaml::{self, Limits};

use super::xml;

/// Whether somebody has looked at the node.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Node {
    Unseen,
    Seen,
}

/// What came of an input.
pub(crate) struct Outcome {
    pub(crate) errors: usize,
    pub(crate) problems: Vec<Diagnostic>,
    pub(crate) plans: Vec<Plan>,
    /// The full names of the VMs that are pods.
    pub(crate) pods: BTreeSet<String>,
    /// How many disks each VM object has, by its full name.
    pub(crate) written: BTreeMap<String, usize>,
    /// All that programs would get, secrets hidden.
    pub(crate) rendered: String,
}

/// A thousand times what such inputs take, so that it holds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const FILE: &str = "manifest.yaml";

const FACTS: &str = r#"
kind: NodeFacts
apiVersion: disklet.io/v1alpha1
paths:
  /dev/loop0: {block: "7:0", size: 1Gi}
  /dev/loop1: {block: "7:1"}
  /srv/files/disk.img: {file: 1Gi}
"#;

/// From text to everything that is printed.
pub(crate) fn read(text: &str, node: Node) -> Outcome {
    let start = Instant::now();
    let mut diags = Diagnostics::default();
    let mut objects = Objects::default();
    let namespace = Namespace::parse("default").unwrap();
    objects.read(&input(text), &namespace, &mut diags);
    let facts = match node {
        Node::Unseen => Facts::default(),
        Node::Seen => Facts::read(&input(FACTS), &mut diags),
    };
    let plans = resolve(&objects, &Config::default(), &facts, &mut diags);
    let views: Vec<_> = plans.iter().map(|plan| plan.view(Reveal::Redact)).collect();
    let mut rendered = serde_json::to_string_pretty(&views).unwrap();
    rendered += &serde_saphyr::to_string(&views).unwrap();
    for plan in &plans {
        rendered.extend(plan.steps.iter().map(ToString::to_string));
        rendered.extend(
            plan.cloud_init
                .iter()
                .flat_map(|image| image.files(Reveal::Redact))
                .map(|(_, text)| text),
        );
        rendered += &format!("{plan:?}");
    }
    assert!(start.elapsed() < PATIENCE, "took {:?}", start.elapsed());
    let pods = objects.vm_pods.iter();
    Outcome {
        errors: diags.errors(),
        problems: diags.into_sorted(),
        plans,
        pods: pods
            .map(|pod| format!("{}/{}", pod.meta.namespace, pod.meta.name))
            .collect(),
        written: objects
            .vms
            .iter()
            .map(|vm| {
                let name = format!("{}/{}", vm.meta.namespace, vm.meta.name);
                (name, vm.disks.len())
            })
            .collect(),
        rendered,
    }
}

fn input(text: &str) -> Input {
    Input {
        name: FILE.into(),
        text: text.to_owned(),
    }
}

/// Each problem stands at a line of the file, in order, and can be printed.
pub(crate) fn check_problems(text: &str, outcome: &Outcome) {
    // What is missing may be missing on a line after the last one; where such a
    // text ends without a line break is tested in the refusals.
    let breaks = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];
    let lines = text.split(breaks).count() + 1;
    let mut before = None;
    for problem in &outcome.problems {
        // How many were left out has no place.
        if problem.place.is_none() && problem.message.starts_with("and ") {
            continue;
        }
        let place = problem
            .place
            .as_ref()
            .unwrap_or_else(|| panic!("{problem}: no place"));
        assert_eq!(&*place.file, FILE);
        let line = usize::try_from(place.pos.line).unwrap();
        assert!((1..=lines).contains(&line), "{problem}: {lines} lines");
        assert!(place.pos.column >= 1, "{problem}");
        assert!(before <= Some(place.pos), "{problem}: out of order");
        before = Some(place.pos);
        assert!(!problem.message.is_empty());
    }
    if keeps_secrets_in_values(text) {
        for problem in &outcome.problems {
            let told = problem.to_string() + &serde_json::to_string(problem).unwrap();
            for marker in MARKERS {
                assert!(!told.contains(marker), "{marker} shows: {told}");
            }
        }
    }
    let told = |problem: &&Diagnostic| problem.severity == Severity::Error;
    assert!(outcome.problems.iter().filter(told).count() <= outcome.errors);
    if outcome.errors > 0 {
        assert!(
            outcome.problems.iter().any(|problem| told(&problem)),
            "no reason is told"
        );
    }
}

/// What plans promise.
pub(crate) fn check_plans(text: &str, outcome: &Outcome) {
    let mut files = BTreeSet::new();
    for plan in &outcome.plans {
        check_disks(&plan.disks);
        // Nothing that somebody wrote is left out without a word.
        if let Some(written) = outcome.written.get(&plan.full_name())
            && outcome.errors == 0
        {
            let planned = plan.disks.iter().filter(|disk| disk.origin.is_some());
            assert_eq!(planned.count(), *written, "{text}");
        }
        if outcome.pods.contains(&plan.full_name()) {
            check_disks_of_pod(&plan.disks);
        }
        let document = plan.domain.to_xml();
        assert_eq!(xml::problem(&document), None, "{document}");
        let mut turns: Vec<_> = plan.disks.iter().filter_map(|disk| disk.boot).collect();
        let known = |disk: &PlannedDisk| !matches!(disk.source, Source::Later(_));
        let mut own = plan
            .disks
            .iter()
            .filter(|disk| disk.name != PlannedDisk::CLOUD_INIT);
        assert_eq!(turns.is_empty(), own.next().is_none(), "{document}");
        let written = document.matches("<boot order=").count();
        let boots = plan.disks.iter().filter(|disk| disk.boot.is_some());
        assert_eq!(written, boots.filter(|disk| known(disk)).count());
        turns.dedup();
        assert_eq!(
            turns.len(),
            plan.disks.iter().filter(|it| it.boot.is_some()).count()
        );
        for step in &plan.steps {
            check_step(step, &mut files);
            if let Step::ExposeDevice { disk, .. } | Step::ExposeFile { disk, .. } = step {
                assert!(plan.disks.iter().any(|of| of.name == *disk), "{disk}");
            }
        }
        for reveal in [Reveal::Redact, Reveal::Show] {
            check_cloud_init(plan, reveal);
        }
    }
    if hides_secrets(text) {
        for marker in MARKERS {
            assert!(!outcome.rendered.contains(marker), "{marker} shows");
        }
    }
}

fn check_disks(disks: &[PlannedDisk]) {
    for bus in Bus::ALL {
        let count = disks.iter().filter(|disk| disk.target.bus() == bus).count();
        assert!(
            count <= usize::from(bus.limit()),
            "{count} disks on {bus:?}"
        );
    }
    let unique = |what: Vec<String>| what.iter().collect::<BTreeSet<_>>().len() == disks.len();
    assert!(unique(
        disks.iter().map(|disk| disk.target.name()).collect()
    ));
    assert!(unique(disks.iter().map(|disk| disk.name.clone()).collect()));
    assert!(unique(
        disks.iter().map(|disk| disk.serial.to_string()).collect()
    ));
    for disk in disks {
        let serial = disk.serial.as_str();
        assert!((1..=20).contains(&serial.len()), "{serial}");
        assert!(
            serial
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-._+".contains(&b))
        );
        // Who reads a master does not write it.
        let writes = disk.copy.mode() == CopyMode::None && !disk.read_only;
        assert_eq!(writes, disk.access != Access::ReadShared, "{}", disk.name);
    }
}

/// A pod's disks are all on one bus, its own before and after those it names.
fn check_disks_of_pod(disks: &[PlannedDisk]) {
    let bus = disks[0].target.bus();
    assert!(disks.iter().all(|disk| disk.target.bus() == bus));
    assert_eq!(disks[0].name, PlannedDisk::ROOT);
    assert_eq!(disks[disks.len() - 1].name, PlannedDisk::CLOUD_INIT);
}

/// Whatever we make lies in our directories, and no two steps make one file.
fn check_step<'s>(step: &'s Step, files: &mut BTreeSet<&'s str>) {
    let config = Config::default();
    let made = match step {
        Step::CreateOverlay { file, backing, .. } => {
            if let Master::Path(backing) = backing {
                assert!(
                    backing.starts_with(&config.data_dir) || backing.starts_with(&config.run_dir)
                );
            }
            assert_below(file, config.volumes_dir());
            Some(file)
        }
        Step::CreateVolume { file, size, .. } => {
            assert!(size.as_bytes() > 0);
            assert_below(file, config.volumes_dir());
            Some(file)
        }
        Step::WriteCloudInit { file, .. } => {
            assert_below(file, &config.data_dir);
            Some(file)
        }
        Step::ExposeDevice { from, to, .. } | Step::ExposeFile { from, to, .. } => {
            assert_below(to, &config.run_dir);
            match from {
                HostPath::Known(path) => assert_below(path, ""),
                HostPath::InPod {
                    kubelet_root,
                    below,
                } => {
                    assert_below(&format!("{kubelet_root}/{below}"), &config.kubelet_root);
                }
            }
            Some(to)
        }
        Step::FillRoot {
            device, image_file, ..
        } => {
            assert_below(device, &config.run_dir);
            assert_below(image_file, &config.data_dir);
            None
        }
        _ => None,
    };
    if let Some(made) = made {
        assert!(files.insert(made), "{made} is made twice");
    }
}

fn assert_below(path: &str, directory: &str) {
    let below = path
        .strip_prefix(directory)
        .is_some_and(|rest| rest.starts_with('/') && !rest.split('/').any(|part| part == ".."));
    let plain = !path.chars().any(char::is_control);
    assert!(below && plain, "{path:?} is not below {directory:?}");
}

/// Guests can read what they are told.
fn check_cloud_init(plan: &Plan, reveal: Reveal) {
    let Some(image) = &plan.cloud_init else {
        return;
    };
    let meta_data = image.meta_data_text(reveal);
    let parsed: serde_json::Value = serde_json::from_str(&meta_data).unwrap();
    assert!(parsed.is_object(), "{meta_data}");
    let user_data = image.user_data_text(reveal);
    if let Some(config) = user_data.strip_prefix("#cloud-config\n") {
        for document in yaml::documents(config, Limits::default()) {
            assert!(document.is_ok(), "{document:?} in\n{config}");
        }
    }
}

/// What only Secrets of the seeds have in them, plain and in base64.
const MARKERS: [&str; 2] = ["hunter2", "aHVudGVyM"];

/// Whether a changed manifest still has the markers in values of Secrets only,
/// and not in a path, which nobody can hide.
fn hides_secrets(text: &str) -> bool {
    let has_marker = |part: &str| MARKERS.iter().any(|marker| part.contains(marker));
    let public_path =
        |line: &str| line.contains("_path") && line.split("_path").skip(1).any(has_marker);
    text.split("\n---\n")
        .filter(|document| has_marker(document))
        .all(|document| document.lines().any(|line| line == "kind: Secret"))
        && !text.lines().any(public_path)
}

/// Whether the markers stand nowhere but in values of `data` and `stringData`,
/// each with its key before it: a name or a key may be told.
fn keeps_secrets_in_values(text: &str) -> bool {
    let is_value = |line: &str| {
        let line = line.trim_start().trim_start_matches("stringData: {");
        MARKERS.iter().all(|marker| {
            line.match_indices(marker).all(|(at, _)| {
                let before = &line[..at];
                let key = before.rsplit_once(": ").map(|(key, _)| key);
                key.and_then(|key| key.rsplit([' ', ',', '{']).next())
                    .is_some_and(|key| SECRET_KEYS.contains(&key))
            })
        })
    };
    hides_secrets(text) && text.lines().all(is_value)
}

/// Under what the seeds have secret values.
const SECRET_KEYS: [&str; 7] = [
    "password",
    "pin",
    "final_message",
    "bootcmd",
    "a",
    "token",
    "key",
];
