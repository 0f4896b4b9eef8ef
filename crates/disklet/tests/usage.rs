//! The command line: exit codes, inputs, pipes, colours and output formats.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "refusals/formats.rs"]
mod formats;
#[path = "refusals/program.rs"]
#[allow(dead_code, reason = "the refusals use the rest")]
mod program;
#[path = "refusals/streams.rs"]
mod streams;
#[path = "refusals/xml.rs"]
mod xml;

use std::path::Path;
use std::process::Command;

use program::{Outcome, POD, Scratch, plan, program, run};

/// Runs the program with arguments and an empty input.
pub(crate) fn disklet(args: &[&str]) -> Outcome {
    let mut command = program();
    command.args(args);
    run(command, b"")
}

#[test]
fn wrong_usage_exits_with_2_and_says_what_is_wrong() {
    for (args, wanted) in [
        (&[][..], "Usage"),
        (&["plan"], "--filename"),
        (&["plan", "-f"], "--filename"),
        (&["plan", "-f", "vm.yaml", "-o", "jsn"], "'json'"),
        (&["plan", "-f", "vm.yaml", "-o"], "--output"),
        (
            &["plan", "-f", "vm.yaml", "--facts", "node.yaml", "--offline"],
            "--offline",
        ),
        (&["plan", "-f", "vm.yaml", "--ofline"], "'--offline'"),
        (
            &["plan", "-f", "vm.yaml", "--diagnostics", "xml"],
            "text, json",
        ),
        (&["plan", "vm.yaml"], "vm.yaml"),
        (&["pln"], "'plan'"),
        (&["completion"], "SHELL"),
        (&["completion", "tcsh"], "bash"),
    ] {
        let outcome = disklet(args);
        assert_eq!(outcome.code, Some(2), "{args:?}: {}", outcome.stderr);
        assert_eq!(outcome.stdout, "", "{args:?}");
        assert!(
            outcome.stderr.contains(wanted),
            "{args:?}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn help_and_version_exit_with_0() {
    for args in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["help", "plan"],
        &["plan", "--help"],
        &["plan", "-h"],
        &["completion", "--help"],
        &["--version"],
        &["-V"],
    ] {
        let outcome = disklet(args);
        assert_eq!(outcome.code, Some(0), "{args:?}");
        assert!(
            !outcome.stdout.is_empty() && outcome.stderr.is_empty(),
            "{args:?}"
        );
    }
    let version = disklet(&["--version"]).stdout;
    assert_eq!(version, format!("disklet {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_teaches() {
    let help = disklet(&["plan", "--help"]).stdout;
    for wanted in [
        // What makes a pod a VM, and what else has to be given.
        "kubernetes.io/target-runtime",
        "runtimeClassName",
        "PersistentVolumeClaim",
        "Examples:",
        "Exit code:",
        "--show-secrets",
        "VIRTLET_RAW_DEVICES",
        // A domain is for virsh where it is alone, and several are cut apart.
        "virsh define /dev/stdin",
        "csplit -z - '/^<!-- VM /' '{*}'",
    ] {
        assert!(help.contains(wanted), "{wanted} is missing in\n{help}");
    }
}

#[test]
fn completions_are_scripts_that_their_shells_take() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = disklet(&["completion", shell]);
        assert_eq!(script.code, Some(0), "{shell}: {}", script.stderr);
        assert!(script.stdout.contains("raw-devices"), "{shell}");
        if !["bash", "zsh", "fish"].contains(&shell) {
            continue;
        }
        let mut check = Command::new(shell);
        check.arg("-n");
        // Not every machine has every shell.
        if Command::new(shell).arg("--version").output().is_ok() {
            let checked = run(check, script.stdout.as_bytes());
            assert_eq!(checked.code, Some(0), "{shell}: {}", checked.stderr);
        }
    }
}

/// A unit file or a chart sets it so.
#[test]
fn an_empty_variable_names_no_configuration() {
    let planned = |variable: &str| {
        let mut command = program();
        command.env("DISKLET_CONFIG", variable);
        command.args(["plan", "--offline", "-f", "-"]);
        run(command, POD.as_bytes())
    };
    let outcome = planned("");
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let outcome = planned("/no/such/config.yaml");
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(
        outcome
            .stderr
            .contains("/no/such/config.yaml: cannot be read"),
        "{}",
        outcome.stderr
    );
    let mut listed = program();
    listed.env("DISKLET_CONFIG", "").args(["images", "--help"]);
    let help = run(listed, b"").stdout;
    assert!(help.contains("`DISKLET_CONFIG`]"), "{help}");
}

fn names(outcome: &Outcome) -> Vec<String> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let plans: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let name = |plan: &serde_json::Value| plan["name"].as_str().unwrap().to_owned();
    plans.as_array().unwrap().iter().map(name).collect()
}

fn pod(name: &str) -> String {
    POD.replace("{name: vm}", &format!("{{name: {name}}}"))
}

#[test]
fn inputs_are_read_in_their_order() {
    let scratch = Scratch::new("inputs");
    let one = scratch.file("one.yaml", pod("one") + "---\n" + &pod("another"));
    let two = scratch.file("two.anything", pod("two"));
    let [file, json, one, two, stdin] = [
        Path::new("-f"),
        Path::new("-ojson"),
        &one,
        &two,
        Path::new("-"),
    ];
    let outcome = plan(
        &[json, file, two, file, stdin, file, one],
        pod("piped").as_bytes(),
    );
    assert_eq!(names(&outcome), ["two", "piped", "one", "another"]);
    let array = r#"{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "j"},
        "spec": {"runtimeClassName": "disklet", "containers": [{"name": "c", "image": "i"}]}}]}"#;
    assert_eq!(names(&plan(&[json, file, stdin], array.as_bytes())), ["j"]);
}

#[test]
fn directories_are_read_in_the_order_of_names_and_deep_on_request() {
    let scratch = Scratch::new("directories");
    for (file, name) in [
        ("b.yml", "b"),
        ("a.json", "a"),
        ("c.yaml", "c"),
        ("d.txt", "never"),
        ("e", "never"),
        ("B.yaml", "upper"),
    ] {
        scratch.file(file, pod(name));
    }
    std::fs::create_dir(scratch.path().join("bb")).unwrap();
    scratch.file("bb/z.yaml", pod("deep"));
    let args = ["-ojson", "-f"].map(Path::new);
    let flat = plan(&[&args[..], &[scratch.path()]].concat(), b"");
    assert_eq!(names(&flat), ["upper", "a", "b", "c"]);
    let deep = plan(
        &[&[Path::new("-R")], &args[..], &[scratch.path()]].concat(),
        b"",
    );
    assert_eq!(names(&deep), ["upper", "a", "b", "deep", "c"]);
}

#[test]
fn the_command_line_wins_over_environment_and_configuration() {
    let scratch = Scratch::new("settings");
    let config = scratch.file(
        "config.yaml",
        "rawDevices: [sdc]\nkubeletRoot: /from/file\n",
    );
    let disk = |device: &str| {
        format!(
            "{POD}  volumes: [{{name: raw, flexVolume: {{driver: virtlet/flexvolume_driver, \
             options: {{type: raw, path: /dev/{device}}}}}}}]\n"
        )
    };
    let code = |option: &[&str], environment: Option<&str>, device: &str| {
        let mut command = program();
        command
            .args(["plan", "--offline", "-f", "-", "--config"])
            .arg(&config)
            .args(option);
        if let Some(globs) = environment {
            command.env("VIRTLET_RAW_DEVICES", globs);
        }
        run(command, disk(device).as_bytes()).code
    };
    assert_eq!(code(&[], None, "sdc"), Some(0));
    assert_eq!(code(&[], None, "loop0"), Some(1));
    assert_eq!(code(&[], Some("sdb"), "sdb"), Some(0));
    assert_eq!(code(&[], Some("sdb"), "sdc"), Some(1));
    assert_eq!(code(&["--raw-devices", "sda"], Some("sdb"), "sda"), Some(0));
    assert_eq!(code(&["--raw-devices", "sda"], Some("sdb"), "sdb"), Some(1));
    // An empty variable is as good as none: the file's list holds.
    for nothing in ["", " "] {
        assert_eq!(code(&[], Some(nothing), "sdc"), Some(0), "{nothing:?}");
        assert_eq!(code(&[], Some(nothing), "loop0"), Some(1), "{nothing:?}");
        // An empty option allows nothing, whatever the others say.
        let option = ["--raw-devices", nothing];
        for device in ["sdb", "sdc", "loop0"] {
            assert_eq!(code(&option, Some("sdb"), device), Some(1), "{nothing:?}");
        }
    }
    // Commas too many make no glob, least of all one that matches everything.
    for list in ["sdb,", ",sdb", "sdb, ,", " sdb ,,"] {
        for (option, variable) in [
            (&[][..], Some(list)),
            (&["--raw-devices", list], None),
            (&["--raw-devices", list], Some("sdc")),
        ] {
            assert_eq!(code(option, variable, "sdb"), Some(0), "{list:?}");
            assert_eq!(code(option, variable, "sdc"), Some(1), "{list:?}");
        }
    }
    // A list of nothing allows nothing.
    assert_eq!(code(&[], Some(","), "sdc"), Some(1));
    assert_eq!(code(&["--raw-devices", " , "], None, "sdc"), Some(1));
    // What the environment says is usage as well.
    assert_eq!(code(&[], Some("/etc/*"), "sdc"), Some(2));
}

#[test]
fn what_the_xml_cannot_say_is_told_beside_it() {
    let outcome = plan(&["-f", "-", "-o", "xml", "--offline"], POD.as_bytes());
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(
        outcome.stdout.contains("known-after-pull"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("notice: "), "{}", outcome.stderr);
    assert!(
        outcome.stderr.contains("known after pull"),
        "{}",
        outcome.stderr
    );
    let json = plan(&["-f", "-", "-o", "json", "--offline"], POD.as_bytes());
    assert_eq!(json.stderr, "", "the others say it themselves");
}
