//! Devices and files of the machine have one running VM at a time.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use disklet::manifests::device_number;
use disklet_core::plan::{Access, Plan};
use rustix::fs::OFlags;

use crate::executor::Host;
use crate::failure::{Failure, Result};
use crate::record::{Made, Record};
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
                let mut shared = made.iter().filter_map(|ours| {
                    let same_file = || self.shares_file(ours, theirs);
                    ours.shares_with(theirs).or_else(same_file)
                });
                shared.next()
            });
            let Some(what) = shared else { continue };
            let holder = holder(&other, plan);
            // Another daemon's VMs cannot be asked whether they run.
            if other.libvirt != self.libvirt.address()? {
                return Err(Failure::new(format!(
                    "{what} may be in use by {holder}, whose daemon is {}",
                    other.libvirt
                ))
                .help("two VMs that write to one disk destroy it: remove that VM first, with disklet down --connect"));
            }
            // In this order: whoever has let go has started it before.
            let is_held = self.records.is_held(other.uuid);
            if is_held || self.libvirt.is_running(other.uuid)? == Some(true) {
                return Err(Failure::new(format!("{what} is in use by {holder}"))
                    .help("two VMs that write to one disk destroy it: stop the other VM first"));
            }
        }
        Ok(())
    }

    /// The numbers of devices of which only a path was known. In a cluster each
    /// pod has a path of its own to a volume.
    pub(crate) fn number_devices(&self, made: &mut [Made]) {
        let host = Host(&self.config.host_root);
        for made in made {
            let Made::Device { number, .. } = made else {
                continue;
            };
            if !number.starts_with('/') {
                continue;
            }
            let seen = host.open(Path::new(number), OFlags::PATH);
            let seen = seen.ok().and_then(|seen| seen.metadata().ok());
            if let Some(seen) = seen.filter(|it| it.file_type().is_block_device()) {
                *number = device_number(seen.rdev()).to_string();
            }
        }
    }

    /// The same for files: whatever the paths, what the other VM is shown, or
    /// will be, is what this one would be.
    fn shares_file(&self, ours: &Made, theirs: &Made) -> Option<String> {
        let (
            Made::Mount { from, .. },
            Made::Mount {
                path: shown,
                from: origin,
                ..
            },
        ) = (ours, theirs)
        else {
            return None;
        };
        if ours.agrees_with(theirs) {
            return None;
        }
        let of_host = |path: &Path| {
            let host = Host(&self.config.host_root);
            let seen = host.open(path, OFlags::PATH | OFlags::NOFOLLOW).ok()?;
            seen.metadata().ok()
        };
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let ours = identity(of_host(from)?);
        let shown = fs::symlink_metadata(shown).ok();
        let mut theirs = shown.into_iter().chain(of_host(origin)).map(identity);
        theirs
            .any(|theirs| theirs == ours)
            .then(|| from.display().to_string())
    }
}

/// Who has it. Tenants of a cluster do not learn of each other.
fn holder(other: &Record, plan: &Plan) -> String {
    let is_foreign = other.namespace != plan.namespace.as_str();
    match plan.launcher.is_some() && is_foreign {
        true => "a VM of another namespace".to_owned(),
        false => format!("VM {}", other.full_name()),
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

    fn agrees_with(&self, other: &Self) -> bool {
        let alone = Access::WriteExclusive.name();
        self.access() == other.access() && self.access().is_some_and(|it| it != alone)
    }

    /// What both lead to, in words, unless they agree to share it.
    fn shares_with(&self, other: &Self) -> Option<String> {
        if self.agrees_with(other) {
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
