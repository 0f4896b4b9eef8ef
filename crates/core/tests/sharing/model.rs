//! VMs and pods over few storages, each spelled in several ways, so that they
//! often meet.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::spellings::{FAMILIES, SERVERS};

/// A storage, told from others by what it is rather than by what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// One thing, whoever leads there.
    One(&'static str),
    /// Something of a cluster, of which some servers are named; or of a disk, some
    /// of whose partitions are meant.
    Of(&'static str, &'static [&'static str]),
    /// Something of a node, which is one of these.
    On(&'static str, &'static [&'static str]),
}

impl Identity {
    /// Clusters that share a server are one.
    pub(crate) fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::One(one), Self::One(two)) => one == two,
            (Self::Of(one, hosts), Self::Of(two, others))
            | (Self::On(one, hosts), Self::On(two, others)) => {
                one == two && hosts.iter().any(|host| others.contains(host))
            }
            _ => false,
        }
    }

    /// Whether no node has both.
    pub(crate) fn is_far_from(self, other: Self) -> bool {
        match (self, other) {
            (Self::On(_, hosts), Self::On(_, others)) => {
                !hosts.iter().any(|host| others.contains(host))
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

/// A storage, and one way to write it down.
pub(crate) type Spelling = (Identity, Way);

use Way::{Claim, Direct, Flex};

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
        documents.push(SERVERS.to_owned());
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

/// How names of claims begin that are for one pod.
const ONCE: &str = "once-";

/// And of those whose filesystem the kubelet mounts.
const MOUNTED: &str = "mounted-";

impl Disk {
    /// Whether several would write files of a filesystem that each node mounts by itself.
    pub(crate) fn shares_filesystem(&self) -> bool {
        let is_mounted = matches!(self.way, Claim(name, _) if name.starts_with(MOUNTED));
        is_mounted && self.access == Access::WriteShared
    }

    /// Whether its claim is for one pod.
    pub(crate) fn is_for_one_pod(&self) -> bool {
        matches!(self.way, Claim(name, _) if name.starts_with(ONCE))
    }

    fn item(&self) -> String {
        let source = match self.way {
            Direct(source) | Flex(source) => source.to_owned(),
            Claim(name, _) => format!("pvc: {{claimname: {name}}}"),
        };
        let comma = if self.fields.is_empty() { "" } else { ", " };
        // What QEMU cannot name, the kubelet has to open.
        let driver = match self.way {
            Claim(name, _) if name.starts_with("odd-") || name.starts_with(MOUNTED) => {
                ", driver: {name: kubelet}"
            }
            _ => "",
        };
        format!(
            "      - {{source: {{{source}}}{driver}{comma}{}}}\n",
            self.fields
        )
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
    let modes = match name.starts_with(ONCE) {
        true => "ReadWriteOncePod",
        false => "ReadWriteMany",
    };
    let spec = format!("accessModes: [{modes}], storageClassName: ''");
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
