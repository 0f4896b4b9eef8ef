//! Volumes mounted for real: as root, in a mount namespace of its own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Stdio;

use disklet_flexvolume::{Options, Volume};
use support::{KEY, Node, SUCCESS, ceph, json};

const QCOW2: &str = r#""type":"qcow2","capacity":"1GiB""#;

fn mount(node: &Node, arguments: &[&str]) {
    let status = node.command("mount").args(arguments).status().unwrap();
    assert!(status.success(), "{arguments:?}");
}

fn unmount(node: &Node, directory: &str) {
    let status = node.command("umount").arg(directory).status().unwrap();
    assert!(status.success(), "{directory}");
}

#[test]
#[ignore = "mounts: needs root"]
fn a_volume_is_described_in_memory_for_root_alone() {
    let node = Node::new("described");
    assert_eq!(node.mount("data", &ceph()), SUCCESS);
    let mounts = node.mounts("data");
    assert_eq!(mounts, ["ramfs disklet ro,mode=700"]);
    let file = node
        .seen(node.directory("data"))
        .join("disklet-volume.json");
    let found = fs::metadata(&file).unwrap();
    assert_eq!((found.mode() & 0o7777, found.uid()), (0o600, 0));
    let volume = Volume::from_file(&fs::read(&file).unwrap()).unwrap();
    let Options::Ceph(options) = &volume.options else {
        panic!("{volume:?}")
    };
    assert_eq!(options.secret.as_ref().unwrap().expose(), KEY);
    assert!(!volume.read_only);
    // The pod has the filesystem, too, and may be root in itself.
    let changes = [
        fs::write(file.with_extension("x"), ""),
        fs::OpenOptions::new().write(true).open(&file).map(drop),
        fs::remove_file(&file),
    ];
    for change in changes {
        let error = change.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    }
    // Below the mount, on the disk, there is nothing.
    let below = node.directory("data");
    assert!(node.on_disk().contains(&below));
    assert!(!node.on_disk().iter().any(|path| path.contains("json")));
    assert_eq!(node.unmount("data"), SUCCESS);
    assert_eq!(node.mounts("data"), [""; 0]);
    assert!(!node.on_disk().contains(&below));
}

#[test]
#[ignore = "mounts: needs root"]
fn read_only_is_passed_on() {
    let node = Node::new("readonly");
    let call = json("data", QCOW2).replace(r#""rw""#, r#""ro""#);
    assert_eq!(
        node.call(&["mount", &node.directory("data"), &call]),
        SUCCESS
    );
    let file = node.file("data").unwrap();
    assert!(Volume::from_file(file.as_bytes()).unwrap().read_only);
}

#[test]
#[ignore = "mounts: needs root"]
fn calls_may_be_repeated() {
    let node = Node::new("repeated");
    // The kubelet has made the directory, or has not.
    fs::create_dir(node.directory("made")).unwrap();
    for volume in ["made", "not-made"] {
        for _ in 0..3 {
            assert_eq!(node.mount(volume, QCOW2), SUCCESS);
        }
        assert_eq!(node.mounts(volume).len(), 1);
        // The same in other words is the same.
        let identity = || {
            let file = node
                .seen(node.directory(volume))
                .join("disklet-volume.json");
            let found = fs::metadata(file).unwrap();
            (found.dev(), found.ino())
        };
        let first = identity();
        assert_eq!(
            node.mount(volume, r#""capacity":"1Gi","Type":"qcow2""#),
            SUCCESS
        );
        assert_eq!(identity(), first);
        for _ in 0..3 {
            assert_eq!(node.unmount(volume), SUCCESS);
        }
        assert_eq!(node.mounts(volume), [""; 0]);
    }
    assert_eq!(node.unmount("never-there"), SUCCESS);
    fs::remove_dir_all(node.seen(node.directory("x")).parent().unwrap()).unwrap();
    assert_eq!(node.unmount("never-there"), SUCCESS);
}

#[test]
#[ignore = "mounts: needs root"]
fn other_options_take_the_place_of_the_old_ones() {
    let node = Node::new("other");
    assert_eq!(node.mount("data", &ceph()), SUCCESS);
    assert_eq!(node.mount("data", QCOW2), SUCCESS);
    assert_eq!(node.mounts("data").len(), 1);
    let file = node.file("data").unwrap();
    assert!(
        file.contains("\"type\":\"qcow2\"") && !file.contains(KEY),
        "{file}"
    );
    // Bad ones leave the good ones where they are.
    assert!(node.mount("data", r#""type":"raw""#).contains("Failure"));
    assert_eq!(node.file("data"), Some(file));
}

#[test]
#[ignore = "mounts: needs root"]
fn what_virtlets_driver_left_is_taken_over_and_cleared() {
    let node = Node::new("virtlet");
    let directory = node.directory("data");
    let leave = || {
        fs::create_dir_all(&directory).unwrap();
        fs::write(format!("{directory}/virtlet-flexvolume.json"), KEY).unwrap();
        for _ in 0..2 {
            mount(&node, &["-t", "tmpfs", "tmpfs", &directory]);
        }
        let file = node.seen(&directory).join("virtlet-flexvolume.json");
        fs::write(file, KEY).unwrap();
        assert_eq!(node.mounts("data").len(), 2);
    };
    leave();
    assert_eq!(node.unmount("data"), SUCCESS);
    assert!(!node.on_disk().contains(&directory));
    leave();
    assert_eq!(node.mount("data", QCOW2), SUCCESS);
    assert_eq!(node.mounts("data"), ["ramfs disklet ro,mode=700"]);
    assert_eq!(node.unmount("data"), SUCCESS);
    assert!(!node.on_disk().contains(&directory));
}

#[test]
#[ignore = "mounts: needs root"]
fn what_is_not_ours_is_left_alone() {
    let node = Node::new("foreign");
    let directory = node.directory("data");
    fs::create_dir(&directory).unwrap();
    let other = node.directory("other");
    fs::create_dir(&other).unwrap();
    fs::write(format!("{other}/precious"), "").unwrap();
    mount(&node, &["--bind", &other, &directory]);
    let answer = node.mount("data", QCOW2);
    assert!(
        answer.contains("something that is not ours is mounted there"),
        "{answer}"
    );
    assert_eq!(node.mounts("data").len(), 1);
    let answer = node.unmount("data");
    assert!(
        answer.contains("something that is not ours is mounted there"),
        "{answer}"
    );
    assert_eq!(node.mounts("data").len(), 1);
    unmount(&node, &directory);
    // A filesystem in memory may be somebody else's, too: its files say so.
    mount(&node, &["-t", "tmpfs", "tmpfs", &directory]);
    let precious = node.seen(&directory).join("precious");
    fs::write(&precious, "").unwrap();
    for answer in [node.mount("data", QCOW2), node.unmount("data")] {
        assert!(
            answer.contains("something that is not ours is mounted there"),
            "{answer}"
        );
    }
    assert!(precious.exists());
    unmount(&node, &directory);
    assert_eq!(node.unmount("data"), SUCCESS);
    assert!(node.on_disk().contains(&format!("{other}/precious")));
    for answer in [node.mount("other", QCOW2), node.unmount("other")] {
        assert!(
            answer.contains("the directory holds what is not ours"),
            "{answer}"
        );
    }
    assert!(node.mounts("other").is_empty());
    assert!(node.on_disk().contains(&format!("{other}/precious")));
}

#[test]
#[ignore = "mounts: needs root"]
fn no_link_is_followed() {
    let node = Node::new("links");
    let elsewhere = node.directory("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, node.directory("data")).unwrap();
    for answer in [node.mount("data", QCOW2), node.unmount("data")] {
        assert!(
            answer.contains("data is there and is no directory"),
            "{answer}"
        );
    }
    let volumes = node.directory("");
    let volumes = volumes.trim_end_matches('/');
    let moved = format!("{volumes}-moved");
    fs::rename(volumes, &moved).unwrap();
    symlink(&moved, volumes).unwrap();
    for answer in [node.mount("elsewhere", QCOW2), node.unmount("elsewhere")] {
        assert!(answer.contains("a symbolic link is on the way"), "{answer}");
    }
    assert!(node.on_disk().contains(&format!("{moved}/elsewhere")));
    assert_eq!(node.mounts("elsewhere"), [""; 0]);
}

#[test]
#[ignore = "mounts: needs root"]
fn the_kubelets_root_may_be_behind_a_link() {
    let node = Node::new("linked-root");
    let directory = node.directory("data");
    let (root, below) = directory.split_once("/pods/").unwrap();
    let link = format!("{root}/link");
    symlink(root, &link).unwrap();
    let linked = format!("{link}/pods/{below}");
    assert_eq!(
        node.call(&["mount", &linked, &json("data", QCOW2)]),
        SUCCESS
    );
    assert_eq!(node.mounts("data").len(), 1);
    assert_eq!(node.call(&["unmount", &linked]), SUCCESS);
    assert_eq!(node.mounts("data").len(), 0);
}

#[test]
#[ignore = "mounts: needs root"]
fn calls_at_once_leave_one_mount() {
    let node = Node::new("at-once");
    let directory = node.directory("data");
    let children: Vec<_> = (0..12)
        .map(|n| {
            let options = format!(r#""type":"qcow2","capacity":"{}GiB""#, 1 + n % 3);
            let mut command = node.command(support::DRIVER);
            command.args(["mount", &directory, &json("data", &options)]);
            command.stdout(Stdio::null()).spawn().unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(node.mounts("data").len(), 1);
    assert!(node.file("data").is_some());
    assert_eq!(node.unmount("data"), SUCCESS);
    assert_eq!(node.mounts("data").len(), 0);
}

#[test]
#[ignore = "mounts: needs root"]
fn a_volume_that_is_looked_at_is_unmounted_all_the_same() {
    let node = Node::new("busy");
    assert_eq!(node.mount("data", QCOW2), SUCCESS);
    let path = node
        .seen(node.directory("data"))
        .join("disklet-volume.json");
    let file = fs::File::open(path).unwrap();
    assert_eq!(node.unmount("data"), SUCCESS);
    assert_eq!(node.mounts("data").len(), 0);
    drop(file);
}

#[test]
#[ignore = "mounts: needs root"]
fn without_root_it_fails_and_leaves_nothing() {
    let node = Node::new("nobody");
    let directory = node.directory("data");
    let parent = directory.strip_suffix("/data").unwrap();
    let mode = fs::Permissions::from_mode(0o777);
    fs::set_permissions(parent, mode).unwrap();
    // Where nobody can reach it, wherever the build is.
    let driver = format!("{parent}/driver");
    fs::copy(support::DRIVER, &driver).unwrap();
    let output = node
        .command("setpriv")
        .args(["--reuid", "65534", "--clear-groups", &driver])
        .args(["mount", &directory, &json("data", QCOW2)])
        .output()
        .unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(
        answer.contains("the driver must run as root"),
        "{answer} {:?}",
        output.stderr
    );
    assert!(!node.on_disk().contains(&directory));
}
