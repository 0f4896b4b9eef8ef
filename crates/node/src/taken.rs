//! Devices and files of the machine have one running VM at a time.

use std::fs;
use std::path::Path;

use disklet_core::plan::{Access, Plan};

use crate::failure::{Failure, Result};
use crate::record::Made;
use crate::verbs::Node;

impl Node<'_> {
    /// A device or a file belongs to one running VM at a time, unless all who
    /// have it agree. A disk and its
    /// partitions are one as well: whoever writes to it writes to them.
    pub(crate) fn refuse_taken(&self, plan: &Plan, made: &[Made]) -> Result<()> {
        refuse_overlapping(made)?;
        for other in self.records.list()? {
            if other.uuid == plan.uuid {
                continue;
            }
            let shared = other.made.iter().find_map(|theirs| {
                let mut shared = made.iter().filter_map(|ours| ours.shares_with(theirs));
                shared.next()
            });
            let Some(what) = shared else { continue };
            // Another daemon's VMs cannot be asked whether they run.
            if other.libvirt != self.libvirt.address()? {
                return Err(Failure::new(format!(
                    "{what} may be in use by VM {}, whose daemon is {}",
                    other.full_name(),
                    other.libvirt
                ))
                .help("two VMs that write to one disk destroy it: remove that VM first, with disklet down --connect"));
            }
            // In this order: whoever has let go has started it before.
            let is_held = self.records.is_held(other.uuid);
            if is_held || self.libvirt.is_running(other.uuid)? == Some(true) {
                return Err(
                    Failure::new(format!("{what} is in use by VM {}", other.full_name()))
                        .help("two VMs that write to one disk destroy it: stop the other VM first"),
                );
            }
        }
        Ok(())
    }
}

/// Nor does one VM have a disk twice. That two of its disks are one device was
/// refused before; that one is a partition of the other is seen here only.
fn refuse_overlapping(made: &[Made]) -> Result<()> {
    for (nth, one) in made.iter().enumerate() {
        let mut shared = made[..nth].iter().filter_map(|two| one.shares_with(two));
        if let Some(what) = shared.next() {
            return Err(Failure::new(format!("{what} is another disk of this VM"))
                .help("writes to one destroy the other: give the VM one of them"));
        }
    }
    Ok(())
}

impl Made {
    /// In which way it is used.
    fn access(&self) -> Option<&str> {
        match self {
            Self::Device { access, .. } | Self::Mount { access, .. } => access.as_deref(),
            Self::Lease { access, .. } => Some(access),
            _ => None,
        }
    }

    /// What both lead to, in words, unless they agree to share it.
    fn shares_with(&self, other: &Self) -> Option<String> {
        let alone = Access::WriteExclusive.name();
        let agree = self.access() == other.access() && self.access().is_some_and(|it| it != alone);
        if agree {
            return None;
        }
        match (self, other) {
            (Self::Mount { from: one, .. }, Self::Mount { from: two, .. }) => {
                (one == two).then(|| one.display().to_string())
            }
            (Self::Device { number: one, .. }, Self::Device { number: two, .. }) => {
                if one == two {
                    Some(format!("device {}", known_as(one)))
                } else if disk_of(one).as_deref() == Some(two) {
                    let (part, disk) = (known_as(one), known_as(two));
                    Some(format!("device {disk}, of which {part} is a partition,"))
                } else if disk_of(two).as_deref() == Some(one) {
                    let (disk, part) = (known_as(one), known_as(two));
                    Some(format!("partition {part} of device {disk}"))
                } else {
                    None
                }
            }
            (
                Self::Lease {
                    storage: one,
                    hosts: one_hosts,
                    ..
                },
                Self::Lease {
                    storage: two,
                    hosts: two_hosts,
                    ..
                },
            ) => {
                let apart = !one_hosts.is_empty()
                    && !two_hosts.is_empty()
                    && !one_hosts.iter().any(|host| two_hosts.contains(host));
                (one == two && !apart).then(|| one.clone())
            }
            _ => None,
        }
    }
}

/// The number of the disk that a device is a partition of.
fn disk_of(number: &str) -> Option<String> {
    let device = Path::new("/sys/dev/block").join(number);
    if !device.join("partition").exists() {
        return None;
    }
    let disk = fs::canonicalize(device).ok()?.parent()?.join("dev");
    Some(fs::read_to_string(disk).ok()?.trim().to_owned())
}

/// A device by its usual name, as far as the kernel tells it, and its number.
fn known_as(number: &str) -> String {
    let about = fs::read_to_string(format!("/sys/dev/block/{number}/uevent"));
    let about = about.unwrap_or_default();
    match about.lines().find_map(|line| line.strip_prefix("DEVNAME=")) {
        Some(name) => format!("/dev/{name} ({number})"),
        None => number.to_owned(),
    }
}
