//! Which storage a disk uses, so that two users of one are noticed.

use std::fmt;

use crate::facts::DeviceNumber;

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
    /// An image in a Ceph pool.
    Rbd {
        /// The hosts of the cluster's monitors.
        monitors: Vec<String>,
        /// The pool.
        pool: String,
        /// The image.
        image: String,
    },
    /// Any other, in words that are equal for equal storage.
    Named(String),
}

impl Storage {
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

    /// Whether both are the same storage, as far as that can be known. Ceph
    /// clusters are told apart by their monitors: sets that share none are two
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
                Self::Rbd {
                    monitors,
                    pool,
                    image,
                },
                Self::Rbd {
                    monitors: other_monitors,
                    pool: other_pool,
                    image: other_image,
                },
            ) => {
                (pool, image) == (other_pool, other_image) && !share_none(monitors, other_monitors)
            }
            (Self::Named(name), Self::Named(other)) => name == other,
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
            Self::Rbd { pool, image, .. } => vec![format!("rbd {pool}/{image}")],
            Self::Named(name) => vec![format!("named {name}")],
        }
    }
}

fn share_none(ours: &[String], theirs: &[String]) -> bool {
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
            Self::Rbd { pool, image, .. } => write!(f, "rbd image {pool}/{image}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rbd(monitors: &[&str]) -> Storage {
        Storage::Rbd {
            monitors: monitors.iter().map(|&name| name.to_owned()).collect(),
            pool: "rbd".to_owned(),
            image: "root".to_owned(),
        }
    }

    fn on(path: &str, number: Option<(u32, u32)>, nodes: Option<&[&str]>) -> Storage {
        let number = number.map(|(major, minor)| DeviceNumber { major, minor });
        let nodes = nodes.map(|nodes| nodes.iter().map(|&name| name.to_owned()).collect());
        Storage::of_node(path, number, nodes)
    }

    #[test]
    fn clusters_that_share_no_monitor_are_two() {
        assert!(rbd(&["a:6789", "b:6789"]).is(&rbd(&["b:6789", "c:6789"])));
        assert!(!rbd(&["a:6789"]).is(&rbd(&["b:6789"])));
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
