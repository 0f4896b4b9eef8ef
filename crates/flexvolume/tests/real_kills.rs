//! The driver killed before every system call that changes something: a volume is
//! then mounted whole or not at all, and the next call does what it says.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::os::unix::process::ExitStatusExt;

use disklet_flexvolume::Volume;
use support::{DRIVER, KEY, Node, SUCCESS, ceph, json};

/// What the driver changes the world by, and what it prepares that with.
const CALLS: [&str; 12] = [
    "openat2",
    "flock",
    "mkdirat",
    "fsopen",
    "fsconfig",
    "fsmount",
    "openat",
    "write",
    "close",
    "move_mount",
    "umount2",
    "unlinkat",
];

/// Kills the driver when it makes this system call for the `count`th time. Whether
/// it was killed; else it has ended by itself.
fn killed(node: &Node, call: &str, count: u32, arguments: &[&str]) -> bool {
    let inject = format!("--inject={call}:signal=SIGKILL:when={count}");
    let output = node
        .command("strace")
        .args(["--quiet=all", "--output=/dev/null", &inject, DRIVER])
        .args(arguments)
        .output()
        .expect("strace is needed");
    let is_killed = output.status.signal() == Some(9) || output.status.code() == Some(128 + 9);
    assert!(is_killed || output.status.success(), "{output:?}");
    is_killed
}

/// Kills a call everywhere, and has `check` look at what is left each time. How
/// often it was killed.
fn everywhere(node: &Node, arguments: &[&str], before: impl Fn(), check: impl Fn(&str)) -> u32 {
    let mut cuts = 0;
    for call in CALLS {
        for count in 1.. {
            before();
            if !killed(node, call, count, arguments) {
                break;
            }
            cuts += 1;
            check(&format!("{call} {count}"));
        }
    }
    cuts
}

/// What is there: nothing, or the whole volume.
fn volume(node: &Node, cut: &str) -> Option<Volume> {
    let mounts = node.mounts("data");
    assert!(
        !node.on_disk().iter().any(|path| path.contains("json")),
        "{cut}"
    );
    if mounts.is_empty() {
        return None;
    }
    assert_eq!(mounts, ["ramfs disklet ro,mode=700"], "{cut}");
    let file = node
        .file("data")
        .unwrap_or_else(|| panic!("{cut}: mounted, but empty"));
    Some(Volume::from_file(file.as_bytes()).unwrap())
}

#[test]
#[ignore = "mounts: needs root and strace"]
fn a_killed_mount_is_whole_or_not_there() {
    let node = Node::new("killed-mount");
    let directory = node.directory("data");
    let call = json("data", &ceph());
    let before = || assert_eq!(node.unmount("data"), SUCCESS);
    let cuts = everywhere(&node, &["mount", &directory, &call], before, |cut| {
        volume(&node, cut);
        assert_eq!(node.mount("data", &ceph()), SUCCESS, "{cut}");
        assert!(volume(&node, cut).is_some(), "{cut}");
    });
    // Before each of the calls, most of which happen more than once.
    assert!(cuts > 12, "{cuts}");
    before();
    assert!(!node.on_disk().contains(&directory));
}

#[test]
#[ignore = "mounts: needs root and strace"]
fn a_killed_change_is_the_old_the_new_or_nothing() {
    let node = Node::new("killed-change");
    let directory = node.directory("data");
    let new = r#""type":"qcow2""#;
    let before = || assert_eq!(node.mount("data", &ceph()), SUCCESS);
    let arguments = ["mount", &directory, &json("data", new)];
    let cuts = everywhere(&node, &arguments, before, |cut| {
        volume(&node, cut);
        assert_eq!(node.mount("data", new), SUCCESS, "{cut}");
        assert!(!node.file("data").unwrap().contains(KEY), "{cut}");
    });
    assert!(cuts > 12, "{cuts}");
}

#[test]
#[ignore = "mounts: needs root and strace"]
fn a_killed_unmount_is_finished_by_the_next() {
    let node = Node::new("killed-unmount");
    let directory = node.directory("data");
    let before = || assert_eq!(node.mount("data", &ceph()), SUCCESS);
    let cuts = everywhere(&node, &["unmount", &directory], before, |cut| {
        volume(&node, cut);
        assert_eq!(node.unmount("data"), SUCCESS, "{cut}");
        assert_eq!(volume(&node, cut), None);
        assert!(!node.on_disk().contains(&directory), "{cut}");
    });
    assert!(cuts > 6, "{cuts}");
}
