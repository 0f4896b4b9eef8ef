//! What is one storage, and what is two.

use super::*;
use crate::facts::{DeviceNumber, FileId};

fn rbd(monitors: &[&str]) -> Storage {
    Storage::rbd(monitors.iter().copied(), "rbd", "root")
}

fn on(path: &str, number: Option<(u32, u32)>, nodes: Option<&[&str]>) -> Storage {
    let number = number.map(|(major, minor)| DeviceNumber { major, minor });
    let hosts = nodes.map(|nodes| nodes.iter().map(|&name| name.to_owned()).collect());
    let nodes = Nodes { name: None, hosts };
    Storage::of_node(path, number.map(NodeThing::Device), nodes)
}

fn file(path: &str, inode: u64) -> Storage {
    let (major, minor) = (8, 1);
    let device = DeviceNumber { major, minor };
    let file = NodeThing::File(FileId { device, inode });
    Storage::of_node(path, Some(file), Nodes::default())
}

#[test]
fn a_file_is_one_whatever_it_is_called() {
    assert!(file("/srv/a/disk.img", 5).is(&file("/mnt/b/disk.img", 5)));
    assert!(!file("/srv/a/disk.img", 5).is(&file("/srv/a/disk.img", 6)));
    assert!(file("/srv/a/disk.img", 5).is(&on("/srv/a/disk.img", None, None)));
    assert!(!file("/dev/sda1", 5).is(&on("/dev/sda1", Some((8, 1)), None)));
    assert_eq!(file("/srv//a/disk.img", 5).to_string(), "/srv/a/disk.img");
}

#[test]
fn what_the_node_shows_is_one_whatever_drivers_call_it() {
    let device = |minor| NodeThing::Device(DeviceNumber { major: 8, minor });
    let csi = |handle: &str, minor: Option<u32>| {
        Storage::Named(format!("csi {handle}")).shown_as(minor.map(device))
    };
    assert!(csi("a", Some(16)).is(&csi("b", Some(16))));
    assert!(csi("a", Some(16)).is(&on("/dev/sdb", Some((8, 16)), None)));
    assert!(csi("a", Some(16)).is(&csi("a", None)));
    // One volume may be mapped twice.
    assert!(csi("a", Some(16)).is(&csi("a", Some(32))));
    assert!(!csi("a", Some(16)).is(&csi("b", Some(32))));
    assert_eq!(csi("a", Some(16)).to_string(), "csi a");
}

#[test]
fn what_is_shown_is_one_storage_alone() {
    let part = |part: Option<&str>| Storage::PartOf {
        disk: "disk d".to_owned(),
        part: part.map(str::to_owned),
    };
    let all = [
        part(None),
        part(Some("1")),
        part(Some("11")),
        rbd(&["a", "b"]),
        rbd(&["b"]),
        Storage::gluster(["a"].into_iter(), "v", "p"),
        Storage::gluster(["a"].into_iter(), "v", "p x"),
        Storage::cephfs(["a"].into_iter(), "/d"),
        Storage::fibre_channel(["a"].into_iter(), Some("1")),
        Storage::Named("iscsi unit iqn.2026-01.example:a/1".to_owned()),
        Storage::Named("iscsi unit iqn.2026-01.example:a/11".to_owned()),
    ];
    for (nth, one) in all.iter().enumerate() {
        for (other_nth, other) in all.iter().enumerate() {
            let same = Storage::is_shown_as(&one.to_string(), &other.name(), other.hosts());
            assert_eq!(same, nth == other_nth, "{one} as {other}");
        }
    }
}

#[test]
fn paths_have_one_spelling() {
    for (written, plain) in [
        ("/a//b/./c/", "/a/b/c"),
        ("a/../b", "/b"),
        ("/../a", "/a"),
        ("/a/b/../../c/..", "/"),
        ("", "/"),
    ] {
        assert_eq!(plain_path(written), plain, "{written}");
    }
}

#[test]
fn fibre_channel_units_are_known_by_any_of_their_ports() {
    let unit = |ports: &[&str], lun| Storage::fibre_channel(ports.iter().copied(), lun);
    assert!(unit(&["50A", "50b"], Some("2")).is(&unit(&["50B"], Some("2"))));
    assert!(!unit(&["50a"], Some("2")).is(&unit(&["50a"], Some("3"))));
    assert!(!unit(&["50a"], Some("0")).may_be(&unit(&["50b"], Some("0"))));
    assert!(unit(&["3600"], None).is(&unit(&["3600", "3601"], None)));
    assert!(unit(&["0x50:0a-1b"], Some("2")).is(&unit(&["500A1B"], Some("2"))));
}

#[test]
fn clusters_that_share_no_monitor_are_two() {
    assert!(rbd(&["a", "B"]).is(&rbd(&["b", "c"])));
    assert!(!rbd(&["a"]).is(&rbd(&["b"])));
    assert!(rbd(&["a"]).may_be(&rbd(&["b"])));
    assert!(!rbd(&["a"]).may_be(&rbd(&["a"])));
}

#[test]
fn names_show_as_they_are() {
    let odd = Storage::rbd(["a\u{202e}b"].into_iter(), "p", "x\u{1b}[2J\n");
    assert_eq!(
        odd.to_string(),
        "rbd image p/x\\u{1b}[2J\\n of the cluster with monitors a\\u{202e}b"
    );
}

#[test]
fn devices_are_compared_by_number_and_unseen_ones_by_path() {
    let loop0 = on("/dev/loop0", Some((7, 0)), None);
    assert!(loop0.is(&on("/dev/disk/by-id/x", Some((7, 0)), None)));
    assert!(!loop0.is(&on("/dev/loop0", Some((7, 1)), None)));
    assert!(on("/dev/vg/x", None, None).is(&on("/dev//vg/x/", None, None)));
    assert!(loop0.is(&on("/dev/loop0", None, None)));
}

#[test]
fn a_path_on_two_nodes_is_two_things() {
    let first = on("/dev/sdb", None, Some(&["one"]));
    assert!(!first.is(&on("/dev/sdb", None, Some(&["two", "three"]))));
    assert!(first.is(&on("/dev/sdb", None, Some(&["two", "one"]))));
    assert!(first.is(&on("/dev/sdb", None, None)));
    // The node that was looked at is one of the two at most.
    let seen = |host: &str| on("/dev/sdb", Some((8, 16)), Some(&[host]));
    assert!(!seen("one").is(&seen("two")));
}

#[test]
fn a_node_is_another_if_it_has_another_name_of_the_same_kind() {
    let at = |name: Option<&str>, host: Option<&str>| {
        let nodes = Nodes {
            name: name.map(str::to_owned),
            hosts: host.map(|host| vec![host.to_owned()]),
        };
        Storage::of_node("/dev/sdb", None, nodes)
    };
    assert!(!at(Some("one"), None).is(&at(Some("two"), None)));
    assert!(!at(Some("one"), Some("a")).is(&at(None, Some("b"))));
    assert!(!at(Some("one"), Some("a")).is(&at(Some("two"), Some("a"))));
    assert!(at(Some("one"), None).is(&at(None, Some("two"))));
    assert!(at(Some("one"), Some("a")).is(&at(Some("one"), None)));
}

#[test]
fn a_disk_is_any_of_its_partitions() {
    let part = |disk: &str, part: Option<&str>| Storage::PartOf {
        disk: disk.to_owned(),
        part: part.map(str::to_owned),
    };
    assert!(part("a", None).is(&part("a", Some("1"))));
    assert!(part("a", Some("1")).is(&part("a", None)));
    assert!(part("a", Some("1")).is(&part("a", Some("1"))));
    assert!(!part("a", Some("1")).is(&part("a", Some("2"))));
    assert!(!part("a", None).is(&part("b", None)));
    assert_eq!(part("a", None).keys(), part("a", Some("1")).keys());
    assert_eq!(part("a", Some("1")).to_string(), "a, partition 1");
    // Nodes that have a disk and a partition of it have to ask at one place.
    assert_eq!(part("a", Some("1")).name(), part("a", None).name());
}

#[test]
fn what_is_the_same_has_a_key_in_common() {
    let pairs = [
        (rbd(&["a", "b"]), rbd(&["b"])),
        (
            on("/dev/a", Some((7, 0)), None),
            on("/dev/b", Some((7, 0)), None),
        ),
        (on("/dev/a", Some((7, 0)), None), on("/dev/a", None, None)),
        (file("/srv/a", 5), file("/srv/b", 5)),
    ];
    for (one, other) in pairs {
        assert!(one.is(&other));
        let keys = other.keys();
        assert!(one.keys().iter().any(|key| keys.contains(key)), "{one}");
    }
}
