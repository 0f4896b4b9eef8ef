//! The texts that a fixture's plan is made of, by the names of their files.

use serde_json::Value;

use super::Fixture;

/// What all outputs of a fixture should be: file names and texts.
pub(crate) fn of(fixture: &Fixture) -> Vec<(String, String)> {
    let json = fixture.plan("json", &[]);
    let mut all = vec![
        ("plan.json".to_owned(), json.stdout),
        ("plan.tree.txt".to_owned(), fixture.plan("tree", &[]).stdout),
        (
            "plan.table.txt".to_owned(),
            fixture.plan("table", &[]).stdout,
        ),
        ("domain.xml".to_owned(), fixture.plan("xml", &[]).stdout),
    ];
    if !json.stderr.is_empty() {
        all.push(("notices.txt".to_owned(), json.stderr));
    }
    let plans: Vec<Value> = serde_json::from_str(&all[0].1).unwrap();
    for plan in &plans {
        // One VM's files have plain names; several VMs' are told apart.
        let prefix = match plans.len() {
            1 => String::new(),
            _ => format!("{}.", plan["name"].as_str().unwrap()),
        };
        for (name, text) in cloud_init(plan) {
            all.push((format!("{prefix}{name}"), text));
        }
    }
    all
}

/// The cloud-init texts of a plan; a network-config need not be there.
pub(crate) fn cloud_init(plan: &Value) -> Vec<(&'static str, String)> {
    [
        ("user-data", "userData"),
        ("meta-data", "metaData"),
        ("network-config", "networkConfig"),
    ]
    .into_iter()
    .filter_map(|(name, key)| Some((name, plan["cloudInit"][key].as_str()?.to_owned())))
    .collect()
}
