//! VMs and pods over few storages, each spelled in several ways, so that they
//! often meet.

use std::collections::BTreeSet;

use proptest::prelude::*;

/// A storage, told from others by what it is rather than by what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// One thing, whoever leads there.
    One(&'static str),
    /// Something of a cluster, of which some servers are named.
    Of(&'static str, &'static [&'static str]),
}

impl Identity {
    /// Clusters that share a server are one.
    pub(crate) fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::One(one), Self::One(two)) => one == two,
            (Self::Of(one, hosts), Self::Of(two, others)) => {
                one == two && hosts.iter().any(|host| others.contains(host))
            }
            _ => false,
        }
    }
}

/// How somebody comes to a storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a source that stands in a VM.
    Direct(&'static str),
    /// By a flexvolume that stands in a pod.
    Flex(&'static str),
    /// By the claim of this name, whose volume says this.
    Claim(&'static str, &'static str),
}

type Spelling = (Identity, Way);

use Identity::{Of, One};
use Way::{Claim, Direct, Flex};

const UNITS: &[Spelling] = &[
    (
        One("unit 1"),
        Direct("iscsi: {host: {name: a}, portal: 'iqn.2024-01.com.example:x', lun: 1}"),
    ),
    (
        One("unit 1"),
        Direct(
            "iscsi: {host: {name: '::1', port: '3261'}, portal: 'IQN.2024-01.com.EXAMPLE:x/', lun: 1, initiator: 'iqn.2024-01.com.example:me'}",
        ),
    ),
    (
        One("unit 1"),
        Claim(
            "unit-block",
            "volumeMode: Block, iscsi: {targetPortal: 'b:3260', portals: ['c:3260'], iqn: 'iqn.2024-01.com.example:X', lun: 1}",
        ),
    ),
    (
        One("unit 1"),
        Claim(
            "unit-files",
            "volumeMode: Filesystem, iscsi: {targetPortal: c, iqn: 'iqn.2024-01.com.example:x', lun: 1}",
        ),
    ),
    (
        One("unit 2"),
        Direct("iscsi: {host: {name: a}, portal: 'iqn.2024-01.com.example:x', lun: 2}"),
    ),
    (
        One("unit 1 of another target"),
        Direct("iscsi: {host: {name: a}, portal: 'iqn.2024-01.com.example:y', lun: 1}"),
    ),
];

const IMAGES: &[Spelling] = &[
    (
        Of("x", &["a"]),
        Direct("rbd: {monitors: [{name: a}], pool: rbd, image: x}"),
    ),
    (
        Of("x", &["a", "b"]),
        Direct(
            "rbd: {monitors: [{name: B, port: 3300}, {name: A}], pool: rbd, image: x, user: me}",
        ),
    ),
    (
        Of("x", &["b", "c"]),
        Flex("{type: ceph, monitor: 'b:6790,c', pool: rbd, volume: x}"),
    ),
    (
        Of("x", &["c", "d"]),
        Claim(
            "image",
            "volumeMode: Block, rbd: {monitors: ['c:6789', d], image: x}",
        ),
    ),
    (
        Of("x", &["a", "d"]),
        Claim(
            "flex",
            "volumeMode: Filesystem, flexVolume: {driver: virtlet/flexvolume_driver, options: {type: ceph, monitor: 'd,a', pool: rbd, volume: x}}",
        ),
    ),
    (
        Of("z", &["a"]),
        Direct("rbd: {monitors: [{name: a}], pool: rbd, image: z}"),
    ),
    (
        Of("x of another pool", &["a"]),
        Direct("rbd: {monitors: [{name: a}], pool: other, image: x}"),
    ),
];

const EXPORTS: &[Spelling] = &[
    (One("x of a"), Direct("nbd: {host: {name: a}, export: x}")),
    (
        One("x of a"),
        Direct("nbd: {host: {name: A, port: '10809'}, export: x, tls: true}"),
    ),
    (One("X of a"), Direct("nbd: {host: {name: a}, export: X}")),
    (
        One("x of another port"),
        Direct("nbd: {host: {name: a, port: 1}, export: x}"),
    ),
    (
        One("x of v6"),
        Direct("nbd: {host: {name: 'fd00::1'}, export: x}"),
    ),
    (
        One("x of v6"),
        Direct("nbd: {host: {name: '[FD00:0:0::1]'}, export: x}"),
    ),
    (
        One("x of the socket"),
        Direct("nbd: {unix: /run/disklet/nbd/s, export: x}"),
    ),
    (
        One("the default export of the socket"),
        Direct("nbd: {unix: /run/disklet/nbd/s}"),
    ),
    (
        One("the default export of the socket"),
        Direct("nbd: {unix: /run/disklet/nbd/s, export: ''}"),
    ),
    (
        One("x of another socket"),
        Direct("nbd: {unix: /run/disklet/nbd/S, export: x}"),
    ),
];

const PATHS: &[Spelling] = &[
    (
        One("device x"),
        Claim("device", "volumeMode: Block, local: {path: /dev/vg/x}"),
    ),
    (
        One("device x"),
        Claim(
            "same-device",
            "volumeMode: Block, hostPath: {path: /dev//vg/./x/}",
        ),
    ),
    (
        One("device X"),
        Claim(
            "other-device",
            "volumeMode: Block, local: {path: /dev/vg/X}",
        ),
    ),
    (
        One("device x"),
        Claim(
            "mapped-device",
            "volumeMode: Block, local: {path: /dev/mapper/vg-x}",
        ),
    ),
    (
        One("image in x"),
        Claim("files", "volumeMode: Filesystem, local: {path: /srv/x}"),
    ),
    (
        One("image in x"),
        Claim(
            "same-files",
            "volumeMode: Filesystem, hostPath: {path: /srv/x/}",
        ),
    ),
    (
        Of("v/a", &["g", "h"]),
        Direct("gluster: {hosts: [{name: g}, {name: h}], volume: v, path: /a}"),
    ),
    (
        Of("v/a", &["h"]),
        Direct("gluster: {hosts: [{name: H, port: 1}], volume: v, path: a}"),
    ),
    (
        Of("v/a", &["i"]),
        Direct("gluster: {hosts: [{name: i}], volume: v, path: a}"),
    ),
];

/// What the node sees at these paths.
pub(crate) const NODE: &str = "
kind: NodeFacts
apiVersion: disklet.io/v1alpha1
paths:
  /dev/vg/x: {block: '253:3', size: 1Gi}
  /dev//vg/./x/: {block: '253:3', size: 1Gi}
  /dev/mapper/vg-x: {block: '253:3', size: 1Gi}
  /dev/vg/X: {block: '253:4', size: 1Gi}
  /srv/x/disk.img: {file: 1Gi}
";

/// What a driver, or a server of files, calls a volume.
const VOLUMES: &[Spelling] = &[
    (
        One("block volume 1 of the driver"),
        Claim(
            "csi-block",
            "volumeMode: Block, csi: {driver: csi.example.com, volumeHandle: h-1}",
        ),
    ),
    (
        One("block volume 1 of the driver"),
        Claim(
            "csi-same-block",
            "volumeMode: Block, csi: {driver: csi.example.com, volumeHandle: h-1, readOnly: false}",
        ),
    ),
    (
        One("volume 2 of the driver"),
        Claim(
            "csi-files",
            "volumeMode: Filesystem, csi: {driver: csi.example.com, volumeHandle: h-2}",
        ),
    ),
    (
        One("volume 2 of another driver"),
        Claim(
            "csi-other",
            "volumeMode: Filesystem, csi: {driver: other.example.com, volumeHandle: h-2}",
        ),
    ),
    (
        One("export x"),
        Claim(
            "nfs",
            "volumeMode: Filesystem, nfs: {server: a, path: /export/x}",
        ),
    ),
    (
        One("export x"),
        Claim(
            "nfs-same",
            "volumeMode: Filesystem, nfs: {server: A, path: /export//x/}",
        ),
    ),
    (
        One("export X"),
        Claim(
            "nfs-other",
            "volumeMode: Filesystem, nfs: {server: a, path: /export/X}",
        ),
    ),
];

const FAMILIES: [&[Spelling]; 5] = [UNITS, IMAGES, EXPORTS, PATHS, VOLUMES];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    WriteExclusive,
    WriteShared,
    ReadShared,
}

/// A disk: which storage, and what is said of its use.
#[derive(Debug, Clone)]
pub(crate) struct Disk {
    pub(crate) storage: Identity,
    pub(crate) way: Way,
    /// What it means.
    pub(crate) access: Access,
    /// What is written.
    fields: &'static str,
}

/// What can be written in a VM, and what it means.
const USES: &[(&str, Access)] = &[
    ("", Access::WriteExclusive),
    ("access-mode: write-exclusive", Access::WriteExclusive),
    ("copy: {mode: none}", Access::WriteExclusive),
    ("access-mode: write-shared", Access::WriteShared),
    (
        "access-mode: write-shared, copy: {mode: none}",
        Access::WriteShared,
    ),
    ("access-mode: read-shared", Access::ReadShared),
    ("access-mode: read-only", Access::ReadShared),
    ("copy: {mode: copy-on-write}", Access::ReadShared),
    ("copy: {mode: copy-on-read}", Access::ReadShared),
    (
        "access-mode: read-shared, copy: {mode: clone}",
        Access::ReadShared,
    ),
];

/// In a pod.
const POD_USES: &[(&str, Access)] = &[
    ("", Access::WriteExclusive),
    (", readOnly: true", Access::ReadShared),
];

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    is_pod: bool,
    pub(crate) disks: Vec<Disk>,
}

/// All machines of an input.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) machines: Vec<Machine>,
}

fn disk(is_pod: bool, spellings: &'static [Spelling]) -> impl Strategy<Value = Disk> {
    let suits = move |(_, way): &Spelling| match way {
        Direct(_) => !is_pod,
        Flex(_) => is_pod,
        Claim(..) => true,
    };
    let spellings: Vec<_> = spellings.iter().copied().filter(suits).collect();
    let uses = if is_pod { POD_USES } else { USES };
    (prop::sample::select(spellings), prop::sample::select(uses)).prop_map(
        |((storage, way), (fields, access))| Disk {
            storage,
            way,
            access,
            fields,
        },
    )
}

fn machine(spellings: &'static [Spelling]) -> impl Strategy<Value = Machine> {
    // Exports have no volumes in Kubernetes.
    let has_volumes = spellings.iter().any(|(_, way)| !matches!(way, Direct(_)));
    let is_pod = prop::bool::weighted(if has_volumes { 0.3 } else { 0.0 });
    is_pod.prop_flat_map(move |is_pod| {
        let disks = prop::collection::vec(disk(is_pod, spellings), 1..3);
        disks.prop_map(move |disks| Machine { is_pod, disks })
    })
}

/// Mostly two or three disks of one family, which meet half of the time.
pub(crate) fn world() -> impl Strategy<Value = World> {
    let families = prop::sample::select(&FAMILIES[..]);
    let machines = families.prop_flat_map(|family| prop::collection::vec(machine(family), 1..4));
    machines.prop_map(|machines| World { machines })
}

impl World {
    /// One document for each machine, and the objects that they name.
    pub(crate) fn document(&self) -> String {
        let machines = self.machines.iter().enumerate();
        let mut documents: Vec<_> = machines
            .map(|(index, machine)| machine.document(index))
            .collect();
        let mut named = BTreeSet::new();
        let disks = self.machines.iter().flat_map(|machine| &machine.disks);
        for disk in disks {
            if let Claim(name, volume) = disk.way
                && named.insert(name)
            {
                documents.extend(claim(name, volume));
            }
        }
        documents.join("---\n")
    }
}

impl Machine {
    fn document(&self, index: usize) -> String {
        if self.is_pod {
            let disks = self.disks.iter().enumerate();
            let volumes: Vec<_> = disks.map(|(number, disk)| disk.volume(number)).collect();
            return format!(
                "kind: Pod\nmetadata: {{name: vm-{index}}}\nspec:\n  runtimeClassName: disklet\n  \
                 containers: [{{name: vm, image: cirros}}]\n  volumes: [{}]\n",
                volumes.join(", ")
            );
        }
        let disks: String = self.disks.iter().map(Disk::item).collect();
        format!(
            "kind: VM\nmetadata: {{name: vm-{index}}}\nspec:\n  domain:\n    devices:\n      disks:\n{disks}"
        )
    }
}

impl Disk {
    fn item(&self) -> String {
        let source = match self.way {
            Direct(source) | Flex(source) => source.to_owned(),
            Claim(name, _) => format!("pvc: {{claimname: {name}}}"),
        };
        let comma = if self.fields.is_empty() { "" } else { ", " };
        format!("      - {{source: {{{source}}}{comma}{}}}\n", self.fields)
    }

    fn volume(&self, number: usize) -> String {
        let read_only = self.fields;
        let source = match self.way {
            Direct(options) | Flex(options) => format!(
                "flexVolume: {{driver: virtlet/flexvolume_driver, options: {options}{read_only}}}"
            ),
            Claim(name, _) => {
                format!("persistentVolumeClaim: {{claimName: {name}{read_only}}}")
            }
        };
        format!("{{name: v{number}, {source}}}")
    }
}

fn claim(name: &str, volume: &str) -> [String; 2] {
    let mode = volume.split(", ").next().unwrap();
    let spec = "accessModes: [ReadWriteMany], storageClassName: ''";
    [
        format!(
            "kind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\n\
             spec: {{{spec}, {mode}, volumeName: {name}, resources: {{requests: {{storage: 1Gi}}}}}}\n"
        ),
        format!(
            "kind: PersistentVolume\nmetadata: {{name: {name}}}\n\
             spec: {{{spec}, capacity: {{storage: 1Gi}}, {volume}}}\n"
        ),
    ]
}
