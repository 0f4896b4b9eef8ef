//! The options of Disklet's FlexVolume driver.
//!
//! A FlexVolume's options reach us as a map of strings, from a manifest or
//! from the kubelet. [`Options::parse`] turns the map into a type, or names
//! everything that is wrong with it at once.
//!
//! Nothing here reads a file or asks the system: whether a device may be used
//! is for the caller to decide.

mod capacity;
mod ceph;
mod decimal;
mod given;
mod keys;
mod nearest;
mod options;
mod partition;
mod problem;
mod unit;
mod unprintable;

pub use capacity::{Capacity, CapacityError};
pub use ceph::{
    Ceph, CephUser, Key, KeyError, Monitor, MonitorError, NameError, RbdName, UserError,
};
pub use decimal::Decimal;
pub use options::{Kind, Options, Qcow2, Raw};
pub use partition::{Partition, PartitionError};
pub use problem::{OptionError, Problem, ValueError};
pub use unprintable::is_unprintable;

/// The driver names that are ours: the one under which Virtlet installs its
/// driver, and the one that its Ceph documentation uses.
pub const DRIVERS: [&str; 2] = [
    "virtlet/flexvolume_driver",
    "kubernetes.io/flexvolume_driver",
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
    }
}
