use proptest::prelude::*;

use super::*;

const KEY: &str = "AQDTwuVY8rA8HxAAthwOKaQPr0hRc7kCmR/9Qg==";

/// Entries as YAML would have them: `key: value`, one in each line.
fn parse(text: &str) -> Result<Options, Vec<OptionError>> {
    let entries = text.lines().map(str::trim).filter(|line| !line.is_empty());
    Options::parse(entries.map(|line| line.split_once(": ").unwrap()))
}

fn problems(text: &str) -> Vec<String> {
    let errors = parse(text).unwrap_err();
    errors.iter().map(OptionError::message).collect()
}

fn only_error(text: &str) -> OptionError {
    let errors = parse(text).unwrap_err();
    let [error] = &errors[..] else {
        panic!("{errors:?}")
    };
    error.clone()
}

#[test]
fn the_seeds_volumes_are_read() {
    let qcow2 = |capacity| {
        let part = Partition::default();
        Ok(Options::Qcow2(Qcow2 { part, capacity }))
    };
    assert_eq!(parse("type: qcow2"), qcow2(Capacity::DEFAULT));
    assert_eq!(
        parse("type: qcow2\n capacity: 1024MB"),
        qcow2(Capacity::DEFAULT)
    );

    let raw = parse("type: raw\n path: /dev/sdc\n part: 2").unwrap();
    assert_eq!((raw.kind(), raw.part().number()), (Kind::Raw, 2));
    let Options::Raw(raw) = raw else { panic!() };
    assert_eq!(raw.path, "/dev/sdc");
}

#[test]
fn ceph_is_read_in_both_spellings() {
    let capitals = parse(&format!(
        "Type: ceph
         Monitor: 10.192.0.1:6789
         User: libvirt
         Secret: {KEY}
         Volume: rbd-test-image
         Pool: libvirt-pool"
    ));
    let small = parse(&format!(
        "type: ceph
         monitor: 10.192.0.1
         user: libvirt
         secret: {KEY}
         volume: rbd-test-image
         pool: libvirt-pool
         protocol: rbd"
    ));
    assert_eq!(capitals, small);
    let Ok(Options::Ceph(ceph)) = small else {
        panic!()
    };
    assert_eq!(ceph.monitors[0].to_string(), "10.192.0.1:6789");
    assert_eq!(ceph.pool.as_str(), "libvirt-pool");
    assert_eq!(ceph.volume.as_str(), "rbd-test-image");
    assert_eq!(ceph.user.as_str(), "libvirt");
    assert_eq!(ceph.secret.unwrap().expose(), KEY);
}

#[test]
fn ceph_without_user_is_admins_and_without_secret_has_none() {
    let text = "type: ceph\n monitor: a,b:1\n pool: p\n volume: v\n part: 0";
    let Ok(Options::Ceph(ceph)) = parse(text) else {
        panic!()
    };
    assert_eq!(ceph.user, CephUser::default());
    assert_eq!(ceph.secret, None);
    assert_eq!(ceph.part, Partition::WHOLE_DISK);
    assert_eq!(ceph.monitors.len(), 2);
}

#[test]
fn what_the_kubelet_adds_is_ignored_and_nothing_else() {
    let added = "type: qcow2
        kubernetes.io/fsType: ext4
        kubernetes.io/readwrite: rw
        kubernetes.io/pod.uid: 1234";
    assert_eq!(parse(added), parse("type: qcow2"));
    assert_eq!(
        problems("type: qcow2\n readOnly: true\n uuid: 1\n fstype: ext4"),
        [
            r#"option "readOnly" is a field of the flexVolume itself: write it beside options"#,
            r#"option "uuid" is not for the user to choose: remove it"#,
            r#"option "fstype" is a field of the flexVolume itself: write it beside options"#,
        ]
    );
}

#[test]
fn all_problems_are_found_at_once() {
    assert_eq!(
        problems(
            "type: ceph\n Type: raw\n capacity: x\n pol: p\n part: -1\n secret: ?\n monitor: ::1"
        ),
        [
            r#"option "Type" is given twice, before as "type""#,
            r#"option "pol" is unknown to volumes of type ceph"#,
            r#"option "capacity" belongs to type qcow2, and this volume is of type ceph"#,
            r#"option "part" is not a partition number"#,
            "option \"monitor\" has an IPv6 address without brackets: \
             write [address] or [address]:port",
            r#"option "pool" is missing: a volume of type ceph needs it"#,
            r#"option "volume" is missing: a volume of type ceph needs it"#,
            r#"option "secret" is not base64"#,
        ]
    );
}

#[test]
fn values_are_checked_without_a_type_too() {
    let values = "part: x
        capacity: 0
        monitor: a:0
        pool: a/b
        volume: -v
        user: a b
        secret: ?
        protocol: nbd";
    let without_type = problems(values);
    assert_eq!(without_type.len(), 9);
    assert_eq!(without_type[0], r#"option "type" is missing"#);
    assert_eq!(problems(&format!("{values}\n type: cehp")).len(), 9);
    assert_eq!(
        Options::parse([("type", "raw"), ("path", "")])
            .unwrap_err()
            .len(),
        1
    );
}

#[test]
fn misspellings_get_a_suggestion_and_what_is_allowed() {
    let error = only_error("type: qcow2\n capcaity: 1GB");
    assert_eq!(error.suggestion(), Some("capacity"));
    assert_eq!(error.allowed(), "type, part, capacity");
    assert_eq!(
        error.to_string(),
        "option \"capcaity\" is unknown to volumes of type qcow2, \
         did you mean \"capacity\"? (allowed: type, part, capacity)"
    );

    let error = only_error("type: qcow");
    assert_eq!(error.suggestion(), Some("qcow2"));
    assert_eq!(error.found(), Some("qcow"));
    assert_eq!(error.allowed(), "qcow2, raw, ceph");

    let error = only_error("type: qcow2\n capacity: 10gb");
    assert_eq!(error.suggestion(), Some("GB"));
    assert_eq!(
        error.message(),
        r#"option "capacity" has an unknown unit, "gb""#
    );
    assert_eq!(only_error("part: 1").allowed(), "qcow2, raw, ceph");
}

#[test]
fn no_error_shows_a_secret() {
    let secret = "hunter2";
    for key in ["secret", "Secret", "secrett", "key", "password"] {
        let entries = [("type", "ceph"), (key, secret), ("SECRET", secret)];
        for error in Options::parse(entries).unwrap_err() {
            assert_eq!(error.found(), None);
            assert!(!format!("{error} {error:?} {}", error.allowed()).contains(secret));
        }
    }
    let entries = [("type", "raw"), ("path", "/dev/loop0"), ("secret", secret)];
    let errors = Options::parse(entries).unwrap_err();
    assert!(!format!("{errors:?}").contains(secret));
}

fn any_key() -> impl Strategy<Value = String> {
    let known = "type|[Pp]art|capacity|path|monitor|pool|volume|user|secret|protocol";
    prop_oneof![known, "\\PC{0,12}", Just("kubernetes.io/x".to_owned())]
}

fn any_value() -> impl Strategy<Value = String> {
    let plausible = "qcow2|raw|ceph|rbd|[0-9]{1,3}|[0-9]{1,4}(MB|Gi)|/dev/loop0|mon:6789|Zm9v";
    prop_oneof![plausible, "\\PC{0,40}"]
}

proptest! {
    #[test]
    fn no_entries_upset_the_parser(
        entries in prop::collection::vec((any_key(), any_value()), 0..8),
    ) {
        let pairs = entries.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        if let Err(errors) = Options::parse(pairs) {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(!error.allowed().is_empty());
                let _ = error.to_string();
            }
        }
    }
}
