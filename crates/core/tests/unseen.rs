//! What is hidden is no reason to refuse: every VM that the tests plan with all it
//! refers to is accepted, and keeps its disks, when parts of that cannot be seen.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "core itself does no I/O; the VMs are files"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use disklet_core::config::Config;
use disklet_core::diag::{Diagnostics, Severity};
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::{Namespace, ObjectName};
use disklet_core::plan::{Plan, Source};
use disklet_core::resolve::{Reference, Unseen, resolve_seeing};

/// All manifests with VM objects.
fn manifests() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut left = vec![
        root.join("crates/disklet/tests/golden"),
        root.join("crates/core/tests/golden"),
        root.join("examples"),
    ];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(|it| it.to_str()) {
                _ if path.is_dir() => left.push(path),
                Some("yaml") if !fs::read_to_string(&path).unwrap().contains("kind: VM\n") => {}
                Some("yaml") => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// The objects of a manifest, with one of its VMs.
fn with_vm(file: &Path, index: usize) -> Option<Objects> {
    let input = Input {
        name: file.display().to_string().into(),
        text: fs::read_to_string(file).unwrap(),
    };
    let mut objects = Objects::default();
    let namespace = Namespace::parse("default").unwrap();
    objects.read(&input, &namespace, &mut Diagnostics::default());
    objects.vm_pods.clear();
    if index >= objects.vms.len() {
        return None;
    }
    objects.vms = vec![objects.vms.swap_remove(index)];
    Some(objects)
}

fn references(objects: &Objects) -> BTreeSet<Reference> {
    let mut all = BTreeSet::new();
    // Files bind claims that name no volume to one that is there; in a cluster they name it.
    let named = objects
        .claims
        .values()
        .filter_map(|claim| claim.volume.as_ref());
    let volumes = named.map(|volume| Reference::Volume(volume.value.clone()));
    all.extend(volumes);
    all.extend(objects.claims.keys().cloned().map(Reference::Claim));
    all.extend(objects.secrets.keys().cloned().map(Reference::Secret));
    all.extend(
        objects
            .config_maps
            .keys()
            .cloned()
            .map(Reference::ConfigMap),
    );
    all.extend(objects.endpoints.keys().cloned().map(Reference::Endpoints));
    all
}

fn hide(objects: &mut Objects, hidden: &BTreeSet<Reference>) {
    for reference in hidden {
        match reference {
            Reference::Claim(key) => drop(objects.claims.remove(key)),
            Reference::Volume(name) => drop(objects.volumes.remove(name)),
            Reference::Secret(key) => drop(objects.secrets.remove(key)),
            Reference::ConfigMap(key) => drop(objects.config_maps.remove(key)),
            Reference::Endpoints(key) => drop(objects.endpoints.remove(key)),
            Reference::ServiceAccount(_) => {}
        }
    }
}

/// The plan, and the errors.
fn planned(objects: &Objects, unseen: &Unseen) -> (Option<Plan>, Vec<String>) {
    let mut diags = Diagnostics::default();
    let (config, facts) = (Config::default(), Facts::default());
    let mut resolved = resolve_seeing(objects, &config, &facts, unseen, &mut diags);
    let errors = diags.into_sorted().into_iter();
    let errors = errors.filter(|told| told.severity == Severity::Error);
    (
        resolved.plans.pop(),
        errors.map(|told| told.to_string()).collect(),
    )
}

fn places(plan: &Plan) -> Vec<(String, String)> {
    let disks = plan.disks.iter();
    disks
        .map(|disk| (disk.name.clone(), disk.target.name()))
        .collect()
}

#[test]
fn a_vm_that_can_be_planned_is_accepted_by_itself() {
    let mut judged = 0;
    for file in manifests() {
        let mut index = 0;
        while let Some(mut objects) = with_vm(&file, index) {
            index += 1;
            let mut seen = Unseen::objects(BTreeSet::new());
            seen.configuration = true;
            let (Some(full), errors) = planned(&objects, &seen) else {
                continue;
            };
            assert_eq!(errors, Vec::<String>::new(), "{}", file.display());
            let all = references(&objects);
            hide(&mut objects, &all);
            let (alone, errors) = planned(&objects, &Unseen::everything());
            assert_eq!(errors, Vec::<String>::new(), "{}", file.display());
            assert_eq!(places(&alone.unwrap()), places(&full), "{}", file.display());
            judged += 1;
        }
    }
    assert!(judged > 20, "{judged}");
}

#[test]
fn each_object_may_be_hidden_and_is_then_known_at_launch() {
    let mut hidden_sources = 0;
    for file in manifests() {
        let mut index = 0;
        while let Some(objects) = with_vm(&file, index) {
            let mut seen = Unseen::objects(BTreeSet::new());
            seen.configuration = true;
            let full = planned(&objects, &seen).0;
            for reference in references(&objects) {
                let Some(full) = &full else { continue };
                let mut objects = with_vm(&file, index).unwrap();
                let hidden = BTreeSet::from([reference.clone()]);
                hide(&mut objects, &hidden);
                let mut unseen = Unseen::objects(hidden);
                unseen.configuration = true;
                let (plan, errors) = planned(&objects, &unseen);
                assert_eq!(
                    errors,
                    Vec::<String>::new(),
                    "{}: {reference}",
                    file.display()
                );
                let plan = plan.unwrap();
                assert_eq!(
                    places(&plan),
                    places(full),
                    "{}: {reference}",
                    file.display()
                );
                let later = |disk: &&disklet_core::plan::PlannedDisk| {
                    matches!(disk.source, Source::Later(_))
                };
                let later = plan.disks.iter().filter(later).count();
                let before = full
                    .disks
                    .iter()
                    .filter(|disk| matches!(disk.source, Source::Later(_)));
                hidden_sources += later - before.count();
                // A disk that is not known is said to be, by name.
                let told = plan.known_later.join("\n");
                let known = full.known_later.join("\n");
                if told != known && later > 0 {
                    assert!(told.contains(&reference.to_string()), "{told}");
                }
            }
            index += 1;
        }
    }
    assert!(hidden_sources > 10, "{hidden_sources}");
}

/// A claim of a Gluster volume whose Endpoints are in its own namespace, and a VM
/// that writes to it.
fn user_of_gluster(namespace: &str, driver: &str) -> String {
    let meta = |name: &str| format!("metadata: {{name: {name}, namespace: {namespace}}}");
    format!(
        "{{kind: VM, {}, spec: {{domain: {{devices: {{disks: [{{source: {{pvc: {{claimname: c}}}}, driver: {{name: {driver}}}}}]}}}}}}}}\n---\n\
         {{kind: PersistentVolumeClaim, apiVersion: v1, {}, spec: {{volumeName: of-{namespace}, resources: {{requests: {{storage: 1Gi}}}}}}}}\n---\n\
         {{kind: PersistentVolume, apiVersion: v1, metadata: {{name: of-{namespace}}}, spec: {{capacity: {{storage: 1Gi}}, glusterfs: {{endpoints: servers, path: v}}}}}}\n",
        meta("vm"),
        meta("c")
    )
}

#[test]
fn gluster_files_whose_endpoints_are_hidden_in_one_namespace_are_told() {
    let servers = "---\n{kind: Endpoints, apiVersion: v1, metadata: {name: servers, namespace: open}, \
                   subsets: [{addresses: [{ip: 10.0.0.7}], ports: [{port: 1}]}]}\n";
    let key = (
        Namespace::parse("closed").unwrap(),
        ObjectName::parse("servers").unwrap(),
    );
    let hidden = BTreeSet::from([Reference::Endpoints(key)]);
    for (ours, theirs) in [
        ("qemu", "qemu"),
        ("qemu", "kubelet"),
        ("kubelet", "kubelet"),
    ] {
        let mut objects = Objects::default();
        let (open, closed) = (
            user_of_gluster("open", ours),
            user_of_gluster("closed", theirs),
        );
        let input = Input {
            name: "gluster.yaml".into(),
            text: format!("{open}---\n{closed}{servers}"),
        };
        let namespace = Namespace::parse("default").unwrap();
        let mut diags = Diagnostics::default();
        objects.read(&input, &namespace, &mut diags);
        let unseen = Unseen::objects(hidden.clone());
        let (config, facts) = (Config::default(), Facts::default());
        let plans = resolve_seeing(&objects, &config, &facts, &unseen, &mut diags).plans;
        let told: Vec<_> = diags.into_sorted();
        let errors = told.iter().filter(|it| it.severity == Severity::Error);
        assert_eq!(errors.count(), 0, "{told:?}");
        assert_eq!(plans.len(), 2);
        let doubt = "gluster file v/disk.img is used by two disks";
        assert!(
            told.iter().any(|it| it.message.starts_with(doubt)),
            "{ours}, {theirs}: {told:?}"
        );
    }
}
