//! Inputs that are small and want to become large, or that take long to read.
//!
//! Each has a budget of memory and time. Whether it is refused or planned is
//! said where it matters; what counts is that it is answered.

use std::fmt::Write as _;

use super::program::{Budget, Outcome, POD, Scratch, plan, program_within, run};

/// Far more than any honest input of these sizes needs.
const BUDGET: Budget = Budget {
    mebibytes: 384,
    cpu_seconds: 10,
};

fn plan_within(budget: Budget, text: &str) -> Outcome {
    let mut command = program_within(budget);
    command.args(["plan", "--offline", "-o", "json", "-f", "-"]);
    run(command, text.as_bytes())
}

/// Answered: refused or planned, but not out of memory, time or stack.
fn answered(text: &str) -> Outcome {
    let outcome = plan_within(BUDGET, text);
    assert!(
        matches!(outcome.code, Some(0 | 1)),
        "{:?} after {} bytes: {:.300}",
        outcome.code,
        text.len(),
        outcome.stderr
    );
    outcome
}

fn config_map(rest: &str) -> String {
    format!("kind: ConfigMap\nmetadata: {{name: bomb}}\n{rest}")
}

#[test]
fn a_hundred_megabytes_are_answered_at_once() {
    let scratch = Scratch::new("huge");
    let line = "a: 12345678901234567890123456789012345678901234567890123456789\n";
    let text = line.repeat((100 << 20) / line.len() + 1);
    let file = scratch.file("huge.yaml", &text);
    // Its own second, however busy the machine of the tests is.
    let budget = Budget {
        mebibytes: 160,
        cpu_seconds: 1,
    };
    for from_file in [true, false] {
        let mut command = program_within(budget);
        command.args(["plan", "-f"]);
        let stdin = if from_file {
            command.arg(&file);
            ""
        } else {
            command.arg("-");
            &text
        };
        let outcome = run(command, stdin.as_bytes());
        outcome.assert_says("the input is too large\n  found: more than 32 MiB\n");
    }
}

#[test]
fn many_inputs_are_bounded_together() {
    let scratch = Scratch::new("many");
    let filler = format!("# {}\n", "x".repeat(1 << 20)).repeat(30);
    let mut command = program_within(Budget {
        mebibytes: 256,
        cpu_seconds: 10,
    });
    command.args(["plan", "--offline"]);
    for n in 0..3 {
        let text = POD.replace("{name: vm}", &format!("{{name: vm{n}}}")) + &filler;
        let file = scratch.file(&format!("{n}.yaml"), text);
        command.arg("-f").arg(file);
    }
    let outcome = run(command, b"");
    outcome.assert_says("2.yaml: all inputs together are too large\n  found: more than 64 MiB\n");
}

/// VMs whose images have equal names, in clusters that share nothing; and VMs that
/// all read one image.
#[test]
fn users_of_one_name_are_compared_in_good_time() {
    let vm = |n: u32, monitors: &str, more: &str| {
        format!(
            "---\nkind: VM\nmetadata: {{name: vm{n}}}\nspec: {{domain: {{devices: {{disks: [\
             {{source: {{rbd: {{monitors: [{monitors}], pool: p, image: i}}}}{more}}}]}}}}}}\n"
        )
    };
    let apart: String = (0..3000).map(|n| vm(n, &format!("m{n}"), "")).collect();
    let readers = (0..3000).map(|n| vm(n, "m", ", access-mode: read-only"));
    let readers: String = readers.collect();
    let many = |cluster: u32| {
        let monitors: Vec<_> = (0..20_000).map(|n| format!("m{cluster}-{n}")).collect();
        monitors.join(", ")
    };
    let large = vm(0, &many(0), "") + &vm(1, &many(1), "");
    for text in [apart, readers, large] {
        let outcome = answered(&text);
        assert_eq!(outcome.code, Some(0), "{:.300}", outcome.stderr);
    }
}

#[test]
fn nesting_is_bounded() {
    let block: String = (0..3000).map(|n| " ".repeat(n) + "a:\n").collect();
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
        "? ".repeat(100_000),
        "a: [".repeat(100_000),
        "&a [".repeat(100_000),
        block,
    ] {
        answered(&text).assert_says("nested deeper");
    }
}

#[test]
fn aliases_count_as_what_they_stand_for() {
    let mut laughs = config_map("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for n in 1..12 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(laughs, "a{n}: &a{n} [{aliases}]").unwrap();
    }
    answered(&laughs).assert_says("aliases expanded");
}

#[test]
fn aliases_of_a_long_text_do_not_multiply_it() {
    let aliases = "*long, ".repeat(20_000);
    let text = "x".repeat(1 << 20);
    answered(&config_map(&format!("a: &long {text}\nb: [{aliases}]\n")));
}

#[test]
fn anchors_within_anchors_do_not_multiply_their_content() {
    let open: String = (0..90).map(|n| format!("&a{n} [")).collect();
    let items = "1,".repeat(500_000);
    let close = "]".repeat(90);
    answered(&config_map(&format!("a: {open}{items}{close}\n")));
}

#[test]
fn merge_keys_take_time_in_proportion() {
    let keys = |letter: char| -> String {
        (0..100_000)
            .map(|n| format!("  {letter}{n}: 1\n"))
            .collect()
    };
    let (base, own) = (keys('a'), keys('b'));
    answered(&config_map(&format!("x: &x\n{base}y:\n  <<: *x\n{own}")));
}

#[test]
fn keys_that_stand_twice_take_time_in_proportion() {
    answered(&config_map(
        &("data:\n".to_owned() + &"  a: x\n".repeat(300_000)),
    ))
    .assert_refused();
}

#[test]
fn variables_that_name_each_other_do_not_explode() {
    let mut text = format!("{POD}    env:\n    - {{name: V0, value: xxxxxxxxxx}}\n");
    for n in 1..10 {
        let value = format!("$(V{})", n - 1).repeat(10);
        writeln!(text, "    - {{name: V{n}, value: \"{value}\"}}").unwrap();
    }
    answered(&text).assert_refused();
}

/// Each of them fits, and all of them together would fill any memory.
#[test]
fn variables_that_repeat_a_long_one_do_not_add_up() {
    let long = "x".repeat(1_000_000);
    let mut text = format!("{POD}    env:\n    - {{name: LONG, value: {long}}}\n");
    for n in 0..20_000 {
        writeln!(text, "    - {{name: V{n}, value: $(LONG)}}").unwrap();
    }
    text += "    - {name: KEY, valueFrom: {secretKeyRef: {name: none, key: k}}}\n";
    let outcome = answered(&text);
    let line = POD.lines().count() + 3;
    outcome.assert_says(&format!(
        "error: <stdin>:{line}:7: spec.containers[0].env[1]: the environment is too large"
    ));
    outcome.assert_says("the Secret none is missing");
    assert!(
        outcome
            .stderr
            .ends_with("refused: 2 problems, nothing was planned\n")
    );
}

#[test]
fn aliases_in_the_values_of_a_config_map_count_together() {
    // Each value is a document of its own and within the limits of one.
    let mut value = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]".to_owned();
    for n in 1..5 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        write!(value, "\\na{n}: &a{n} [{aliases}]").unwrap();
    }
    let data: String = (0..50).map(|n| format!("  k{n}: \"{value}\"\n")).collect();
    let pod = POD.replace(
        "{name: vm}",
        "{name: vm, annotations: {VirtletCloudInitUserDataSource: configmap/bomb}}",
    );
    answered(&format!(
        "{pod}---\n{}",
        config_map(&format!("data:\n{data}"))
    ));
}

#[test]
fn many_variables_take_time_in_proportion() {
    let data: String = (0..200_000).map(|n| format!("  a{n}: x\n")).collect();
    answered(&format!(
        "{POD}    envFrom: [{{configMapRef: {{name: bomb}}}}]\n---\n{}",
        config_map(&format!("data:\n{data}"))
    ));
}

#[test]
fn one_object_mounted_often_does_not_multiply_its_content() {
    let mounts: String = (0..3000)
        .map(|n| format!("    - {{name: files, mountPath: /m{n}}}\n"))
        .collect();
    let content = "x".repeat(1 << 20);
    answered(&format!(
        "{POD}    volumeMounts:\n{mounts}  volumes: [{{name: files, configMap: {{name: bomb}}}}]\n---\n{}",
        config_map(&format!("data: {{a: {content}}}\n"))
    ));
}

#[test]
fn the_mount_scripts_token_does_not_multiply_a_script() {
    let script = "@virtlet-mount-script@".repeat(400_000);
    let pod = POD.replace(
        "{name: vm}",
        &format!("{{name: vm, annotations: {{VirtletCloudInitUserDataScript: \"{script}\"}}}}"),
    );
    answered(&format!(
        "{pod}    volumeMounts: [{{name: disk, mountPath: /disk}}]\n  volumes:\n  - name: disk\n    \
         flexVolume: {{driver: virtlet/flexvolume_driver, options: {{type: qcow2}}}}\n"
    ));
}

#[test]
fn claims_and_volumes_that_do_not_fit_cost_no_more_than_others() {
    let mut text = POD.to_owned();
    for n in 0..4000 {
        write!(
            text,
            "---\nkind: PersistentVolumeClaim\nmetadata: {{name: c{n}}}\n\
             spec: {{resources: {{requests: {{storage: 2Gi}}}}}}\n\
             ---\nkind: PersistentVolume\nmetadata: {{name: v{n}}}\n\
             spec: {{capacity: {{storage: 1Gi}}, local: {{path: /srv}}}}\n"
        )
        .unwrap();
    }
    assert_eq!(answered(&text).code, Some(0));
}

#[test]
fn long_words_do_not_flood_the_terminal() {
    let long = "x".repeat(1 << 20);
    for text in [
        format!("a: !{long} b\n"),
        format!("kind: {long}\n"),
        format!(
            "kind: Pod\nmetadata: {{annotations: {{Virtlet{long}: x}}}}\nspec: {{runtimeClassName: disklet}}\n"
        ),
        format!(
            "kind: Pod\nmetadata: {{name: {}}}\nspec: {{runtimeClassName: disklet}}\n",
            "1".repeat(1 << 20)
        ),
        format!("{POD}  volumes: [{{name: v, {long}: {{}}}}]\n"),
        format!("{POD}    resources: {{limits: {{memory: 1{long}}}}}\n"),
        config_map(&format!("data: {{\"{long}\": x}}\n")),
        config_map(&format!("? \"{long}\"\n: x\n? \"{long}\"\n: x\n")),
    ] {
        let outcome = plan(&["--offline", "-f", "-"], text.as_bytes());
        outcome.assert_refused();
        let length = outcome.stderr.len();
        assert!(length < 20_000, "{length} bytes: {:.300}", outcome.stderr);
    }
}
