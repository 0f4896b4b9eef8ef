//! Every VM that this repository has is one for the API server, too.

use std::path::{Path, PathBuf};

use disklet_core::crd::{Kind, Schema, vm_schema};
use serde_json::Value;

use crate::yaml;

/// What the API server would have against a value.
fn problems(schema: &Schema, value: &Value, at: &str) -> Vec<String> {
    let fits = match schema.kind {
        None => true,
        Some(Kind::Object) => value.is_object(),
        Some(Kind::Array) => value.is_array(),
        Some(Kind::String) => value.is_string(),
        Some(Kind::Integer) => value.is_i64(),
        Some(Kind::Boolean) => value.is_boolean(),
    };
    let mut found = Vec::new();
    if !fits {
        found.push(format!("{at}: {value} is of another type"));
    }
    if !schema.words.is_empty() && !schema.words.iter().any(|word| value == word) {
        found.push(format!("{at}: {value} is none of {:?}", schema.words));
    }
    if let (Some(items), Some(item)) = (value.as_array(), &schema.items) {
        let each = items.iter().enumerate();
        found.extend(each.flat_map(|(i, value)| problems(item, value, &format!("{at}[{i}]"))));
    }
    if let Some(fields) = value.as_object() {
        let missing = schema
            .required
            .iter()
            .filter(|name| !fields.contains_key(**name));
        found.extend(missing.map(|name| format!("{at}.{name} is missing")));
        for (name, field) in &schema.properties {
            if let Some(value) = fields.get(*name) {
                found.extend(problems(field, value, &format!("{at}.{name}")));
            }
        }
    }
    found
}

fn manifests(below: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            manifests(&path, found);
        } else if path
            .extension()
            .is_some_and(|end| end == "yaml" || end == "json")
        {
            found.push(path);
        }
    }
}

#[test]
fn every_vm_of_this_repository_fits_the_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    manifests(&root.join("examples"), &mut files);
    manifests(&root.join("crates/disklet/tests/golden"), &mut files);
    let schema = vm_schema();
    let mut vms = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        if !text.contains("kind: VM") {
            continue;
        }
        for vm in yaml::documents(&text) {
            if vm["kind"] == "VM" {
                let problems = problems(&schema, &vm, "");
                assert!(problems.is_empty(), "{}: {problems:#?}", file.display());
                vms += 1;
            }
        }
    }
    assert!(vms > 15, "{vms} VMs were looked at");
}

/// Or the test before would take anything.
#[test]
fn what_does_not_fit_is_found() {
    let schema = vm_schema();
    for (vm, wanted) in [
        ("spec: {}", ".spec.domain is missing"),
        (
            "spec: {domain: {devices: {disks: [{source: {}, format: vmdk}]}}}",
            "none of",
        ),
        ("spec: {domain: {devices: {disks: {}}}}", "another type"),
        ("spec: {domain: {firmware: {type: 3}}}", "another type"),
    ] {
        let problems = problems(&schema, &yaml::documents(vm)[0], "").join("\n");
        assert!(problems.contains(wanted), "{vm}: {problems}");
    }
}
