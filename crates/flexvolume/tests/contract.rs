//! The driver as the kubelet sees it, as far as nothing is mounted.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

const DIRECTORY: &str = "/nonexistent/pods/u-1/volumes/virtlet~flexvolume_driver/data";
const KUBELETS: &str = r#""kubernetes.io/fsType":"","kubernetes.io/pod.name":"web",
    "kubernetes.io/pod.namespace":"default","kubernetes.io/pod.uid":"u-1",
    "kubernetes.io/pvOrVolumeName":"data","kubernetes.io/readwrite":"rw""#;

fn run(arguments: &[&OsStr]) -> Output {
    let mut driver = Command::new(env!("CARGO_BIN_EXE_disklet-flexvolume"));
    driver.args(arguments).output().unwrap()
}

/// The answer to a call: one line, and nothing else. The exit code is 0, or the
/// kubelet would log the arguments; and it reads both outputs as one.
fn answer(arguments: &[&OsStr]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let line = stdout.strip_suffix('\n').unwrap();
    assert!(!line.contains('\n'), "{line}");
    line.to_owned()
}

fn call(arguments: &[&str]) -> String {
    let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
    answer(&arguments)
}

fn mount(json: &str) -> String {
    call(&["mount", DIRECTORY, json])
}

#[test]
fn init_denies_what_the_kubelet_would_take_for_granted() {
    assert_eq!(
        call(&["init"]),
        "{\"status\":\"Success\",\"capabilities\":{\"attach\":false,\"selinuxRelabel\":false,\
         \"supportsMetrics\":false,\"fsGroup\":false,\"requiresFSResize\":false}}"
    );
}

#[test]
fn calls_with_nothing_to_do_succeed_and_unknown_ones_are_not_supported() {
    let success = r#"{"status":"Success"}"#;
    assert_eq!(call(&["attach", "{}", "node"]), success);
    assert_eq!(call(&["detach", "data", "node"]), success);
    assert_eq!(call(&["mountdevice", "/dir", "/dev/x", "{}"]), success);
    assert_eq!(call(&["unmountdevice", "/dir"]), success);
    assert_eq!(
        call(&["isattached", "{}", "node"]),
        r#"{"status":"Success","attached":true}"#
    );
    assert_eq!(
        call(&["waitforattach", "/dev/x", "{}"]),
        r#"{"status":"Success","device":"/dev/x"}"#
    );
    for unknown in [
        "getvolumename",
        "expandvolume",
        "expandfs",
        "provision",
        "",
        "INIT",
    ] {
        assert_eq!(call(&[unknown, "{}"]), r#"{"status":"Not supported"}"#);
    }
    assert_eq!(
        answer(&[OsStr::from_bytes(b"\xff")]),
        r#"{"status":"Not supported"}"#
    );
}

#[test]
fn a_wrong_number_of_arguments_is_told() {
    assert_eq!(
        call(&["mount", DIRECTORY]),
        r#"{"status":"Failure","message":"mount has 1 arguments and wants 2"}"#
    );
    for wrong in [
        &["init", "x"][..],
        &["unmount"],
        &["mountdevice", "a", "b"],
        &[],
    ] {
        assert!(call(wrong).starts_with(r#"{"status":"Failure","message":""#));
    }
}

#[test]
fn options_are_judged_before_anything_is_touched() {
    assert_eq!(
        mount(&format!(r#"{{"type":"qcow2","capcity":"1GB",{KUBELETS}}}"#)),
        r#"{"status":"Failure","message":"option \"capcity\" is unknown to volumes of type qcow2, did you mean \"capacity\"? (allowed: type, part, capacity)"}"#
    );
    assert_eq!(
        mount(&format!(r#"{{"type":"qcow2",{KUBELETS}}}"#)),
        r#"{"status":"Failure","message":"the pod's directory is not there"}"#
    );
    let others = KUBELETS.replace("u-1", "u-2");
    assert_eq!(
        mount(&format!(r#"{{"type":"qcow2",{others}}}"#)),
        r#"{"status":"Failure","message":"the directory is of another pod or volume than the options"}"#
    );
    let outside = call(&[
        "mount",
        "/etc",
        &format!(r#"{{"type":"qcow2",{KUBELETS}}}"#),
    ]);
    assert!(
        outside.contains("is no directory for a volume"),
        "{outside}"
    );
    assert!(call(&["unmount", "/etc"]).contains("Failure"));
    assert_eq!(call(&["unmount", DIRECTORY]), r#"{"status":"Success"}"#);
}

/// Which devices may be used is the agent's to say, but this is none.
#[test]
fn a_path_that_no_device_has_is_refused() {
    for path in [
        "relative",
        "/etc/shadow",
        "/dev/../etc/shadow",
        "/dev",
        "/dev/a\\nb",
        "/dev/\\u0000",
    ] {
        let found = mount(&format!(r#"{{"type":"raw","path":"{path}",{KUBELETS}}}"#));
        assert!(
            found.contains(r#"option \"path\" is not a path of a device (allowed"#),
            "{found}"
        );
    }
    assert_eq!(
        mount(&format!(r#"{{"type":"raw","path":"/dev/sda",{KUBELETS}}}"#)),
        r#"{"status":"Failure","message":"the pod's directory is not there"}"#
    );
}

#[test]
fn hostile_json_is_refused() {
    // Linux lets no argument be longer.
    let longest = 128 << 10;
    let huge = format!("{{\"type\":\"{}\"", "x".repeat(longest - 100));
    let deep = "{\"a\":".repeat(20_000);
    let keys: String = (0..7_000).map(|n| format!("\"k{n}\":\"\",")).collect();
    let many = format!("{{{keys}{KUBELETS}}}");
    let key = "k".repeat(longest - 1000);
    let long_key = format!("{{\"{key}\":\"\",{KUBELETS}}}");
    for json in ["", "null", "{", "[]", &huge, &deep, &many, &long_key] {
        let found = mount(json);
        assert!(found.starts_with(r#"{"status":"Failure""#), "{found}");
        assert!(found.len() < 1200, "{found}");
    }
    let twice = mount(&format!(r#"{{"type":"qcow2","type":"raw",{KUBELETS}}}"#));
    assert!(twice.contains(r#"\"type\" is there twice"#), "{twice}");
    let number = mount(&format!(r#"{{"type":"raw","part":2,{KUBELETS}}}"#));
    assert!(
        number.contains(r#"the value of \"part\" is not a text"#),
        "{number}"
    );
    let bytes = [b"{\"type\":\"", &b"\xff\xfe"[..], b"\"}"].concat();
    let arguments = [
        "mount".as_ref(),
        DIRECTORY.as_ref(),
        OsStr::from_bytes(&bytes),
    ];
    assert!(answer(&arguments).contains("no UTF-8 at byte 9"));
    let two = mount(r#"{"type":"raw"} {}"#);
    assert!(
        two.contains("something follows the object, at byte 15"),
        "{two}"
    );
}

#[test]
fn no_answer_has_a_secret_in_it() {
    let secret = "AQDTwuVY8rA8HxAAthwOKaQPr0hRc7kCmR";
    let ceph = r#""type":"ceph","monitor":"m","pool":"p","volume":"v""#;
    for json in [
        format!(r#"{{{ceph},"secret":"{secret}",{KUBELETS}}}"#),
        format!(r#"{{{ceph},"secret":"{secret}", {KUBELETS}"#),
        format!(r#"{{{ceph},"secrett":"{secret}",{KUBELETS}}}"#),
        format!(r#"{{{ceph},"kubernetes.io/secret/key":"{secret}",{KUBELETS}}}"#),
        format!(r#"{{{ceph},"kubernetes.io/secret/other":"{secret}",{KUBELETS}}}"#),
        format!(r#"{{{ceph},"secret":"{secret}","secret":"{secret}",{KUBELETS}}}"#),
        // In the wrong options.
        format!(r#"{{"type":"ceph","monitor":"{secret}/","pool":"p","volume":"v",{KUBELETS}}}"#),
        format!(r#"{{{ceph},"user":"{secret}/",{KUBELETS}}}"#),
        format!(r#"{{{ceph},"part":"{secret}",{KUBELETS}}}"#),
        format!(r#"{{"type":"raw","path":"{secret}",{KUBELETS}}}"#),
        format!(r#"{{"type":"{secret}",{KUBELETS}}}"#),
        format!(r#"{{"type":"qcow2","capacity":"{secret}",{KUBELETS}}}"#),
        format!(r#"{{"type":"qcow2","capacity":"1{secret}",{KUBELETS}}}"#),
    ] {
        let found = mount(&json);
        assert!(found.contains("Failure"), "{found}");
        assert!(!found.contains(&secret[..12]), "{found}");
    }
}

#[test]
fn people_get_help_and_errors_where_they_expect_them() {
    let run = |arguments: &[&str]| {
        let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
        run(&arguments)
    };
    let version = run(&["version"]);
    let expected = concat!(
        "disklet-flexvolume version ",
        env!("CARGO_PKG_VERSION"),
        "\n"
    );
    assert_eq!(String::from_utf8(version.stdout).unwrap(), expected);
    let help = run(&["--help"]);
    assert!(
        help.stdout
            .starts_with(b"The FlexVolume driver of Disklet.")
    );
    for wrong in [&["install"][..], &["install", "a", "b"], &["uninstall"]] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        assert!(
            output
                .stderr
                .starts_with(b"disklet-flexvolume: one directory")
        );
    }
    let nowhere = run(&["install", "/proc/nowhere"]);
    let error = String::from_utf8(nowhere.stderr).unwrap();
    assert!(error.contains("cannot make /proc/nowhere"), "{error}");
}
