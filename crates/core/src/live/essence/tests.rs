use std::collections::BTreeSet;

use serde_json::json;

use super::*;

macro_rules! golden {
    ($($name:literal),+ $(,)?) => {
        [$(include_str!(concat!("../../../../disklet/tests/golden/", $name, "/plan.json"))),+]
    };
}

/// Disks of every kind, as plans show them.
fn disks() -> Vec<Value> {
    let plans = golden![
        "vms/01-every-server",
        "vms/02-the-matrix",
        "vms/03-keys-below-overlays",
        "vms/04-volumes-of-every-type",
        "vms/05-the-machine",
        "vms/06-sharing",
        "vms/07-user-data-from-objects",
        "vms/08-storage-containers",
        "vms/09-flexvolumes",
        "vms/13-for-a-launcher",
        "vm-pods/02-persistent-root-local",
        "vm-pods/07-raw-devices-by-link",
    ];
    let plans = plans.iter().map(|text| serde_json::from_str(text).unwrap());
    let disks = plans.flat_map(|plans: Value| plans.as_array().unwrap().clone());
    let disks = disks.flat_map(|plan| plan["disks"].as_array().unwrap().clone());
    disks.collect()
}

/// What makes no other disk, or follows from what does.
const BESIDE: [&str; 6] = ["name", "target", "size", "atLeast", "lease", "migration"];
const BESIDE_OF_SOURCE: [&str; 7] = [
    "kind",
    "exposedAt",
    "filledFrom",
    "secret",
    "recreate",
    "create",
    "volume",
];

/// Something of the same sort that it is not.
fn otherwise(value: &Value) -> Value {
    match value {
        Value::Bool(it) => (!it).into(),
        Value::Number(it) => (it.as_u64().unwrap() + 1).into(),
        Value::Array(all) if all.is_empty() => json!([{"path": "/x", "part": 1, "readOnly": true}]),
        Value::Array(_) => json!([]),
        Value::Object(fields) if fields.contains_key("readBytesSec") => json!({"readBytesSec": 1}),
        Value::Object(_) => json!({"file": "/other", "claim": "other", "volume": "other"}),
        Value::Null => json!("other"),
        Value::String(_) => json!("other"),
    }
}

/// Two words of the program's are known by their type.
fn another_word(key: &str, value: &Value) -> Value {
    match (key, value.as_str()) {
        ("bus", Some("scsi")) => json!("virtio"),
        ("bus", _) => json!("scsi"),
        ("device", Some("disk")) => json!("lun"),
        ("device", Some("cdrom" | "lun")) => json!("disk"),
        ("copiedTo", _) if value.is_null() => json!({"file": "/other", "masterFormat": "raw"}),
        _ => otherwise(value),
    }
}

#[test]
fn a_disk_is_itself() {
    for disk in disks() {
        Essence::deserialize(&disk).unwrap_or_else(|why| panic!("{why}: {disk:#}"));
        assert!(!is_another(&disk, &disk), "{disk:#}");
    }
}

/// Whoever has plans show more has to say here, or in the types, what it means.
#[test]
fn whatever_is_shown_makes_another_disk_or_is_known_not_to() {
    for disk in disks() {
        for (key, value) in disk.as_object().unwrap() {
            if key == "source" {
                continue;
            }
            let mut now = disk.clone();
            now[key] = another_word(key, value);
            let is_beside = BESIDE.contains(&key.as_str());
            assert_eq!(is_another(&disk, &now), !is_beside, "{key}: {now:#}");
        }
        for (key, value) in disk["source"].as_object().unwrap() {
            let mut now = disk.clone();
            now["source"][key] = otherwise(value);
            let kind = disk["source"]["kind"].as_str().unwrap();
            let is_beside = match (kind, key.as_str()) {
                ("gluster", "volume") => false,
                // Where the store keeps it, or the program what it has made.
                ("image" | "cloudInit", "file") => true,
                // Neither has anybody to log in.
                ("nbd" | "gluster", "user") => true,
                (_, "kind") => continue,
                (_, key) => BESIDE_OF_SOURCE.contains(&key),
            };
            assert_eq!(is_another(&disk, &now), !is_beside, "{kind} {key}: {now:#}");
        }
    }
}

/// One that an older version has written lacks what the program says of a disk by now, and
/// one that a newer version has written says what this one does not know.
#[test]
fn what_a_version_did_not_say_makes_no_other_disk() {
    const ONLY_IF_WANTED: [&str; 4] = ["bootOrder", "cache", "io", "iotune"];
    for now in disks() {
        for key in now.as_object().unwrap().keys() {
            let mut older = now.clone();
            older.as_object_mut().unwrap().remove(key);
            let is_said = ONLY_IF_WANTED.contains(&key.as_str());
            assert_eq!(is_another(&older, &now), is_said, "{key}: {now:#}");
        }
        for key in now["source"].as_object().unwrap().keys() {
            let mut older = now.clone();
            older["source"].as_object_mut().unwrap().remove(key);
            let is_said = ["kind", "claim", "server", "socket"].contains(&key.as_str());
            assert_eq!(is_another(&older, &now), is_said, "{key}: {now:#}");
        }
        let mut newer = now.clone();
        newer["queues"] = 4.into();
        newer["source"]["zone"] = "a".into();
        assert!(!is_another(&now, &newer), "{newer:#}");
        assert!(!is_another(&newer, &now), "{newer:#}");
    }
}

#[test]
fn another_kind_or_one_that_nobody_knows_is_another() {
    let kinds: BTreeSet<_> = disks()
        .iter()
        .map(|disk| disk["source"]["kind"].to_string())
        .collect();
    assert_eq!(kinds.len(), 15, "{kinds:?}");
    let kept = json!({"bus": "scsi", "source": {"kind": "image"}});
    assert!(is_another(
        &kept,
        &json!({"bus": "scsi", "source": {"kind": "newVolume"}})
    ));
    let strange = json!({"bus": "scsi", "source": {"kind": "teapot"}});
    assert!(is_another(&kept, &strange));
    assert!(!is_another(&strange, &strange));
}
