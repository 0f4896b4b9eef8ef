//! A volume on a Ceph cluster.

mod key;
mod monitor;
mod name;
mod user;

pub use key::{Key, KeyError};
pub use monitor::{Monitor, MonitorError};
pub use name::{NameError, RbdName};
pub use user::{CephUser, UserError};

use crate::partition::Partition;

/// A RADOS block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceph {
    /// What of it the guest mounts.
    pub part: Partition,
    /// Where the cluster is; at least one.
    pub monitors: Vec<Monitor>,
    /// The pool that the image is in.
    pub pool: RbdName,
    /// The image.
    pub volume: RbdName,
    /// On whose behalf it is opened.
    pub user: CephUser,
    /// The user's key; without one the cluster is used without cephx.
    pub secret: Option<Key>,
}
