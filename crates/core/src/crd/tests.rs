//! The schema and the reader say the same: of which fields there are, of which
//! type each is, and which words it takes.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use super::{Definition, Kind, Schema, vm_schema};
use crate::diag::{Diagnostic, Diagnostics};
use crate::manifest::{Input, Objects};
use crate::names::Namespace;
use crate::yaml::asked;

/// A field on its way from the root, `[]` for the items of a list.
#[derive(Debug, Clone)]
struct Spot {
    path: Vec<&'static str>,
    schema: Schema,
}

/// Every field below `spec`, at any depth.
fn spots() -> Vec<Spot> {
    let root = vm_schema();
    let spec = root.properties.iter().find(|(name, _)| *name == "spec");
    let mut found = Vec::new();
    let (name, schema) = spec.expect("a VM has a spec");
    collect(vec![*name], schema, &mut found);
    found
}

fn collect(path: Vec<&'static str>, schema: &Schema, found: &mut Vec<Spot>) {
    for (name, field) in &schema.properties {
        collect([&path[..], &[name]].concat(), field, found);
    }
    if let Some(item) = &schema.items {
        collect([&path[..], &["[]"]].concat(), item, found);
    }
    let schema = schema.clone();
    found.push(Spot { path, schema });
}

impl Spot {
    /// As diagnostics write it.
    fn shown(&self) -> String {
        let mut shown = String::new();
        for part in &self.path {
            match *part {
                "[]" => shown.push_str("[0]"),
                part if shown.is_empty() => shown.push_str(part),
                part => shown.push_str(&format!(".{part}")),
            }
        }
        shown
    }

    /// A VM with nothing but this field in it, and what the field needs beside it.
    fn vm_with(&self, value: &Json) -> Json {
        let mut inner = value.clone();
        for (depth, part) in self.path.iter().enumerate().rev() {
            inner = match *part {
                "[]" => json!([inner]),
                part => {
                    let mut map = Map::new();
                    self.add_companions(depth, &mut map);
                    map.insert(part.to_owned(), inner);
                    Json::Object(map)
                }
            };
        }
        inner["apiVersion"] = json!("disklet.io/v1alpha1");
        inner["kind"] = json!("VM");
        inner["metadata"] = json!({"name": "spot"});
        inner
    }

    /// `source.name` belongs to disks with a type, `source.lun` to `iscsi`, and
    /// the type of a disk without a source is not looked at.
    fn add_companions(&self, depth: usize, map: &mut Map<String, Json>) {
        let below = &self.path[depth..];
        if matches!(below, ["source", "name" | "create"]) {
            map.insert("type".to_owned(), json!("PersistentVolumeClaim"));
        }
        if below == ["type"] && self.path[depth - 1] == "[]" {
            map.insert("source".to_owned(), json!({}));
        }
        if below == ["lun"] && self.path[depth - 1] == "source" {
            map.insert("iscsi".to_owned(), json!({}));
        }
    }

    /// What the reader has against a value here.
    fn problems_with(&self, value: &Json) -> Vec<Diagnostic> {
        let at = self.shown();
        let problems = read(&self.vm_with(value)).into_iter();
        let here = problems.filter(|problem| {
            let path = problem.place.as_ref().map(|place| place.path.to_string());
            path.as_deref() == Some(&*at)
        });
        here.collect()
    }

    fn is_object(&self) -> bool {
        !self.schema.properties.is_empty()
    }
}

fn read(vm: &Json) -> Vec<Diagnostic> {
    let input = Input {
        name: "vm.json".into(),
        text: vm.to_string(),
    };
    let namespace = Namespace::parse("default").expect("a name");
    let mut diags = Diagnostics::default();
    Objects::default().read(&input, &namespace, &mut diags);
    diags.into_sorted()
}

/// Asked for only to be refused with a reason: as if it were not there.
const REFUSED_BY_NAME: [(&[&str], &[&str]); 4] = [
    (&["httpGet", "tcpSocket"], &["host"]),
    (
        &["livenessProbe", "readinessProbe", "startupProbe"],
        &["exec"],
    ),
    (
        &["nbd"],
        &[
            "auth",
            "ca",
            "caSecretRef",
            "certificates",
            "secretRef",
            "tlsSecretRef",
        ],
    ),
    (
        &["http", "https"],
        &[
            "ca",
            "caBundle",
            "caFile",
            "caSecretRef",
            "certificates",
            "tls",
            "tlsSecretRef",
        ],
    ),
];

/// The fields that the reader knows in the object at a spot: those that it looks
/// for, and those that it names when it finds an unknown one.
fn known_to_reader(spot: &Spot) -> BTreeSet<String> {
    let at = spot.shown();
    let mut known = BTreeSet::new();
    let mut contents = vec![json!({"no-such-field": 1})];
    if spot.path.last() == Some(&"source") {
        contents.push(json!({"iscsi": {}}));
    }
    for content in contents {
        for with_type in [false, true] {
            let mut vm = spot.vm_with(&content);
            if with_type && spot.path.last() == Some(&"source") {
                vm["spec"]["domain"]["devices"]["disks"][0]["type"] =
                    json!("PersistentVolumeClaim");
            }
            asked::take("");
            for problem in read(&vm) {
                let place = problem.place.expect("all of it has a place").path;
                if place.to_string() == format!("{at}.no-such-field") {
                    let allowed = problem.allowed.expect("an unknown field has alternatives");
                    known.extend(allowed.split(", ").map(str::to_owned));
                }
            }
            known.extend(asked::take(&at));
        }
    }
    let here =
        |(parents, _): &(&[&str], _)| spot.path.last().is_some_and(|it| parents.contains(it));
    for (_, names) in REFUSED_BY_NAME.into_iter().filter(here) {
        known.retain(|name| !names.contains(&name.as_str()));
    }
    known
}

#[test]
fn the_reader_knows_the_fields_of_the_schema_and_no_others() {
    let mut objects = 0;
    for spot in spots().iter().filter(|spot| spot.is_object()) {
        let described: BTreeSet<_> = spot
            .schema
            .properties
            .iter()
            .map(|(name, _)| *name)
            .collect();
        let known = known_to_reader(spot);
        let known: BTreeSet<_> = known.iter().map(String::as_str).collect();
        // Kubernetes itself says what its containers may have.
        match spot.path.last() {
            Some(&"container") => assert!(described.is_subset(&known), "{}", spot.shown()),
            _ => assert_eq!(described, known, "{}", spot.shown()),
        }
        objects += 1;
    }
    assert!(objects > 25, "{objects} objects were looked at");
}

#[test]
fn what_must_be_there_is_missed_by_the_reader_as_well() {
    for spot in spots() {
        for name in &spot.schema.required {
            let vm = spot.vm_with(&json!({}));
            let at = format!("{}.{name}", spot.shown());
            let missed = read(&vm).iter().any(|problem| {
                let place = problem.place.as_ref().map(|place| place.path.to_string());
                place.as_deref() == Some(&*at)
            });
            assert!(missed, "{at}");
        }
    }
}

#[test]
fn every_value_has_the_type_that_the_reader_takes() {
    let samples = [
        json!("a text"),
        json!(7),
        json!(true),
        json!(["a"]),
        json!({}),
    ];
    let mut compared = 0;
    for spot in spots() {
        for sample in &samples {
            let problems = spot.problems_with(sample);
            let takes_type = !problems.iter().any(|p| is_wrong_type(&p.message));
            let by_schema = takes(&spot.schema, sample);
            let several = spot.schema.kind.is_none();
            if several {
                assert!(by_schema, "{} {sample}", spot.shown());
            } else {
                assert_eq!(by_schema, takes_type, "{} {sample}", spot.shown());
                compared += 1;
            }
        }
    }
    assert!(compared > 300, "{compared} values were compared");
}

/// A mapping in the place of `tls` is told what it was meant for.
fn is_wrong_type(message: &str) -> bool {
    message.starts_with("must be ") || message.contains("certificates of its own")
}

#[test]
fn words_are_the_readers() {
    let mut sets = 0;
    for spot in spots().iter().filter(|spot| !spot.schema.words.is_empty()) {
        let problems = spot.problems_with(&json!("no-such-word"));
        let allowed = problems.iter().find_map(|problem| problem.allowed.clone());
        let allowed = allowed.unwrap_or_default();
        let shown = spot.shown();
        for word in &spot.schema.words {
            let refused = spot.problems_with(&json!(word));
            let refused = refused
                .iter()
                .any(|problem| problem.message.starts_with("not "));
            assert!(!refused, "{shown}: {word}");
        }
        for word in allowed.split([',', ';']).map(str::trim) {
            let told = word.split(' ').count() > 1 || spot.schema.words.contains(&word);
            assert!(told, "{shown}: the reader takes {word:?} as well");
        }
        assert!(!allowed.is_empty(), "{shown} takes any word");
        sets += 1;
    }
    assert!(sets > 12, "{sets} sets of words");
}

/// Whether the schema takes the type of a value.
fn takes(schema: &Schema, value: &Json) -> bool {
    match schema.kind {
        None => true,
        Some(Kind::Object) => value.is_object(),
        Some(Kind::Array) => value.is_array(),
        Some(Kind::String) => value.is_string(),
        Some(Kind::Integer) => value.is_i64(),
        Some(Kind::Boolean) => value.is_boolean(),
    }
}

/// The rules by which the API server takes a schema as structural at all, as far
/// as they can be broken here.
#[test]
fn the_schema_is_structural() {
    for spot in spots() {
        let Schema {
            kind,
            items,
            properties,
            description,
            ..
        } = &spot.schema;
        let typed = kind.is_some() || spot.schema.keeps_unknown;
        assert!(typed, "{} has no type", spot.shown());
        assert_eq!(
            *kind == Some(Kind::Array),
            items.is_some(),
            "{}",
            spot.shown()
        );
        assert!(
            description.ends_with('.'),
            "{}: {description}",
            spot.shown()
        );
        let names: BTreeSet<_> = properties.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), properties.len(), "{}", spot.shown());
        for name in &spot.schema.required {
            assert!(names.contains(name), "{}: {name}", spot.shown());
        }
    }
}

/// Otherwise nobody could apply the status of a VM with `memory: 2Gi`.
#[test]
fn what_may_be_no_object_has_no_fields_for_an_api_server() {
    fn check(schema: &Json) {
        if let Some(fields) = schema["properties"].as_object() {
            assert_eq!(schema["type"], "object", "{schema}");
            fields.values().for_each(check);
        }
        if !schema["items"].is_null() {
            check(&schema["items"]);
        }
    }
    let definition = serde_json::to_value(Definition::vm()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert!(schema["properties"]["spec"].is_object());
    check(schema);
}
