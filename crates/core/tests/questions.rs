//! What a resolution asks of a node, and what becomes of the answers.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;
use disklet_core::facts::{DeviceNumber, Facts, PathFact, Questions};
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::plan::Plan;
use disklet_core::resolve::resolve;
use disklet_core::text::{Reveal, Secret};
use disklet_core::units::ByteSize;

fn read(text: &str) -> Objects {
    let (mut objects, mut diags) = (Objects::default(), Diagnostics::default());
    let input = Input {
        name: "x".into(),
        text: text.to_owned(),
    };
    objects.read(&input, &Namespace::parse("default").unwrap(), &mut diags);
    assert_eq!(diags.errors(), 0, "{diags:?}");
    objects
}

fn planned(objects: &Objects, facts: &Facts) -> Result<Plan, String> {
    let mut diags = Diagnostics::default();
    let mut plans = resolve(objects, &Config::default(), facts, &mut diags);
    plans.pop().ok_or_else(|| format!("{diags:?}"))
}

/// A pod of a cluster, whose root and one more disk are devices of 8 MiB by the words
/// of their volumes.
const DEVICES: &str = r#"
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-root}
spec: {capacity: {storage: 8Mi}, accessModes: [ReadWriteOnce], volumeMode: Block, csi: {driver: d, volumeHandle: a}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-data}
spec: {capacity: {storage: 8Mi}, accessModes: [ReadWriteOnce], volumeMode: Block, csi: {driver: d, volumeHandle: b}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: root}
spec: {volumeName: pv-root, volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 8Mi}}}
status: {phase: Bound}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: pv-data, volumeMode: Block, accessModes: [ReadWriteOnce], resources: {requests: {storage: 8Mi}}}
status: {phase: Bound}
---
apiVersion: v1
kind: Pod
metadata:
  name: vm
  uid: uid-1
  annotations: {kubernetes.io/target-runtime: virtlet.cloud}
spec:
  containers:
  - name: vm
    image: virtlet.cloud/debian
    volumeDevices: [{name: root, devicePath: /}]
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: root}}
  - {name: data, persistentVolumeClaim: {claimName: data}}
"#;

const MAPPED: &str = "/var/lib/kubelet/pods/uid-1/volumeDevices/kubernetes.io~csi";

#[test]
fn devices_that_the_kubelet_maps_are_asked_for() {
    let questions = Questions::of(&read(DEVICES), &Config::default());
    let paths: Vec<_> = questions.paths.into_iter().collect();
    let [data, root] = ["pv-data", "pv-root"].map(|name| format!("{MAPPED}/{name}"));
    assert_eq!(paths, [data, root.clone()]);
    assert_eq!(questions.roots.into_iter().collect::<Vec<_>>(), [root]);
}

#[test]
fn a_device_has_its_own_size_and_not_that_of_its_volume() {
    let objects = read(DEVICES);
    let seen = |size: u64| {
        let paths = [("pv-root", 0), ("pv-data", 16)].map(|(name, minor)| {
            let fact = PathFact::Block {
                number: DeviceNumber { major: 8, minor },
                size: Some(ByteSize::from_bytes(size)),
            };
            (format!("{MAPPED}/{name}"), fact)
        });
        Facts {
            looked: true,
            paths: paths.into(),
            ..Facts::default()
        }
    };
    let sizes = |facts: &Facts| {
        let plan = planned(&objects, facts).unwrap();
        let sizes: Vec<_> = plan
            .disks
            .iter()
            .map(|disk| disk.size.to_string())
            .collect();
        (sizes[0].clone(), sizes[1].clone(), plan.domain.to_xml())
    };
    for (mebibytes, root) in [(5, "4 MiB"), (11, "10 MiB")] {
        let (of_root, of_data, xml) = sizes(&seen(mebibytes << 20));
        assert_eq!(
            (of_root.as_str(), of_data),
            (root, format!("{mebibytes} MiB"))
        );
        let slice = format!("offset=\"1048576\" size=\"{}\"", (mebibytes - 1) << 20);
        assert!(xml.contains(&slice), "{xml}");
    }
    // The kubelet may come to it later: that nothing is there yet says nothing.
    for looked in [true, false] {
        let nothing = Facts {
            looked,
            ..Facts::default()
        };
        let (of_root, of_data, xml) = sizes(&nothing);
        assert_eq!(
            (of_root.as_str(), of_data.as_str()),
            ("known on the node", "known on the node")
        );
        assert!(xml.contains("offset=\"1048576\" size=\"1\""), "{xml}");
    }
    let refused = planned(&objects, &seen(1 << 20)).unwrap_err();
    assert!(
        refused.contains("too small for the image and its header"),
        "{refused}"
    );
}

/// Its own token, one for somebody else, and one that it does not mount.
const TOKENS: &str = include_str!("vm_pods/token/pod.json");

#[test]
fn tokens_that_are_mounted_are_asked_for_and_stay_secret() {
    let mut text = TOKENS.to_owned();
    for name in ["settings", "kube-root-ca.crt"] {
        text += &format!(
            "\n---\n{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}}}, data: {{ca.crt: x}}}}"
        );
    }
    let objects = read(&text);
    let questions = Questions::of(&objects, &Config::default());
    let asked: Vec<_> = questions
        .tokens
        .iter()
        .map(|file| format!("{}/{}", file.directory(&Config::default()), file.path))
        .collect();
    let projected = "/var/lib/kubelet/pods/2d7d4c1f-0e7a-4d0e-9a39-7b7f5d0c9f10/volumes/kubernetes.io~projected";
    assert_eq!(
        asked,
        [
            format!("{projected}/kube-api-access-x7r2m/token"),
            format!("{projected}/vault/a/token"),
        ]
    );
    let user_data = |facts: &Facts, reveal| {
        let plan = planned(&objects, facts).unwrap();
        serde_json::to_string(&plan.view(reveal)).unwrap()
    };
    let later = user_data(&Facts::default(), Reveal::Show);
    assert_eq!(
        later
            .matches("content: <token issued when the pod starts>")
            .count(),
        2,
        "{later}"
    );
    let tokens = questions.tokens.into_iter();
    let facts = Facts {
        tokens: tokens
            .map(|file| (file, Secret::new("eyJhbGciOi")))
            .collect(),
        ..Facts::default()
    };
    // In base64.
    let token = "ZXlKaGJHY2lPaQ==";
    assert_eq!(user_data(&facts, Reveal::Show).matches(token).count(), 2);
    let shown = user_data(&facts, Reveal::Redact);
    assert!(
        !shown.contains(token) && !shown.contains("eyJhbGciOi"),
        "{shown}"
    );
    assert!(!format!("{facts:?}").contains("eyJhbGciOi"));
}
