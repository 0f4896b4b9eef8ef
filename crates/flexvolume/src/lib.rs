//! The options of Disklet's FlexVolume driver.
//!
//! A FlexVolume's options reach us as a map of strings, from a manifest or
//! from the kubelet. [`Options::parse`] turns the map into a type, or names
//! everything that is wrong with it at once. [`Volume`] is what the kubelet tells
//! the driver of a pod's volume, and what the driver leaves at the volume.
//!
//! Nothing here reads a file or asks the system: whether a device may be used
//! is for the caller to decide.

mod base64;
mod capacity;
mod ceph;
mod contradiction;
mod decimal;
mod given;
mod json;
mod keys;
mod nearest;
mod options;
mod partition;
mod problem;
mod unit;
mod unprintable;
mod volume;

pub use capacity::{Capacity, CapacityError};
pub use ceph::{
    Ceph, CephUser, Key, KeyError, Monitor, MonitorError, NameError, RbdName, UserError,
};
pub use contradiction::Contradiction;
pub use decimal::Decimal;
pub use json::{JsonError, quote as json_text};
pub use options::{Kind, Options, Qcow2, Raw};
pub use partition::{Partition, PartitionError};
pub use problem::{OptionError, Problem, ValueError};
pub use unprintable::is_unprintable;
pub use volume::{Pod, SecretError, Volume, VolumeError};

/// The driver names that are ours: the one under which Virtlet installs its
/// driver, and the one that its Ceph documentation uses.
pub const DRIVERS: [&str; 2] = [
    "virtlet/flexvolume_driver",
    "kubernetes.io/flexvolume_driver",
];

/// The same as the kubelet has them in paths.
pub const PLUGINS: [&str; 2] = [
    "virtlet~flexvolume_driver",
    "kubernetes.io~flexvolume_driver",
];

/// Whether a FlexVolume of this driver is ours.
#[must_use]
pub fn is_ours(driver: &str) -> bool {
    DRIVERS.contains(&driver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_documented_driver_names_are_ours() {
        assert!(is_ours("virtlet/flexvolume_driver"));
        assert!(is_ours("kubernetes.io/flexvolume_driver"));
        assert!(!is_ours("virtlet/flexvolume_driver2"));
        assert!(!is_ours("Virtlet/flexvolume_driver"));
        assert!(!is_ours(""));
        assert_eq!(DRIVERS.map(|driver| driver.replace('/', "~")), PLUGINS);
    }
}
