//! Every way on which a secret value can reach a guest: none of them shows it
//! to whoever prints the plan.

use super::invariants::{Node, read};

/// A VM with more annotations, more of a container and more volumes, and a
/// Secret with one value.
fn manifest(annotations: &str, container: &str, volumes: &str, value: &str) -> String {
    format!(
        "kind: Pod\nmetadata: {{name: vm, annotations: {{{annotations}}}}}\n\
         spec:\n  runtimeClassName: disklet\n  containers: [{{name: vm, image: cirros, {container}}}]\n  \
         volumes: [{volumes}]\n---\n\
         kind: Secret\ntype: kubernetes.io/service-account-token\n\
         metadata: {{name: s, annotations: {{kubernetes.io/service-account.name: {account}}}}}\n\
         stringData: {{key: {value}, f_path: /etc/f, f_encoding: plain, f: {value}}}\n",
        account = if volumes.is_empty() && container.is_empty() && annotations.is_empty() {
            "default"
        } else {
            "nobody"
        },
    )
}

/// What must not show, plain and in base64 (of `hunter2` with anything before
/// it that is a multiple of three bytes long).
const MARKERS: [&str; 3] = ["hunter2", "aHVudGVyM", "47114711"];

fn assert_hidden(name: &str, text: &str) {
    let outcome = read(text, Node::Unseen);
    assert_eq!(outcome.errors, 0, "{name}: {:?}", outcome.problems);
    for marker in MARKERS {
        let at = outcome.rendered.find(marker);
        let around = at.map(|at| {
            let from = outcome.rendered.floor_char_boundary(at.saturating_sub(200));
            &outcome.rendered[from..at + marker.len()]
        });
        assert_eq!(around, None, "{name}: {marker} shows");
    }
}

const FILES: &str = "volumeMounts: [{name: v, mountPath: /v}]";

#[test]
fn files_from_secrets_do_not_show() {
    let volumes = [
        "{name: v, secret: {secretName: s}}",
        "{name: v, secret: {secretName: s, items: [{key: key, path: a/b}]}}",
        "{name: v, projected: {sources: [{secret: {name: s}}]}}",
    ];
    for volume in volumes {
        assert_hidden(volume, &manifest("", FILES, volume, "hunter2"));
    }
    assert_hidden("a token", &manifest("", "", "", "hunter2"));
    let injected = "VirtletFilesFromDataSource: secret/s";
    let text = manifest(injected, "", "", "hunter2").replace("key: hunter2, ", "");
    assert_hidden(injected, &text);
}

#[test]
fn variables_from_secrets_do_not_show() {
    for container in [
        "envFrom: [{secretRef: {name: s}}]",
        "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: key}}}]",
        "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: key}}}, {name: B, value: x$(A)}]",
    ] {
        assert_hidden(container, &manifest("", container, "", "hunter2"));
    }
}

#[test]
fn user_data_from_secrets_does_not_show() {
    let source = "VirtletCloudInitUserDataSource: secret/s";
    for value in [
        "hunter2",
        "\"47114711\"",
        "\"4711.4711471147114711\"",
        "\"[hunter2, {a: hunter2}]\"",
        "\"{hunter2: a}\"",
        "\"{a: {hunter2: [b]}}\"",
        "\"0x47114711\"",
        "\"|\\n  hunter2\\n\"",
    ] {
        assert_hidden(value, &manifest(source, "", "", value));
    }
    let script = format!("{source}, VirtletCloudInitUserDataSourceKey: key");
    assert_hidden("a script", &manifest(&script, "", "", "echo hunter2"));
    let packed = format!("{script}, VirtletCloudInitUserDataSourceEncoding: base64");
    assert_hidden(
        "a packed script",
        &manifest(&packed, "", "", "aHVudGVyMg=="),
    );
}

#[test]
fn ssh_keys_from_secrets_do_not_show() {
    // Who names the wrong key of a Secret may have named a private one.
    let source = "VirtletSSHKeySource: secret/s/key";
    assert_hidden(source, &manifest(source, "", "", "hunter2"));
}

#[test]
fn keys_of_ceph_do_not_show() {
    let inline = "{name: v, flexVolume: {driver: virtlet/flexvolume_driver, options: \
                  {type: ceph, monitor: a, pool: p, volume: v, user: u, secret: aHVudGVyMg==}}}";
    assert_hidden("inline", &manifest("", "", inline, "x"));
    let named = "{name: v, flexVolume: {driver: virtlet/flexvolume_driver, secretRef: {name: s}, \
                 options: {type: ceph, monitor: a, pool: p, volume: v, user: u}}}";
    assert_hidden("by name", &manifest("", "", named, "aHVudGVyMg=="));
}

#[test]
fn passwords_in_annotations_do_not_show() {
    for data in [
        "password: hunter2",
        "chpasswd: {list: \"root:hunter2\"}",
        "chpasswd: {users: [{name: a, password: hunter2}]}",
        "users: [{name: a, passwd: hunter2, plain_text_passwd: 47114711}]",
        "ssh_keys: {rsa_private: hunter2}",
    ] {
        let inline = format!("VirtletCloudInitUserData: '{{{data}}}'");
        assert_hidden(data, &manifest(&inline, "", "", "x"));
        // The downward API must not tell what user-data hides.
        let volume = "{name: v, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.annotations}}]}}";
        assert_hidden(
            &format!("{data}, downward"),
            &manifest(&inline, FILES, volume, "x"),
        );
    }
}
