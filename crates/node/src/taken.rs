//! Devices and files of the machine have one running VM at a time.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use disklet::manifests::device_number;
use disklet_core::plan::{Access, Plan, Whose};
use rustix::fs::OFlags;
use serde_json::Value;

use crate::behind::{Ground, Loop, disk_of as whole_disk_of, file_behind};
use crate::executor::{Host, made_by};
use crate::failure::{Failure, Result};
use crate::record::{Made, Record, Unread};
use crate::verbs::Node;

impl Node<'_> {
    /// A device or a file belongs to one running VM at a time, unless all who
    /// have it agree. A disk and its
    /// partitions are one as well: whoever writes to it writes to them. So are
    /// a file and the loop devices that show it.
    pub(crate) fn refuse_taken(&self, plan: &Plan, made: &[Made]) -> Result<()> {
        refuse_overlapping(plan, made)?;
        self.refuse_layered(plan, made)?;
        let (records, unread) = self.records.list_with_unread()?;
        self.refuse_unknown(plan, made, unread)?;
        for other in &records {
            if other.uuid == plan.uuid {
                continue;
            }
            let held = other.made.iter().filter(|made| !other.has_released(made));
            let shared = { held }.find_map(|theirs| {
                let undecided = made
                    .iter()
                    .filter(|ours| !ours.is_decided_elsewhere(theirs));
                let mut shared = undecided.filter_map(|ours| {
                    let with = |what| (ours, theirs, what);
                    let same_file = || self.shares_file(ours, theirs);
                    // What they are shown, whatever has become of the path.
                    let same_ground = || self.shares_ground(ours, theirs, shown(theirs));
                    ours.shares_with(theirs)
                        .or_else(same_file)
                        .or_else(same_ground)
                        .map(with)
                });
                shared.next()
            });
            let Some((ours, theirs, what)) = shared else {
                continue;
            };
            let what = named(plan, ours, what);
            let holder = holder(other, plan);
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
            if let Some(disk) = self.disk_upon(other, theirs) {
                return Err(Failure::new(format!(
                    "{what} is below disk {disk} of {holder}, which is off: whoever writes there destroys that disk"
                ))
                .help("remove that VM first, with disklet down; or give this one a copy"));
            }
        }
        self.refuse_shown(plan, made, &records)
    }

    /// What runs and has a record that nobody can read may have anything.
    fn refuse_unknown(&self, plan: &Plan, made: &[Made], unread: Vec<Unread>) -> Result<()> {
        let mut shared = made
            .iter()
            .filter_map(|made| Some((made, made.shared_thing()?)));
        let Some((ours, wanted)) = shared.next() else {
            return Ok(());
        };
        let wanted = named(plan, ours, wanted);
        for (uuid, why) in unread {
            if let Some(uuid) = uuid
                && self.libvirt.is_running(uuid)? == Some(true)
            {
                let what = format!("{wanted} may be in use by VM {uuid}, whose record is lost");
                return Err(why.of(&what));
            }
        }
        Ok(())
    }

    /// The disk of a VM whose overlay stands on something, whether the VM runs or not: it
    /// has what its guest wrote, and is worth nothing over another master.
    pub(crate) fn disk_upon(&self, vm: &Record, below: &Made) -> Option<String> {
        let plan = self.kept_plan(vm.uuid)?;
        let is_overlay = |disk: &&Value| {
            let file = disk["copiedTo"]["file"].as_str();
            disk["copy"] != "clone" && file.is_some_and(may_exist)
        };
        let disks = plan["disks"].as_array()?.iter().filter(is_overlay);
        let mut upon = disks.filter(|disk| Self::things_of(disk, vm).contains(below));
        upon.next()?["name"].as_str().map(str::to_owned)
    }

    /// A file that the machine has as a loop device, and no VM of ours, is as a
    /// device that is mounted: whoever has attached it may write to it.
    fn refuse_shown(&self, plan: &Plan, made: &[Made], records: &[Record]) -> Result<()> {
        let host = Host(&self.config.host_root);
        let all = || records.iter().flat_map(|record| &record.made).chain(made);
        for file in made {
            let Made::Mount { from, .. } = file else {
                continue;
            };
            let only_reads = file.access() == Some(Access::ReadShared.name());
            for it in Loop::over(&Ground::at(host, from), host) {
                let harmless = only_reads && it.is_read_only;
                let is_vms = all().any(|made| made.is_on(&it.number));
                if harmless || is_vms && !it.is_claimed(host) {
                    continue;
                }
                let (file, name) = (named(plan, file, from.display().to_string()), &it.name);
                return Err(Failure::new(format!(
                    "{file} is in use: it is behind /dev/{name} of this machine"
                ))
                .help(format!(
                    "unmount what is mounted from there (findmnt and lsblk show it), then detach \
                     it with losetup -d /dev/{name}"
                )));
            }
        }
        Ok(())
    }

    /// Nor does one VM have a file twice, once as a loop device.
    pub(crate) fn refuse_layered(&self, plan: &Plan, made: &[Made]) -> Result<()> {
        for (nth, one) in made.iter().enumerate() {
            let mut shared = made[..nth]
                .iter()
                .filter_map(|two| self.shares_ground(one, two, None));
            if let Some(what) = shared.next() {
                return Err(another_disk(&named(plan, one, what)));
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

    /// The same for what loop devices show.
    fn shares_ground(&self, ours: &Made, theirs: &Made, shown: Option<Ground>) -> Option<String> {
        let host = Host(&self.config.host_root);
        let ground = |made: &Made| match made {
            Made::Device { number, .. } => Some(Ground::of_device(host, number)),
            Made::Mount { from, .. } => Some(Ground::at(host, from)),
            _ => None,
        };
        let is_device = |made: &Made| matches!(made, Made::Device { .. });
        if ours.agrees_with(theirs) || !is_device(ours) && !is_device(theirs) {
            return None;
        }
        let one = ground(ours)?;
        let mut others = ground(theirs).into_iter().chain(shown);
        let is_one = others.any(|two| one.overlaps(&two, host));
        is_one.then(|| ours.layered())
    }
}

/// The disk that something is made for.
fn disk_of<'p>(plan: &'p Plan, thing: &Made) -> Option<&'p str> {
    plan.steps.iter().find_map(|step| {
        let disk = match step.whose() {
            Whose::Disk(disk) => disk,
            Whose::DiskAt(file) => plan.disk_at(file)?.name.as_str(),
            Whose::Root | Whose::KeyOf(_) | Whose::Vm => return None,
        };
        let made = made_by(step)?;
        // What was only a path when the step was planned has a number by now.
        let same_place = made.place().is_some() && made.place() == thing.place();
        (same_place || made == *thing).then_some(disk)
    })
}

/// The same in words, behind the disk whose it is.
pub(crate) fn named(plan: &Plan, thing: &Made, what: String) -> String {
    match disk_of(plan, thing) {
        Some(disk) => format!("disk {disk}: {what}"),
        None => what,
    }
}

/// What is mounted for a VM.
fn shown(made: &Made) -> Option<Ground> {
    let Made::Mount { path, .. } = made else {
        return None;
    };
    fs::symlink_metadata(path).ok().as_ref().map(Ground::of)
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
pub(crate) fn refuse_overlapping(plan: &Plan, made: &[Made]) -> Result<()> {
    for (nth, one) in made.iter().enumerate() {
        let mut shared = made[..nth].iter().filter_map(|two| one.shares_with(two));
        if let Some(what) = shared.next() {
            return Err(another_disk(&named(plan, one, what)));
        }
    }
    Ok(())
}

fn another_disk(what: &str) -> Failure {
    Failure::new(format!("{what} is another disk of this VM"))
        .help("writes to one destroy the other: give the VM one of them")
}

impl Made {
    /// In which way it is used.
    pub(crate) fn access(&self) -> Option<&str> {
        match self {
            Self::Device { access, .. } | Self::Mount { access, .. } => access.as_deref(),
            Self::Lease { access, .. } => Some(access),
            _ => None,
        }
    }

    /// Where libvirt finds it, or what is leased.
    fn place(&self) -> Option<&OsStr> {
        match self {
            Self::Device { path, .. } | Self::Mount { path, .. } => Some(path.as_os_str()),
            Self::Lease { storage, .. } => Some(OsStr::new(storage)),
            _ => None,
        }
    }

    /// Whether it is this device, or a partition of it.
    fn is_on(&self, device: &str) -> bool {
        match self {
            Self::Device { number, .. } => {
                number == device || whole_disk_of(number).as_deref() == Some(device)
            }
            _ => false,
        }
    }

    /// What is, or is behind, a loop device.
    fn layered(&self) -> String {
        match self {
            Self::Device { number, .. } => match file_behind(number) {
                Some(file) => format!(
                    "device {}, which shows {},",
                    known_as(number),
                    file.display()
                ),
                None => format!(
                    "device {}, which is behind a loop device,",
                    known_as(number)
                ),
            },
            Self::Mount { from, .. } => {
                format!("{}, which is behind a loop device,", from.display())
            }
            _ => String::new(),
        }
    }

    /// Whether a Lease object of the cluster says who of both has it.
    fn is_decided_elsewhere(&self, other: &Self) -> bool {
        let object = |made: &Self| match made {
            Self::Lease { object, .. } => object.clone(),
            _ => None,
        };
        object(self).is_some() && object(self) == object(other)
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
                } else if whole_disk_of(one).as_deref() == Some(two) {
                    let (part, disk) = (known_as(one), known_as(two));
                    Some(format!("device {disk}, of which {part} is a partition,"))
                } else if whole_disk_of(two).as_deref() == Some(one) {
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

/// Whether a file is there, for all that can be seen.
fn may_exist(file: &str) -> bool {
    !matches!(Path::new(file).try_exists(), Ok(false))
}

/// A device by its usual name, as far as the kernel tells it, and its number.
pub(crate) fn known_as(number: &str) -> String {
    let about = fs::read_to_string(format!("/sys/dev/block/{number}/uevent"));
    let about = about.unwrap_or_default();
    match about.lines().find_map(|line| line.strip_prefix("DEVNAME=")) {
        Some(name) => format!("/dev/{name} ({number})"),
        None => number.to_owned(),
    }
}
