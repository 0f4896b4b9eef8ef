//! Where devices and files of the machine are shown.
//!
//! ```text
//!   <runDir>               the administrator's, if it is there
//!   <runDir>/vms           ours: QEMU's user passes through, nobody else looks
//!   <runDir>/vms/<uuid>    a VM's
//! ```

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::fs::{FlockOperation, StatVfsMountFlags};
use rustix::mount::MountFlags;

use crate::failure::{Failure, Result, on};
use crate::libvirt::QemuUser;
use crate::record::same_file;

/// Passed through by QEMU's user, but not to be looked into or locked by anybody.
const MODE: u32 = 0o711;

/// Our directory for the VM's things, on a filesystem on which device nodes
/// are devices: /run usually is not. Nobody else changes it while the answer is
/// held.
pub(super) fn prepare_place(to: &Path, user: Option<QemuUser>) -> Result<File> {
    let above = |path: &Path| path.parent().map(Path::to_owned);
    let of_vm = above(to);
    let of_all = of_vm.as_deref().and_then(above);
    let run_dir = of_all.as_deref().and_then(above);
    let (Some(of_vm), Some(of_all), Some(run_dir)) = (of_vm, of_all, run_dir) else {
        return Err(Failure::new(format!("{} is no path of ours", to.display())));
    };
    make(&run_dir, true)?;
    demand_safe(&run_dir, user)?;
    make(&of_all, false)?;
    let lock = loop {
        demand_ours(&of_all)?;
        let lock = lock_places(&of_all)?;
        if !is_without_devices(&of_all)? {
            break lock;
        }
        // It is covered by what is mounted: that is what has to be locked.
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        rustix::mount::mount("disklet", &of_all, "tmpfs", flags, c"mode=0711,size=1m")
            .map_err(|error| on(&of_all, "mounted on", error.into()))?;
    };
    make(&of_vm, false)?;
    Ok(lock)
}

/// Nobody else changes what is shown of any VM while the answer is held.
pub(super) fn lock_places(of_all: &Path) -> Result<File> {
    let failed = |error: io::Error| on(of_all, "locked", error);
    loop {
        let lock = File::open(of_all).map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| failed(error.into()))?;
        // Somebody may have mounted something there meanwhile.
        if same_file(&lock, of_all) {
            return Ok(lock);
        }
    }
}

/// Makes a directory with its rights. One that is there is left as it is.
fn make(directory: &Path, with_those_above: bool) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.mode(MODE).recursive(with_those_above);
    match builder.create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(on(directory, "made", error))
        }
        _ => Ok(()),
    }
}

/// Refuses a directory in which others could put something into our place, or
/// that QEMU's user cannot pass.
fn demand_safe(run_dir: &Path, user: Option<QemuUser>) -> Result<()> {
    let meta = fs::metadata(run_dir).map_err(|error| on(run_dir, "looked at", error))?;
    let (mode, owner) = (meta.mode() & 0o7777, meta.uid());
    let is_sticky = mode & 0o1000 != 0;
    let us = rustix::process::geteuid().as_raw();
    let (why, change) = if ![0, us].contains(&owner) {
        (format!("belongs to user {owner}"), format!("chown {us}"))
    } else if mode & 0o022 != 0 && !is_sticky {
        (
            format!("can be written to by others (mode {mode:o})"),
            "chmod go-w".to_owned(),
        )
    } else if let Some(user) = user.filter(|user| !may_pass(&meta, *user)) {
        (
            format!(
                "cannot be passed by user {}, whom QEMU runs as (mode {mode:o})",
                user.user
            ),
            "chmod o+x".to_owned(),
        )
    } else {
        return Ok(());
    };
    let name = run_dir.display();
    Err(Failure::new(format!("{name}: {why}")).help(format!(
        "VMs are shown their devices below it: say {change} {name}, or give runDir another \
         directory in the configuration"
    )))
}

fn may_pass(meta: &Metadata, user: QemuUser) -> bool {
    let shift = if user.user == 0 {
        return true;
    } else if meta.uid() == user.user {
        6
    } else if meta.gid() == user.group {
        3
    } else {
        0
    };
    (meta.mode() >> shift) & 1 == 1
}

/// Refuses what somebody else has put there, or could lock.
fn demand_ours(of_all: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(of_all);
    let meta = meta.map_err(|error| on(of_all, "looked at", error))?;
    let (mode, owner) = (meta.mode() & 0o777, meta.uid());
    let us = rustix::process::geteuid().as_raw();
    let (why, change) = if !meta.is_dir() {
        ("is not a directory".to_owned(), "rm".to_owned())
    } else if owner != us {
        (format!("belongs to user {owner}"), "rm -r".to_owned())
    } else if mode != MODE {
        (
            format!("has mode {mode:o}, and not {MODE:o}"),
            format!("chmod {MODE:o}"),
        )
    } else {
        return Ok(());
    };
    let name = of_all.display();
    Err(Failure::new(format!("{name}: {why}")).help(format!(
        "disklet has this place for itself: if nobody else needs it, say {change} {name}; or give \
         runDir another directory in the configuration"
    )))
}

fn is_without_devices(directory: &Path) -> Result<bool> {
    let seen = rustix::fs::statvfs(directory);
    let seen = seen.map_err(|error| on(directory, "looked at", error.into()))?;
    Ok(seen.f_flag.contains(StatVfsMountFlags::NODEV))
}
