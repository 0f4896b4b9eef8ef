//! Which storage a disk uses, so that two users of one are noticed.

use std::collections::HashSet;
use std::fmt;

use crate::diag::shown;
use crate::facts::DeviceNumber;
use crate::source::{Endpoint, Iqn, Lun, Nbd, NbdServer, Network};

/// Storage that others can use as well. (What is made for a VM is its own.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// A device or file of a node.
    OfNode {
        /// Its path.
        path: String,
        /// Which device it is, if somebody has looked.
        number: Option<DeviceNumber>,
        /// The nodes that it can be on; absent if nothing says so.
        nodes: Option<Vec<String>>,
    },
    /// Something that several servers have together, of which users name some.
    Clustered {
        /// What it is, such as an rbd image.
        what: &'static str,
        /// The servers' hosts.
        hosts: Vec<String>,
        /// Its name there.
        name: String,
    },
    /// Any other, in words that are equal for equal storage.
    Named(String),
}

impl Storage {
    const GLUSTER: &str = "gluster file";

    /// Something of a node.
    #[must_use]
    pub fn of_node(path: &str, number: Option<DeviceNumber>, nodes: Option<Vec<String>>) -> Self {
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
        let path: String = parts.flat_map(|part| ["/", part]).collect();
        Self::OfNode {
            path,
            number,
            nodes,
        }
    }

    /// An image in a Ceph pool. A monitor listens on several ports, of which
    /// one or the other is written.
    #[must_use]
    pub fn rbd<'m>(hosts: impl Iterator<Item = &'m str>, pool: &str, image: &str) -> Self {
        Self::clustered("rbd image", hosts, &format!("{pool}/{image}"))
    }

    /// A file on a Gluster volume.
    #[must_use]
    pub fn gluster<'m>(hosts: impl Iterator<Item = &'m str>, volume: &str, path: &str) -> Self {
        Self::clustered(Self::GLUSTER, hosts, &format!("{volume}/{path}"))
    }

    /// A directory of a Ceph filesystem.
    #[must_use]
    pub fn cephfs<'m>(hosts: impl Iterator<Item = &'m str>, path: &str) -> Self {
        Self::clustered("cephfs directory", hosts, path)
    }

    fn clustered<'m>(what: &'static str, hosts: impl Iterator<Item = &'m str>, name: &str) -> Self {
        // Some come from volumes that only the kubelet opens, unchecked.
        let name = shown(name);
        let hosts = hosts.map(|host| shown(host).to_ascii_lowercase());
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
                Self::Named(Network::Nbd(plain).to_string())
            }
            Network::Http(_) => Self::Named(network.to_string()),
        }
    }

    /// What it is called, wherever it is.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Clustered { what, name, .. } => format!("{what} {name}"),
            Self::OfNode { .. } | Self::Named(_) => self.to_string(),
        }
    }

    /// Servers that have it, where its name alone does not say which it is.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        match self {
            Self::Clustered { hosts, .. } => hosts,
            Self::OfNode { .. } | Self::Named(_) => &[],
        }
    }

    /// Whether both are the same storage, as far as that can be known.
    /// Clusters are told apart by their servers: sets that share none are two
    /// clusters. A path is the same on one node only; VMs that are not bound to
    /// different nodes are planned for one.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::OfNode {
                    path,
                    number,
                    nodes,
                },
                Self::OfNode {
                    path: other_path,
                    number: other_number,
                    nodes: other_nodes,
                },
            ) => {
                let apart = nodes
                    .as_ref()
                    .zip(other_nodes.as_ref())
                    .is_some_and(|(ours, theirs)| share_none(ours, theirs));
                let same = match (number, other_number) {
                    (Some(number), Some(other)) => number == other,
                    _ => path == other_path,
                };
                same && !apart
            }
            (
                Self::Clustered { what, hosts, name },
                Self::Clustered {
                    what: other_what,
                    hosts: other_hosts,
                    name: other_name,
                },
            ) => (what, name) == (other_what, other_name) && !share_none(hosts, other_hosts),
            (Self::Named(name), Self::Named(other)) => name == other,
            _ => false,
        }
    }

    /// Whether both may be the same storage although nothing shows it: equal
    /// names in clusters that share no server that is written.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Clustered { what, name, .. },
                Self::Clustered {
                    what: other_what,
                    name: other_name,
                    ..
                },
            ) => (what, name) == (other_what, other_name) && !self.is(other),
            _ => false,
        }
    }

    /// Words of which two equal storages have at least one in common: they
    /// need to be compared with few others only.
    pub(crate) fn keys(&self) -> Vec<String> {
        match self {
            Self::OfNode { path, number, .. } => {
                let number = number.map(|number| format!("device {number}"));
                [Some(format!("path {path}")), number]
                    .into_iter()
                    .flatten()
                    .collect()
            }
            // By each of its servers: of clusters that share none, many may have
            // equal names.
            Self::Clustered { what, name, hosts } => {
                let hosts = hosts.iter();
                hosts
                    .map(|host| format!("{what} {name} at {host}"))
                    .collect()
            }
            Self::Named(name) => vec![format!("named {name}")],
        }
    }
}

fn share_none(ours: &[String], theirs: &[String]) -> bool {
    let theirs: HashSet<&String> = theirs.iter().collect();
    !ours.iter().any(|one| theirs.contains(one))
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfNode {
                number: Some(number),
                ..
            } => write!(f, "block device {number}"),
            Self::OfNode { path, .. } => f.write_str(path),
            // Until the cluster itself is asked who it is, its servers stand for it.
            Self::Clustered { what, hosts, name } => {
                let servers = match *what {
                    Self::GLUSTER => "servers",
                    _ => "monitors",
                };
                let hosts = hosts.join(", ");
                write!(f, "{what} {name} of the cluster with {servers} {hosts}")
            }
            Self::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rbd(monitors: &[&str]) -> Storage {
        Storage::rbd(monitors.iter().copied(), "rbd", "root")
    }

    fn on(path: &str, number: Option<(u32, u32)>, nodes: Option<&[&str]>) -> Storage {
        let number = number.map(|(major, minor)| DeviceNumber { major, minor });
        let nodes = nodes.map(|nodes| nodes.iter().map(|&name| name.to_owned()).collect());
        Storage::of_node(path, number, nodes)
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
        ];
        for (one, other) in pairs {
            assert!(one.is(&other));
            let keys = other.keys();
            assert!(one.keys().iter().any(|key| keys.contains(key)), "{one}");
        }
    }
}
