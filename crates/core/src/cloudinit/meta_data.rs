//! meta-data: who the guest is.

use std::collections::HashMap;

use super::{CloudInitSpec, ImageType, secrets};
use crate::text::{Data, Text};

/// The document of `spec`. What the user sets there wins, entry by entry.
pub(super) fn document(spec: &CloudInitSpec) -> Data {
    let mut entries = generated(spec);
    // A tenant may write a hundred thousand: none is looked for among the others.
    let (keys, mut users): (Vec<_>, HashMap<_, _>) = (
        spec.meta_data.iter().map(|(key, _)| key).collect(),
        spec.meta_data
            .iter()
            .map(|(key, value)| (key, value))
            .collect(),
    );
    for (key, generated) in &mut entries {
        if let Some(value) = users.remove(key) {
            *generated = value.clone();
        }
    }
    for key in keys {
        if let Some(value) = users.remove(key) {
            entries.push((key.clone(), value.clone()));
        }
    }
    secrets::conceal(&mut entries);
    Data::Map(entries)
}

fn generated(spec: &CloudInitSpec) -> Vec<(String, Data)> {
    let users_or = |key: &str, ours: &str| {
        let set = spec.meta_data.iter().find(|(known, _)| known == key);
        set.map_or_else(|| Data::text(ours), |(_, value)| value.clone())
    };
    let instance_id = users_or("instance-id", &spec.instance_id);
    let hostname = users_or("local-hostname", &spec.hostname);
    let mut entries = vec![
        ("instance-id", instance_id.clone()),
        ("local-hostname", hostname.clone()),
    ];
    // Of a config drive cloud-init takes OpenStack's names, and puts their
    // values over its own.
    if spec.image_type == ImageType::ConfigDrive {
        entries.extend([("uuid", instance_id), ("hostname", hostname)]);
    }
    if !spec.ssh_keys.is_empty() {
        entries.push(match spec.image_type {
            ImageType::NoCloud => ("public-keys", listed_keys(&spec.ssh_keys)),
            ImageType::ConfigDrive => ("public_keys", named_keys(&spec.ssh_keys)),
        });
    }
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

fn listed_keys(keys: &[Text]) -> Data {
    Data::List(keys.iter().cloned().map(Data::Text).collect())
}

/// OpenStack's keys have names.
fn named_keys(keys: &[Text]) -> Data {
    let named = |(index, key): (usize, &Text)| (format!("key-{index}"), Data::Text(key.clone()));
    Data::Map(keys.iter().enumerate().map(named).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::spec;
    use super::*;

    fn users(pairs: &[(&str, &str)]) -> Vec<(String, Data)> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Data::text(*value)))
            .collect()
    }

    #[test]
    fn a_nocloud_guest_has_its_name_and_keys() {
        let mut spec = spec();
        assert_eq!(
            document(&spec),
            Data::pairs([
                ("instance-id", Data::text("6ff0c1d2")),
                ("local-hostname", Data::text("my-vm")),
            ])
        );
        spec.ssh_keys = vec!["ssh-rsa one".into(), "ssh-rsa two".into()];
        assert_eq!(
            document(&spec).get("public-keys"),
            Some(&Data::texts(["ssh-rsa one", "ssh-rsa two"]))
        );
    }

    #[test]
    fn a_config_drive_has_the_names_of_openstack_too() {
        let mut spec = spec();
        spec.image_type = ImageType::ConfigDrive;
        spec.ssh_keys = vec!["ssh-rsa one".into()];
        assert_eq!(
            document(&spec),
            Data::pairs([
                ("instance-id", Data::text("6ff0c1d2")),
                ("local-hostname", Data::text("my-vm")),
                ("uuid", Data::text("6ff0c1d2")),
                ("hostname", Data::text("my-vm")),
                (
                    "public_keys",
                    Data::pairs([("key-0", Data::text("ssh-rsa one"))])
                ),
            ])
        );
    }

    #[test]
    fn the_users_entries_win_also_where_openstack_has_another_name() {
        let mut spec = spec();
        spec.image_type = ImageType::ConfigDrive;
        spec.meta_data = users(&[
            ("instance-id", "mine"),
            ("local-hostname", "host"),
            ("hostname", "other"),
        ]);
        let document = document(&spec);
        assert_eq!(document.get("uuid"), Some(&Data::text("mine")));
        assert_eq!(document.get("local-hostname"), Some(&Data::text("host")));
        assert_eq!(document.get("hostname"), Some(&Data::text("other")));
    }

    #[test]
    fn many_entries_keep_their_order() {
        let mut spec = spec();
        let keys = (0..110_000).map(|n| format!("key-{n}"));
        spec.meta_data = keys.map(|key| (key, Data::text("x"))).collect();
        let Data::Map(entries) = document(&spec) else {
            panic!("a map");
        };
        let written = spec.meta_data.iter().map(|(key, _)| key);
        assert!(entries[2..].iter().map(|(key, _)| key).eq(written));
    }

    #[test]
    fn the_users_entries_replace_whole_values_and_hide_passwords() {
        let mut spec = spec();
        spec.ssh_keys = vec!["ssh-rsa one".into()];
        spec.meta_data = users(&[("public-keys", "ssh-rsa mine"), ("admin_pass", "hunter2")]);
        let document = document(&spec);
        assert_eq!(
            document.get("public-keys"),
            Some(&Data::text("ssh-rsa mine"))
        );
        assert!(secrets::holds_secrets(&document));
    }
}
