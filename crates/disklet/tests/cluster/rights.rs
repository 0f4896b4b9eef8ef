//! docs/rbac.md names every right that is given, and no other.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::objects;

/// Where, what, and which verbs.
type Right = (String, String, String);

fn texts(value: &Value) -> Vec<&str> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).collect()
}

/// The rights of the roles of that name, as the document words them.
fn given(account: &str, all: &[Value]) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    for role in all
        .iter()
        .filter(|object| object["metadata"]["name"] == account)
    {
        let place = match role["kind"].as_str() {
            Some("ClusterRole") => "cluster",
            Some("Role") => "namespace",
            _ => continue,
        };
        for rule in role["rules"].as_array().unwrap() {
            let verbs = texts(&rule["verbs"]).join(", ");
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let what = match group {
                        "" => format!("`{resource}`"),
                        group => format!("`{group}/{resource}`"),
                    };
                    let names = texts(&rule["resourceNames"]);
                    let what = match names[..] {
                        [] => what,
                        _ => format!("{what} (`{}`)", names.join("`, `")),
                    };
                    rights.insert((place.to_owned(), what, verbs.clone()));
                }
            }
        }
    }
    rights
}

/// The rows below the heading of an account, each with a reason.
fn written(account: &str, document: &str) -> BTreeSet<Right> {
    let (_, section) = document.split_once(&format!("## {account}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section
        .lines()
        .filter(|line| line.starts_with("| cluster") || line.starts_with("| namespace"));
    let rights = rows.map(|row| {
        let cells: Vec<_> = row
            .trim_matches('|')
            .splitn(4, '|')
            .map(str::trim)
            .collect();
        assert!(cells.len() == 4 && cells[3].len() > 10, "no reason: {row}");
        (
            cells[0].to_owned(),
            cells[1].to_owned(),
            cells[2].to_owned(),
        )
    });
    rights.collect()
}

#[test]
fn every_right_has_its_reason() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rbac.md");
    let document = std::fs::read_to_string(document).unwrap();
    let all = objects::of(&["install"]);
    for account in ["disklet-controller", "disklet-agent", "disklet-libvirt"] {
        assert_eq!(
            given(account, &all),
            written(account, &document),
            "{account}"
        );
    }
}

/// What nobody of ours may ever do.
#[test]
fn no_right_is_a_key_to_all_doors() {
    for object in objects::of(&["install"]) {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let all = ["apiGroups", "resources", "verbs"].map(|key| texts(&rule[key]));
            assert!(!all.concat().contains(&"*"), "{rule}");
            let [_, resources, verbs] = all;
            let of_others = object["kind"] == "ClusterRole";
            let reads_lists = verbs.iter().any(|verb| matches!(*verb, "list" | "watch"));
            assert!(
                !(of_others && resources.contains(&"secrets") && reads_lists),
                "{rule}"
            );
            for forbidden in ["escalate", "bind", "impersonate", "deletecollection"] {
                assert!(!verbs.contains(&forbidden), "{rule}");
            }
            for forbidden in [
                "pods/exec",
                "pods/attach",
                "pods/ephemeralcontainers",
                "nodes/proxy",
            ] {
                assert!(!resources.contains(&forbidden), "{rule}");
            }
        }
    }
}
