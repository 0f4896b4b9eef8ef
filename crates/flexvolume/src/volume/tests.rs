use proptest::prelude::*;

use super::*;
use crate::Contradiction;
use crate::problem::Problem;

const KEY: &str = "AQDTwuVY8rA8HxAAthwOKaQPr0hRc7kCmR/9Qg==";
/// The same as the kubelet passes it on from a Secret.
const KEY_IN_SECRET: &str = "QVFEVHd1Vlk4ckE4SHhBQXRod09LYVFQcjBoUmM3a0NtUi85UWc9PQ==";

/// A call with what the kubelet always says and these entries.
fn call(entries: &[(&str, &str)]) -> Result<Volume, VolumeError> {
    let kubelets = [
        ("kubernetes.io/fsType", ""),
        ("kubernetes.io/pod.name", "web"),
        ("kubernetes.io/pod.namespace", "default"),
        ("kubernetes.io/pod.uid", "u-1"),
        ("kubernetes.io/pvOrVolumeName", "data"),
        ("kubernetes.io/readwrite", "rw"),
        ("kubernetes.io/serviceAccount.name", "default"),
        ("kubernetes.io/mounterArgs.FsGroup", "1000"),
    ];
    let is_given = |key: &str| entries.iter().any(|(given, _)| *given == key);
    let unsaid = kubelets.iter().filter(|(key, _)| !is_given(key));
    let all = unsaid.chain(entries).filter(|(_, value)| *value != "-");
    let all = all.map(|(key, value)| (*key, (*value).to_owned()));
    Volume::from_call(json::write_texts(all.collect()).as_bytes())
}

fn ceph(entries: &[(&str, &str)]) -> Result<Volume, VolumeError> {
    let own = [
        ("type", "ceph"),
        ("monitor", "mon"),
        ("pool", "p"),
        ("volume", "v"),
    ];
    call(&[&own, entries].concat())
}

fn key_of(volume: &Volume) -> Option<&str> {
    let Options::Ceph(ceph) = &volume.options else {
        panic!()
    };
    ceph.secret.as_ref().map(Key::expose)
}

#[test]
fn the_kubelets_words_are_understood() {
    let volume = call(&[("type", "qcow2"), ("capacity", "1GiB")]).unwrap();
    assert_eq!(volume.name, "data");
    assert_eq!(volume.pod.namespace, "default");
    assert_eq!(volume.pod.name, "web");
    assert_eq!(volume.pod.uid, "u-1");
    assert!(!volume.read_only);
    let read_only = ("kubernetes.io/readwrite", "ro");
    assert!(call(&[("type", "qcow2"), read_only]).unwrap().read_only);
}

#[test]
fn what_the_kubelet_must_say_is_demanded() {
    for key in [NAME, POD_NAMESPACE, POD_NAME, POD_UID, READ_WRITE] {
        let missing = Err(VolumeError::Missing(key));
        assert_eq!(call(&[("type", "qcow2"), (key, "-")]), missing);
        assert_eq!(call(&[("type", "qcow2"), (key, "")]), missing);
    }
    let neither = call(&[("type", "qcow2"), (READ_WRITE, "RO")]);
    assert_eq!(neither, Err(VolumeError::ReadWrite));
}

#[test]
fn a_secrets_key_is_put_among_the_options() {
    let inline = ceph(&[("secret", KEY)]).unwrap();
    let named = ceph(&[
        ("kubernetes.io/secret/key", KEY_IN_SECRET),
        ("kubernetes.io/secret/user", "YWRtaW4="),
    ]);
    assert_eq!(key_of(&inline), Some(KEY));
    assert_eq!(named, Ok(inline));
    assert_eq!(key_of(&ceph(&[]).unwrap()), None);
    // With the line break that `base64 <file` leaves.
    let broken = ceph(&[("kubernetes.io/secret/key", "Wm05dgo=")]).unwrap();
    assert_eq!(key_of(&broken), Some("Zm9v"));
}

#[test]
fn a_secret_that_is_of_no_use_is_refused() {
    let no_key = ceph(&[("kubernetes.io/secret/password", KEY_IN_SECRET)]);
    assert_eq!(no_key, Err(VolumeError::Secret(SecretError::NoKey)));
    for value in ["", "?", "Zm9", "//79", "Pz8/", KEY] {
        let found = ceph(&[("kubernetes.io/secret/key", value)]);
        let expected = Err(VolumeError::Secret(SecretError::NotAKey));
        assert_eq!(found, expected, "{value}");
    }
    let secret = ("kubernetes.io/secret/key", KEY_IN_SECRET);
    let contradiction = |volume| match volume {
        Err(VolumeError::Contradiction(found)) => found,
        other => panic!("{other:?}"),
    };
    let twice = contradiction(ceph(&[secret, ("secret", KEY)]));
    assert_eq!(twice, Contradiction::KeyTwice);
    let unused = contradiction(call(&[secret, ("type", "qcow2")]));
    assert_eq!(unused, Contradiction::SecretUnused);
}

#[test]
fn a_new_volumes_filesystem_is_ext4() {
    let with = |kind, fs_type| {
        let path = if kind == "raw" { "/dev/loop0" } else { "-" };
        call(&[("type", kind), ("path", path), (FS_TYPE, fs_type)])
    };
    let wrong = Err(VolumeError::Contradiction(Contradiction::Filesystem));
    assert_eq!(with("qcow2", "xfs"), wrong);
    for (kind, fs_type) in [("qcow2", ""), ("qcow2", "ext4"), ("raw", "xfs")] {
        assert!(with(kind, fs_type).is_ok(), "{kind} {fs_type}");
    }
}

#[test]
fn options_are_judged_as_manifests_are() {
    let error = call(&[("type", "qcow2"), ("capacity", "16TiB"), ("prat", "1")]).unwrap_err();
    let VolumeError::Options(errors) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(errors.len(), 2);
    assert!(matches!(errors[0].problem, Problem::UnknownKey { .. }));
    assert_eq!(
        error.to_string(),
        "option \"prat\" is unknown to volumes of type qcow2, did you mean \"part\"? \
         (allowed: type, part, capacity); option \"capacity\" is no size that a new volume can have \
         (allowed: 512KiB and more, but less than 16TiB)"
    );
}

#[test]
fn a_raw_volume_has_a_path_of_a_device() {
    let raw = |path| call(&[("type", "raw"), ("path", path)]);
    for path in ["/dev/sda", "/dev/mapper/vm_pool-a", "/dev/disk/by-id/a..b"] {
        assert!(raw(path).is_ok(), "{path}");
    }
    for path in [
        "relative",
        "/etc/shadow",
        "/dev",
        "/dev/",
        "/dev/../etc/shadow",
        "/dev/./sda",
        "/dev//sda",
        "/dev/sda/",
        "/devices",
        "/dev/a\nb",
        "/dev/\0",
        "/dev/\u{202e}ads",
    ] {
        let told = raw(path).unwrap_err().to_string();
        let wanted =
            "option \"path\" is not a path of a device (allowed: a path below /dev without ";
        assert!(told.starts_with(wanted), "{told}");
    }
}

#[test]
fn the_file_is_as_documented() {
    let volume = ceph(&[("secret", KEY), (READ_WRITE, "ro")]).unwrap();
    let page = include_str!("../../../../docs/formats/flexvolume.md");
    let example = page.split("```json\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    assert_eq!(Volume::from_file(example.as_bytes()).as_ref(), Ok(&volume));
    let joined: String = example.lines().map(str::trim).collect();
    assert_eq!(volume.to_file(), joined + "\n");
}

#[test]
fn only_files_of_this_version_are_read() {
    let file = call(&[("type", "qcow2")]).unwrap().to_file();
    let other = file.replace(r#""disklet.io/version":"1""#, r#""disklet.io/version":"2""#);
    assert_ne!(file, other);
    let found = Volume::from_file(other.as_bytes());
    assert_eq!(found, Err(VolumeError::Version(Some("2".to_owned()))));
    let none = file.replace(r#""disklet.io/version":"1","#, "");
    let found = Volume::from_file(none.as_bytes());
    assert_eq!(found, Err(VolumeError::Version(None)));
    // A Secret is the kubelet's business; in a file it would be ignored.
    let call_with_version = call(&[("type", "qcow2"), (FILE_VERSION, "1")]);
    assert!(matches!(call_with_version, Err(VolumeError::Options(_))));
}

#[test]
fn no_secret_shows() {
    for volume in [
        ceph(&[("secret", KEY)]),
        ceph(&[("secret", &KEY[1..])]),
        ceph(&[("kubernetes.io/secret/key", KEY)]),
        ceph(&[("kubernetes.io/secret/key", KEY_IN_SECRET), ("secret", KEY)]),
        call(&[("type", "qcow2"), ("secret", KEY)]),
        ceph(&[("secrett", KEY)]),
    ] {
        let shown = match &volume {
            Ok(volume) => format!("{volume:?}"),
            Err(error) => format!("{error:?} {error}"),
        };
        assert!(!shown.contains(&KEY[1..]), "{shown}");
        assert!(!shown.contains(KEY_IN_SECRET), "{shown}");
    }
}

fn any_volume() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let qcow2 = "[1-9][0-9]{0,3}(MB|Gi|GiB)"
        .prop_map(|capacity| vec![("type", "qcow2".to_owned()), ("capacity", capacity)]);
    let raw = ("\\PC{1,20}", "[0-9]{1,2}").prop_map(|(name, part)| {
        let path = format!("/dev/{name}");
        vec![("Type", "raw".to_owned()), ("path", path), ("part", part)]
    });
    let ceph = (
        "[a-z]{1,5}(:[1-9]{1,4})?(,\\[fd00::[1-9]\\])?",
        "[a-z ]{1,5}[a-z]",
        "([a-zA-Z]{4}){1,9}",
    )
        .prop_map(|(monitor, name, secret)| {
            vec![
                ("type", "ceph".to_owned()),
                ("Monitor", monitor),
                ("pool", name.clone()),
                ("volume", name),
                ("secret", secret),
            ]
        });
    prop_oneof![qcow2, raw, ceph]
}

proptest! {
    #[test]
    fn what_the_driver_writes_the_agent_reads(
        entries in any_volume(),
        name in "\\PC{1,9}",
        read_only in any::<bool>(),
    ) {
        let mut entries: Vec<_> = entries.iter().map(|(key, text)| (*key, text.as_str())).collect();
        entries.extend([(NAME, &*name), (READ_WRITE, read_write(read_only))]);
        let volume = call(&entries);
        // A name of one dash is what `call` takes for absent.
        prop_assume!(volume.is_ok());
        let volume = volume.unwrap();
        prop_assert_eq!(volume.read_only, read_only);
        prop_assert_eq!(&volume.name, &name);
        prop_assert_eq!(Volume::from_file(volume.to_file().as_bytes()), Ok(volume));
    }
}
