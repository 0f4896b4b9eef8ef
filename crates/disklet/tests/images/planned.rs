//! `disklet plan` knows the images that are there.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::scratch::{Outcome, Scratch, digest, noise};

const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: planned, annotations: {kubernetes.io/target-runtime: virtlet.cloud}}
spec: {containers: [{name: vm, image: virtlet.cloud/one}]}
";

fn plan(scratch: &Scratch, more: &[&str]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command
        .current_dir(scratch.path("."))
        .args(["plan", "-f", "pod.yaml", "-o", "json"]);
    command.args(["--config", "config.yaml"]).args(more);
    Outcome::of(command.output().unwrap())
}

/// The root disk of a plan.
fn root(scratch: &Scratch, more: &[&str]) -> Value {
    let outcome = plan(scratch, more);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    let plans: Value = serde_json::from_str(&outcome.stdout).unwrap();
    plans[0]["disks"][0].clone()
}

#[test]
fn an_image_of_the_store_is_planned_with_its_size() {
    let scratch = Scratch::new("planned");
    scratch.write("pod.yaml", POD);
    let unknown = root(&scratch, &[]);
    assert_eq!(unknown["size"], Value::Null, "{unknown}");
    assert!(!scratch.path("data").exists(), "nothing is made");

    let bytes = noise(1, 3 << 20);
    scratch.write("disk.raw", &bytes);
    scratch.succeeds(&["pull", "one", "--from", "disk.raw"]);
    let before = scratch.files();
    let known = root(&scratch, &[]);
    assert_eq!(known["size"], 3 << 20, "{known}");
    assert!(known.to_string().contains(&digest(&bytes)), "{known}");
    assert_eq!(scratch.files(), before);
    assert_eq!(root(&scratch, &["--offline"]), unknown);
}

#[test]
fn a_store_that_cannot_be_read_is_no_reason_to_plan_nothing() {
    let scratch = Scratch::new("planned-damaged");
    scratch.write("pod.yaml", POD);
    let name = scratch.write(&format!("data/images/names/{}.json", digest(b"one")), "{");
    let outcome = plan(&scratch, &[]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome
            .stderr
            .contains("the image store is not looked at: "),
        "{outcome:?}"
    );
    assert!(outcome.stdout.contains("known after pull"), "{outcome:?}");
    assert_eq!(fs::read(name).unwrap(), b"{");
}
