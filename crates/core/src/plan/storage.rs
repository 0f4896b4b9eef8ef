//! Which storage a disk uses, so that two users of one are noticed.

use std::collections::HashSet;
use std::fmt;

use crate::diag::shown;
use crate::facts::NodeThing;
use crate::source::{Endpoint, Iqn, Lun, Nbd, NbdServer, Network};

/// Storage that others can use as well. (What is made for a VM is its own.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// A device or file of a node.
    OfNode {
        /// Its path.
        path: String,
        /// What it is known by, if somebody has looked.
        thing: Option<NodeThing>,
        /// The nodes that it can be on.
        nodes: Nodes,
    },
    /// Something that several servers have together, of which users name some.
    Clustered {
        /// What it is.
        what: Clustered,
        /// The servers' hosts.
        hosts: Vec<String>,
        /// Its name there.
        name: String,
    },
    /// A disk that a driver knows by its own name, or one partition of it.
    PartOf {
        /// The disk, in words that are equal for equal disks.
        disk: String,
        /// The partition; absent for the whole disk.
        part: Option<String>,
    },
    /// Any other, in words that are equal for equal storage.
    Named(String),
    /// The same, of something that each node has for itself.
    NamedOnNode(String),
    /// Storage that a driver knows by its own name, and that the node shows as a
    /// device.
    Shown {
        /// What its driver knows it by.
        known: Box<Storage>,
        /// The device.
        thing: NodeThing,
    },
}

/// The nodes that something can be on, as far as anything says so. A node's name
/// and its label for the host name need not be alike, so one says nothing of the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    /// The name of the only one.
    pub name: Option<String>,
    /// Their host names.
    pub hosts: Option<Vec<String>>,
}

impl Nodes {
    /// Whether it is certain that no node is among both.
    fn are_others_than(&self, other: &Self) -> bool {
        let names = self.name.as_ref().zip(other.name.as_ref());
        let hosts = self.hosts.as_ref().zip(other.hosts.as_ref());
        names.is_some_and(|(ours, theirs)| ours != theirs)
            || hosts.is_some_and(|(ours, theirs)| share_none(ours, theirs))
    }
}

/// What several servers have together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clustered {
    /// An image in a Ceph pool.
    Rbd,
    /// A file on a Gluster volume.
    Gluster,
    /// A directory of a Ceph filesystem.
    Cephfs,
    /// A unit behind ports of a Fibre Channel network.
    FibreChannel,
}

impl Clustered {
    const ALL: [Self; 4] = [Self::Rbd, Self::Gluster, Self::Cephfs, Self::FibreChannel];

    fn name(self) -> &'static str {
        match self {
            Self::Rbd => "rbd image",
            Self::Gluster => "gluster file",
            Self::Cephfs => "cephfs directory",
            Self::FibreChannel => "fibre channel unit",
        }
    }

    /// What stands for the cluster until it is itself asked who it is.
    fn known_by(self) -> &'static str {
        match self {
            Self::Rbd | Self::Cephfs => "of the cluster with monitors",
            Self::Gluster => "of the cluster with servers",
            Self::FibreChannel => "of the storage with",
        }
    }

    /// Whether equal names without a common server may be one thing: units are
    /// numbered everywhere from 0 on.
    fn has_telling_names(self) -> bool {
        self != Self::FibreChannel
    }
}

/// One spelling for all of a path. No link is looked at: who writes `..`
/// behind one gets what is most cautious, the same as without.
pub(crate) fn plain_path(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    match parts.is_empty() {
        true => "/".to_owned(),
        false => parts.into_iter().flat_map(|part| ["/", part]).collect(),
    }
}

impl Storage {
    /// Something of a node.
    #[must_use]
    pub fn of_node(path: &str, thing: Option<NodeThing>, nodes: Nodes) -> Self {
        Self::OfNode {
            path: plain_path(path),
            thing,
            nodes,
        }
    }

    /// An image in a Ceph pool. A monitor listens on several ports, of which
    /// one or the other is written.
    #[must_use]
    pub fn rbd<'m>(hosts: impl Iterator<Item = &'m str>, pool: &str, image: &str) -> Self {
        Self::clustered(Clustered::Rbd, hosts, &format!("{pool}/{image}"))
    }

    /// A file on a Gluster volume.
    #[must_use]
    pub fn gluster<'m>(hosts: impl Iterator<Item = &'m str>, volume: &str, path: &str) -> Self {
        let path = plain_path(&format!("{volume}/{path}"));
        Self::clustered(Clustered::Gluster, hosts, path.trim_start_matches('/'))
    }

    /// A directory of a Ceph filesystem.
    #[must_use]
    pub fn cephfs<'m>(hosts: impl Iterator<Item = &'m str>, path: &str) -> Self {
        Self::clustered(Clustered::Cephfs, hosts, path)
    }

    /// A unit of a Fibre Channel network, by some of the ports that lead to it,
    /// or by its own identifiers, which have no number beside them.
    #[must_use]
    pub fn fibre_channel<'m>(names: impl Iterator<Item = &'m str>, lun: Option<&str>) -> Self {
        let plain = |name: &str| {
            let name = name.to_ascii_lowercase().replace([':', '-'], "");
            name.strip_prefix("0x").unwrap_or(&name).to_owned()
        };
        let names: Vec<_> = names.map(plain).collect();
        let names = names.iter().map(String::as_str);
        let lun = lun.unwrap_or("by identifier");
        Self::clustered(Clustered::FibreChannel, names, lun)
    }

    /// The same as the node shows it.
    #[must_use]
    pub fn shown_as(self, thing: Option<NodeThing>) -> Self {
        match thing {
            Some(thing) => Self::Shown {
                known: Box::new(self),
                thing,
            },
            None => self,
        }
    }

    /// What it is known by, wherever it is shown.
    #[must_use]
    pub fn known(&self) -> &Self {
        match self {
            Self::Shown { known, .. } => known,
            other => other,
        }
    }

    /// What the node shows of it, if somebody has looked.
    fn thing(&self) -> Option<NodeThing> {
        match self {
            Self::OfNode { thing, .. } => *thing,
            Self::Shown { thing, .. } => Some(*thing),
            Self::Clustered { .. }
            | Self::PartOf { .. }
            | Self::Named(_)
            | Self::NamedOnNode(_) => None,
        }
    }

    fn clustered<'m>(what: Clustered, hosts: impl Iterator<Item = &'m str>, name: &str) -> Self {
        // Some come from volumes that only the kubelet opens, unchecked.
        let name = shown(name);
        let hosts = hosts.map(|host| {
            let host = shown(host).to_ascii_lowercase();
            host.trim_end_matches('.').to_owned()
        });
        let mut hosts: Vec<_> = hosts.collect();
        hosts.sort();
        hosts.dedup();
        Self::Clustered { what, hosts, name }
    }

    /// A unit of an iSCSI target, whatever the portal: a target may have
    /// several.
    #[must_use]
    pub fn iscsi(target: &Iqn, lun: Lun) -> Self {
        Self::Named(format!("iscsi unit {}/{lun}", target.canonical()))
    }

    /// What is at a server.
    #[must_use]
    pub fn of_network(network: &Network) -> Self {
        let hosts = || network.endpoints().iter().map(Endpoint::host);
        match network {
            Network::Iscsi(unit) => Self::iscsi(&unit.target, unit.lun),
            Network::Rbd(rbd) => Self::rbd(hosts(), rbd.pool.as_str(), rbd.image.as_str()),
            Network::Gluster(file) => {
                Self::gluster(hosts(), file.volume.as_str(), file.path.as_str())
            }
            // Encrypted or not, it is the same export. Case counts in its name,
            // and not in the server's.
            Network::Nbd(nbd) => {
                let plain = Nbd {
                    tls: false,
                    server: match &nbd.server {
                        NbdServer::Tcp(endpoint) => NbdServer::Tcp(endpoint.in_lower_case()),
                        NbdServer::Unix(path) => NbdServer::Unix(path.clone()),
                    },
                    export: nbd.export.clone(),
                };
                let name = Network::Nbd(plain).to_string();
                match nbd.server {
                    NbdServer::Tcp(_) => Self::Named(name),
                    // A path is another socket on every node.
                    NbdServer::Unix(_) => Self::NamedOnNode(name),
                }
            }
            Network::Http(_) => Self::Named(network.to_string()),
        }
    }

    /// Whether this is how plans show the storage of a name, at these servers if the name
    /// does not say which it is.
    #[must_use]
    pub fn is_shown_as(shown: &str, name: &str, hosts: &[String]) -> bool {
        let Some(rest) = shown.strip_prefix(name) else {
            return false;
        };
        match hosts {
            [] => rest.is_empty(),
            [part] if rest == in_partition(part) => true,
            _ => Clustered::ALL.into_iter().any(|what| {
                name.starts_with(what.name())
                    && rest == format!(" {} {}", what.known_by(), hosts.join(", "))
            }),
        }
    }

    /// What it is called, wherever it is. All partitions of a disk have its name: who
    /// has the disk has them.
    #[must_use]
    pub fn name(&self) -> String {
        match self.known() {
            Self::PartOf { disk, .. } => disk.clone(),
            Self::Clustered { what, name, .. } => format!("{} {name}", what.name()),
            other => other.to_string(),
        }
    }

    /// Whether nodes reach the same storage by that name: then they have to agree
    /// who uses it.
    #[must_use]
    pub fn is_reached_by_all_nodes(&self) -> bool {
        match self.known() {
            Self::Clustered { .. } | Self::PartOf { .. } | Self::Named(_) => true,
            Self::OfNode { .. } | Self::NamedOnNode(_) | Self::Shown { .. } => false,
        }
    }

    /// Servers that have it, where its name alone does not say which it is; or the
    /// partition, if it is one. Two of a name that have none of these in common are two
    /// storages, and one that says none is all of them.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        match self.known() {
            Self::PartOf { part, .. } => part.as_slice(),
            Self::Clustered { hosts, .. } => hosts,
            _ => &[],
        }
    }

    /// Whether both are the same storage, as far as that can be known.
    /// Clusters are told apart by their servers: sets that share none are two
    /// clusters. A path is the same on one node only; what is not certain to be on
    /// different nodes is taken to be on one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        if self.is_apart_from(other) {
            return false;
        }
        let seen = self.thing().zip(other.thing());
        if seen.is_some_and(|(thing, other)| thing == other) {
            return true;
        }
        match (self.known(), other.known()) {
            (
                Self::OfNode { path, .. },
                Self::OfNode {
                    path: other_path, ..
                },
            ) => seen.is_none() && path == other_path,
            (
                Self::Clustered { what, hosts, name },
                Self::Clustered {
                    what: other_what,
                    hosts: other_hosts,
                    name: other_name,
                },
            ) => (what, name) == (other_what, other_name) && !share_none(hosts, other_hosts),
            (
                Self::PartOf { disk, part },
                Self::PartOf {
                    disk: other_disk,
                    part: other_part,
                },
            ) => {
                // A disk has all of its partitions in it.
                let parts = part.as_ref().zip(other_part.as_ref());
                disk == other_disk && parts.is_none_or(|(part, other)| part == other)
            }
            (Self::Named(name), Self::Named(other))
            | (Self::NamedOnNode(name), Self::NamedOnNode(other)) => name == other,
            _ => false,
        }
    }

    /// Whether both are of nodes, and certainly no node has both.
    fn is_apart_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::OfNode { nodes, .. }, Self::OfNode { nodes: others, .. }) => {
                nodes.are_others_than(others)
            }
            _ => false,
        }
    }

    /// Whether both may be the same storage although nothing shows it: equal
    /// names in clusters that share no server that is written.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        match (self.known(), other.known()) {
            (
                Self::Clustered { what, name, .. },
                Self::Clustered {
                    what: other_what,
                    name: other_name,
                    ..
                },
            ) => {
                let alike = (what, name) == (other_what, other_name);
                alike && what.has_telling_names() && !self.is(other)
            }
            _ => false,
        }
    }

    /// Words of which two equal storages have at least one in common: they
    /// need to be compared with few others only.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut keys = match self.known() {
            Self::OfNode { path, .. } => vec![format!("path {path}")],
            // By each of its servers: of clusters that share none, many may have
            // equal names.
            Self::Clustered { what, name, hosts } => {
                let hosts = hosts.iter();
                hosts
                    .map(|host| format!("{} {name} at {host}", what.name()))
                    .collect()
            }
            Self::PartOf { disk, .. } => vec![format!("disk {disk}")],
            other => vec![format!("named {other}")],
        };
        keys.extend(self.thing().map(|thing| thing.to_string()));
        keys
    }
}

/// How a partition is told from its disk.
fn in_partition(part: &str) -> String {
    format!(", partition {part}")
}

fn share_none(ours: &[String], theirs: &[String]) -> bool {
    let theirs: HashSet<&String> = theirs.iter().collect();
    !ours.iter().any(|one| theirs.contains(one))
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfNode {
                thing: Some(device @ NodeThing::Device(_)),
                ..
            } => write!(f, "{device}"),
            Self::OfNode { path, .. } => f.write_str(path),
            Self::Clustered { what, hosts, name } => {
                let (what, by, hosts) = (what.name(), what.known_by(), hosts.join(", "));
                write!(f, "{what} {name} {by} {hosts}")
            }
            Self::PartOf {
                disk,
                part: Some(part),
            } => write!(f, "{disk}{}", in_partition(part)),
            Self::PartOf { disk, part: None } => f.write_str(disk),
            Self::Named(name) | Self::NamedOnNode(name) => f.write_str(name),
            Self::Shown { known, .. } => write!(f, "{known}"),
        }
    }
}

#[cfg(test)]
mod tests;
