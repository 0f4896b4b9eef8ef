//! What programs read: plans and diagnostics.

use std::process::Command;

use disklet_core::yaml::{self, Limits, Node, Value};
use serde_json::Value as Json;

use super::program::{POD, plan, run};
use super::xml;

const RICH: &str = include_str!("rich.yaml");

/// What is said about two VMs.
fn rich(output: &str) -> String {
    let text = format!("{RICH}---\n{POD}");
    let outcome = plan(&["--offline", "-f", "-", "-o", output], text.as_bytes());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    // XML has no place for what is not known yet.
    assert_eq!(outcome.stderr.is_empty(), output != "xml");
    outcome.stdout
}

fn keys(value: &Json) -> Vec<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

fn has(value: &Json, wanted: &[&str]) {
    let found = keys(value);
    for key in wanted {
        assert!(found.contains(key), "{key} is not among {found:?}");
    }
}

#[test]
fn json_has_the_documented_fields() {
    let plans: Json = serde_json::from_str(&rich("json")).unwrap();
    let plans = plans.as_array().unwrap();
    assert_eq!(plans.len(), 2);
    for plan in plans {
        has(
            plan,
            &[
                "name",
                "namespace",
                "uuid",
                "domain",
                "disks",
                "steps",
                "domainXml",
            ],
        );
        has(plan, &["cloudInit", "knownLater"]);
        has(
            &plan["cloudInit"],
            &["label", "metaData", "userData", "networkConfig"],
        );
        for disk in plan["disks"].as_array().unwrap() {
            has(
                disk,
                &[
                    "name", "target", "bus", "serial", "source", "format", "size",
                ],
            );
            has(
                disk,
                &[
                    "access",
                    "copy",
                    "pool",
                    "mount",
                    "link",
                    "migration",
                    "readOnly",
                ],
            );
            assert!(disk["source"]["kind"].is_string());
        }
        for step in plan["steps"].as_array().unwrap() {
            assert!(step["step"].is_string(), "{step}");
        }
        assert!(plan["domainXml"].as_str().unwrap().starts_with("<domain "));
    }
}

/// YAML as a program would read it. Quoted or not must come out the same, so
/// that a reader of either version of YAML gets what JSON has.
fn as_json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value, _) => Json::from(*value),
        Value::Float(value, _) => Json::from(*value),
        Value::Str(text) => Json::from(&**text),
        Value::Seq(items) => items.iter().map(as_json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.to_string(), as_json(&entry.node)))
            .collect(),
    }
}

#[test]
fn yaml_says_what_json_says() {
    let expected: Json = serde_json::from_str(&rich("json")).unwrap();
    let text = rich("yaml");
    let documents: Vec<_> = yaml::documents(&text, Limits::default()).collect();
    let [Ok(root)] = documents.as_slice() else {
        panic!("{documents:?}");
    };
    assert_eq!(as_json(root), expected);
}

#[test]
fn yaml_says_what_json_says_to_other_readers() {
    let script = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)";
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", script]);
    let usable = Command::new("/usr/bin/python3")
        .args(["-c", "import yaml"])
        .output();
    if !usable.is_ok_and(|output| output.status.success()) {
        return;
    }
    let read = run(python, rich("yaml").as_bytes());
    assert_eq!(read.code, Some(0), "{}", read.stderr);
    let found: Json = serde_json::from_str(&read.stdout).unwrap();
    let expected: Json = serde_json::from_str(&rich("json")).unwrap();
    assert_eq!(found, expected);
}

#[test]
fn xml_of_one_vm_is_a_document() {
    let [xml, json] = ["xml", "json"].map(|output| {
        let outcome = plan(&["--offline", "-f", "-", "-o", output], POD.as_bytes());
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        outcome.stdout
    });
    let plans: Json = serde_json::from_str(&json).unwrap();
    assert_eq!(xml, plans[0]["domainXml"].as_str().unwrap());
    assert_eq!(xml::problem(&xml), None);
}

#[test]
fn xml_of_several_vms_can_be_cut_where_a_comment_says_which() {
    let names = ["one", "two--hyphens", "three---hyphens"];
    let pods = names.map(|name| POD.replace("{name: vm}", &format!("{{name: {name}}}")));
    let text = pods.join("---\n");
    let outcome = plan(&["--offline", "-f", "-", "-o", "xml"], text.as_bytes());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let (nothing, rest) = outcome.stdout.split_once("<!-- VM ").unwrap();
    assert_eq!(nothing, "");
    let documents: Vec<_> = rest.split("\n<!-- VM ").collect();
    assert_eq!(documents.len(), names.len());
    for (name, document) in names.iter().zip(documents) {
        let (comment, domain) = document.split_once(" -->\n").unwrap();
        assert_eq!(comment, format!("default/{}", name.replace("--", "%2D%2D")));
        assert!(!comment.contains("--"), "{comment}");
        assert_eq!(xml::problem(&format!("{}\n", domain.trim_end())), None);
        assert!(domain.contains(&format!("name=\"{name}\"")), "{domain}");
    }
}

#[test]
fn nothing_to_plan_is_no_empty_list() {
    for output in ["json", "yaml", "xml"] {
        plan(&["-f", "-", "-o", output], b"kind: Service\n").assert_says("there is no VM");
    }
}

fn diagnostics(text: &str) -> (Option<i32>, Vec<Json>) {
    let outcome = plan(&["--diagnostics", "json", "-f", "-"], text.as_bytes());
    let list: Json = serde_json::from_str(&outcome.stderr).unwrap();
    (outcome.code, list.as_array().unwrap().clone())
}

#[test]
fn diagnostics_for_programs_have_the_documented_fields() {
    let text = format!(
        "kind: Service\n---\n{}  volumes: [{{name: v, flexvolume: {{}}}}]\n",
        POD.replace("image: cirros", "image: a b")
    );
    let (code, list) = diagnostics(&text);
    assert_eq!(code, Some(1));
    assert_eq!(list.len(), 3, "{list:?}");
    let optional = ["found", "allowed", "help"];
    for problem in &list {
        has(
            problem,
            &["severity", "file", "line", "column", "field", "message"],
        );
        assert_eq!(problem["file"], "<stdin>");
        assert!(problem["line"].as_u64().unwrap() >= 1);
        assert!(problem["column"].as_u64().unwrap() >= 1);
        for key in keys(problem) {
            let known = ["severity", "file", "line", "column", "field", "message"];
            assert!(known.contains(&key) || optional.contains(&key), "{key}");
        }
    }
    assert_eq!(list[0]["severity"], "notice");
    assert_eq!(list[1]["severity"], "error");
    assert_eq!(list[1]["field"], "spec.containers[0].image");
    assert_eq!(list[1]["line"], 10);
    assert_eq!(list[1]["column"], 12);
    assert_eq!(list[1]["found"], "\"a b\"");
    assert_eq!(list[2]["help"], "did you mean \"flexVolume\"?");
}

#[test]
fn diagnostics_for_programs_are_a_list_also_when_there_are_none() {
    assert_eq!(diagnostics(POD), (Some(0), Vec::new()));
}
