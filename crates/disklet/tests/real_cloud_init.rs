//! Every cloud-init document of the golden files and of the examples, judged by
//! cloud-init itself: its schema, its readers of files and networks. The scripts
//! in them are judged by a shell and by shellcheck.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use support::tools::{PYTHON, run};
use support::xml::Element;
use support::{Fixture, base64, examples, fixtures};

/// What a VM gets, and what a guest makes of it.
struct Guest {
    place: String,
    plan: Value,
    read: Value,
}

/// All VMs, with their secrets as a guest would get them.
fn guests() -> Vec<Guest> {
    let all: Vec<_> = fixtures()
        .iter()
        .chain(&examples())
        .flat_map(|fixture| plans_of(fixture, &["--show-secrets"]))
        // VM objects need not have an image.
        .filter(|(_, plan)| !plan["cloudInit"].is_null())
        .collect();
    let images: Vec<_> = all
        .iter()
        .map(|(_, plan)| {
            let mut image = plan["cloudInit"].clone();
            // What is known when the pod starts is no base64 yet.
            let text = image["userData"].as_str().unwrap();
            let is_complete = !text.contains("known when") && !text.contains("issued when");
            image["wantsFiles"] = json!(is_complete);
            image
        })
        .collect();
    let script = include_str!("support/cloud_init.py");
    let read = run(PYTHON, &["-c", script], &json!(images).to_string()).unwrap();
    let read: Vec<Value> = serde_json::from_str(&read).unwrap();
    assert_eq!(read.len(), all.len());
    all.into_iter()
        .zip(read)
        .map(|((place, plan), read)| Guest { place, plan, read })
        .collect()
}

fn plans_of(fixture: &Fixture, more: &[&str]) -> Vec<(String, Value)> {
    let name = |plan: &Value| format!("{} {}", fixture.name, plan["name"].as_str().unwrap());
    fixture
        .plans(more)
        .into_iter()
        .map(|plan| (name(&plan), plan))
        .collect()
}

fn fail_on(failures: &[String]) {
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
#[ignore = "needs cloud-init: script/bootstrap installs it"]
fn user_data_keeps_cloud_inits_schema() {
    // As a guest gets them: a word in place of a hidden number is of another
    // kind, and a redacted document is for reading only.
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for fixture in fixtures().iter().chain(&examples()) {
        for (place, plan) in plans_of(fixture, &["--show-secrets"]) {
            let text = plan["cloudInit"]["userData"].as_str().unwrap_or_default();
            if text.starts_with("#cloud-config\n") {
                texts.insert(text.to_owned(), place);
            }
        }
    }
    assert!(texts.len() > 20, "only {} documents", texts.len());
    let directory = std::env::temp_dir().join(format!("disklet-schema-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let mut failures = Vec::new();
    for (index, (text, place)) in texts.iter().enumerate() {
        let file = directory.join(format!("{index}.yaml"));
        fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        match run("cloud-init", &["schema", "--config-file", file], "") {
            Err(told) => failures.push(format!("{place}: {told}")),
            // What a guest gets must not be on its way out either.
            Ok(told) if told.contains("DEPRECATED") => {
                failures.push(format!("{place}: {told}"));
            }
            Ok(_) => {}
        }
    }
    fs::remove_dir_all(&directory).unwrap();
    fail_on(&failures);
}

#[test]
#[ignore = "needs cloud-init: script/bootstrap installs it"]
fn guests_learn_who_they_are_and_find_their_network() {
    let mut failures = Vec::new();
    for guest in guests() {
        let place = &guest.place;
        let cloud_init = &guest.plan["cloudInit"];
        let text = cloud_init["metaData"].as_str().unwrap();
        let meta_data: Value = serde_json::from_str(text).unwrap();
        for key in ["instance-id", "local-hostname"] {
            if !meta_data[key].is_string() {
                failures.push(format!("{place}: meta-data has no {key}"));
            }
        }
        let domain = Element::parse(guest.plan["domainXml"].as_str().unwrap());
        let interface = domain.child("devices").unwrap().child("interface").unwrap();
        let mac = interface.child("mac").unwrap().attribute("address");
        let dhcp = if cloud_init["label"] == "config-2" {
            "dhcp4"
        } else {
            "dhcp"
        };
        let wanted = json!([{"name": "eth0", "mac": mac, "subnets": [dhcp]}]);
        let found = &guest.read["network"];
        if !cloud_init["networkConfig"].is_null() && *found != wanted {
            failures.push(format!("{place}: network {found}, not {wanted}"));
        }
    }
    fail_on(&failures);
}

#[test]
#[ignore = "needs cloud-init: script/bootstrap installs it"]
fn files_have_their_bytes_and_modes() {
    let private_key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n\
                       -----END OPENSSH PRIVATE KEY-----\n";
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let token = format!("{account}/token");
    #[rustfmt::skip]
    let wanted: [(&str, &str, u32, &[u8]); 9] = [
        ("09-config-map-as-files configmap-vm", "/etc/config/special.how", 0o644, b"very"),
        ("10-secret-as-files secret-test-vm", "/etc/secret-volume/ssh-privatekey", 0o644, private_key.as_bytes()),
        ("11-account-token cirros-vm", &token, 0o644, b"eyJhbGciOiJSUzI1NiJ9.golden-token-of-the-seed"),
        ("10-legacy-account-token with-token", &token, 0o644, b"golden-token-of-the-builder"),
        ("19-files-from-a-data-source injected-vm", "/etc/motd", 0o644, b"plain words\n"),
        ("19-files-from-a-data-source injected-vm", "/etc/profile.d/editor.sh", 0o644, b"export EDITOR=vi\n"),
        ("20-files-from-a-secret injected-vm", "/etc/app/key", 0o644, b"golden-injected-key"),
        ("41-files-with-modes modes-vm", "/etc/app/logo.bin", 0o644, b"\x00\x01\x02\x03\xff\xfe\xfd"),
        ("41-files-with-modes modes-vm", "/etc/app-secret/db/password", 0o440, b"golden-password-of-modes"),
    ];
    let guests = guests();
    let mut failures = Vec::new();
    for (place, path, mode, content) in wanted {
        let guest = guests.iter().find(|guest| guest.place.ends_with(place));
        let files = guest.map(|guest| guest.read["files"].as_array().unwrap());
        let found = files.and_then(|files| files.iter().find(|file| file["path"] == path));
        let expected = json!({"path": path, "mode": mode, "content": base64::encode(content)});
        if found != Some(&expected) {
            failures.push(format!("{place}: {found:?}, not {expected}"));
        }
    }
    fail_on(&failures);
}

#[test]
#[ignore = "needs cloud-init: script/bootstrap installs it"]
fn texts_come_through_yaml_unchanged() {
    let guests = guests();
    let traps = guests
        .iter()
        .find(|guest| guest.place.ends_with(" traps-vm"))
        .unwrap();
    // What cloud-init would make of the annotation as it stands.
    let manifest = fixtures()
        .into_iter()
        .find(|fixture| fixture.name.ends_with("36-yaml-traps"))
        .and_then(|fixture| fixture.read("manifest.yaml"))
        .unwrap();
    let script = "import json, sys, yaml\n\
                  notes = yaml.safe_load(sys.stdin)['metadata']['annotations']\n\
                  print(json.dumps(yaml.safe_load(notes['VirtletCloudInitUserData'])))";
    let wanted = run(PYTHON, &["-c", script], &manifest).unwrap();
    let wanted: Value = serde_json::from_str(&wanted).unwrap();
    assert_eq!(traps.read["config"], wanted);
}

/// Every word of up to five of the characters that numbers are made of, as far
/// as a guest takes it for a scalar. A date is a text here, and so is a number
/// beyond 64 bits: cloud-init makes texts of them.
const WORDS: &str = r"
import itertools, yaml
words = ['yes', 'y', 'N', 'On', 'off', '~', 'null', '.inf', '-.INF', '.nan', '12e4', '1.0e+22',
         '1.5e-7', '1_000.5', '190:20:30', '190:20:30.15', '-1:30', '0x_1F', '123456.789e+3']
for length in range(1, 6):
    alphabet = '0179.:_-+exob' if length < 5 else '08.:_+e'
    words += map(''.join, itertools.product(alphabet, repeat=length))
for word in words:
    try:
        value = yaml.safe_load(word)
    except (yaml.YAMLError, ValueError):
        continue
    if not isinstance(value, (dict, list)) and not (isinstance(value, str) and value != word):
        print('- ' + word)
";

const COMPARE: &str = r"
import json, sys, yaml
pair = json.load(sys.stdin)
ours, theirs = (yaml.load(text, yaml.CSafeLoader)['words'] for text in pair)
assert len(ours) == len(theirs) > 20000, len(ours)
wrong = [(a, b) for a, b in zip(ours, theirs) if repr(a) != repr(b)]
assert not wrong, wrong[:20]
";

#[test]
#[ignore = "needs cloud-init: script/bootstrap installs it"]
fn words_mean_to_a_guest_what_they_meant_before() {
    let words = run(PYTHON, &["-c", WORDS], "").unwrap();
    let config = format!("words:\n{words}\n");
    let pod = json!({
        "kind": "Pod",
        "metadata": {"name": "vm", "annotations": {"VirtletCloudInitUserData": config}},
        "spec": {
            "runtimeClassName": "disklet",
            "containers": [{"name": "vm", "image": "cirros"}],
        },
    });
    let args = ["plan", "--offline", "-o", "json", "-f", "-"];
    let plan = run(env!("CARGO_BIN_EXE_disklet"), &args, &pod.to_string()).unwrap();
    let plans: Vec<Value> = serde_json::from_str(&plan).unwrap();
    let texts = json!([plans[0]["cloudInit"]["userData"], config]);
    run(PYTHON, &["-c", COMPARE], &texts.to_string()).unwrap();
}

#[test]
#[ignore = "needs cloud-init: script/bootstrap installs it"]
fn plans_in_yaml_are_those_in_json() {
    let script = "import json, sys, yaml\nprint(json.dumps(yaml.safe_load(sys.stdin)))";
    for fixture in fixtures().iter().chain(&examples()) {
        let yaml = fixture.plan("yaml", &[]).stdout;
        let read: Value =
            serde_json::from_str(&run(PYTHON, &["-c", script], &yaml).unwrap()).unwrap();
        assert_eq!(read, Value::Array(fixture.plans(&[])), "{}", fixture.name);
    }
}

#[test]
#[ignore = "needs cloud-init: script/bootstrap installs it"]
fn scripts_please_a_shell_and_shellcheck() {
    let mut scripts: BTreeMap<String, String> = BTreeMap::new();
    for guest in guests() {
        let user_data = guest.plan["cloudInit"]["userData"].as_str().unwrap();
        let files = guest.read["config"]["write_files"].as_array();
        let contents = files
            .into_iter()
            .flatten()
            .filter_map(|file| file["content"].as_str());
        for text in contents.chain([user_data]) {
            if text.starts_with("#!/bin/sh") {
                scripts.insert(text.to_owned(), guest.place.clone());
            }
        }
    }
    assert!(scripts.len() > 10, "only {} scripts", scripts.len());
    // Most have the same functions in them; what is wrong with these is told
    // once, for the last of the places.
    let mut failures: BTreeMap<String, &str> = BTreeMap::new();
    for (script, place) in &scripts {
        for checker in [
            ["sh", "-n", "-"].as_slice(),
            &["shellcheck", "-s", "sh", "-"],
        ] {
            let (program, arguments) = checker.split_first().unwrap();
            if let Err(told) = run(program, arguments, script) {
                failures.insert(told, place);
            }
        }
    }
    let told = |(told, place): (&String, &&str)| format!("{place}: {told}");
    fail_on(&failures.iter().map(told).collect::<Vec<_>>());
}
