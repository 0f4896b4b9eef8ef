//! The file `disk.img` of a filesystem volume. The volume may be a tenant's, who
//! can put anything there, at any time.

use std::fs::{File, FileType};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use disklet_core::plan::Access;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::Host;
use crate::failure::{Failure, Result, on};
use crate::libvirt::QemuUser;

/// Opens a disk image: a regular file, in the volume itself, that has no other
/// name. Whatever else is there is not opened, not even to look: opening a
/// device can have consequences.
pub(super) fn open_image(host: Host<'_>, path: &Path, access: Access) -> Result<File> {
    let failed = |error: Errno| on(path, "opened", error.into());
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Failure::new(format!(
            "{} is no path of a file",
            path.display()
        )));
    };
    let directory = host
        .open(directory, OFlags::PATH | OFlags::DIRECTORY)
        .map_err(failed)?;
    let seen = rustix::fs::openat2(
        &directory,
        name,
        OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    );
    let seen = match seen {
        Ok(seen) => File::from(seen),
        Err(Errno::NOENT) => return Err(missing(path)),
        Err(error) => return Err(failed(error)),
    };
    demand_plain_file(&seen, path)?;
    // What was looked at, whatever has its name by now.
    let seen = format!("/proc/self/fd/{}", seen.as_raw_fd());
    let file = rustix::fs::open(seen, needed_by(access) | OFlags::CLOEXEC, Mode::empty());
    file.map(File::from).map_err(failed)
}

/// How a disk is opened. A volume that is only read may be mounted so that it
/// cannot be written.
pub(super) fn needed_by(access: Access) -> OFlags {
    match access {
        Access::ReadShared => OFlags::RDONLY,
        Access::WriteExclusive | Access::WriteShared => OFlags::RDWR,
    }
}

fn missing(path: &Path) -> Failure {
    Failure::new(format!("{} is missing", path.display())).help(
        "put a raw disk image of that name into the volume, or have an empty one made: create: true",
    )
}

fn demand_plain_file(seen: &File, path: &Path) -> Result<()> {
    let name = path.display();
    let meta = seen
        .metadata()
        .map_err(|error| on(path, "looked at", error))?;
    if !meta.is_file() {
        let kind = kind(meta.file_type());
        return Err(
            Failure::new(format!("{name} is {kind}, not a regular file"))
                .help("a claim's disk image has to be in its volume itself"),
        );
    }
    match meta.nlink() {
        1 => Ok(()),
        0 => Err(Failure::new(format!("{name} was removed at this moment"))
            .help("somebody is changing the volume: have it at rest, and start the VM again")),
        names => Err(Failure::new(format!(
            "{name} has {names} names: it may be somebody else's file as well"
        ))
        .help("a claim's disk image is a file of its own, without hard links: copy it")),
    }
}

fn kind(kind: FileType) -> &'static str {
    if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Whoever owns the file decides who may use it; we do not.
pub(super) fn demand_rights(
    file: &File,
    path: &Path,
    user: Option<QemuUser>,
    access: Access,
) -> Result<()> {
    let meta = file
        .metadata()
        .map_err(|error| on(path, "looked at", error))?;
    let Some(user) = user.filter(|user| user.user != 0) else {
        return Ok(());
    };
    let bits = if meta.uid() == user.user {
        meta.mode() >> 6
    } else if meta.gid() == user.group {
        meta.mode() >> 3
    } else {
        meta.mode()
    };
    let (needed, to) = match access {
        Access::ReadShared => (0o4, "read it"),
        Access::WriteExclusive | Access::WriteShared => (0o6, "write to it"),
    };
    if bits & needed == needed {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{}: QEMU runs as user {} and may not {to}",
        path.display(),
        user.user
    ))
    .help("make that user the owner of the file, as libvirt would"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rustix::fs::{CWD, FileType as NodeType, RenameFlags, renameat_with};

    use super::*;

    struct Volume(PathBuf);

    fn open(image: &Path) -> Result<File> {
        open_image(Host::OURS, image, Access::WriteExclusive)
    }

    impl Volume {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("disklet-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn image(&self) -> PathBuf {
            self.0.join("disk.img")
        }

        fn refusal(&self) -> String {
            let refused = open(&self.image()).unwrap_err().to_string();
            fs::remove_file(self.image())
                .or_else(|_| fs::remove_dir(self.image()))
                .unwrap();
            refused
        }
    }

    impl Drop for Volume {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_a_file_of_its_own_is_a_disk_image() {
        let volume = Volume::new("image-kinds");
        let (image, secret) = (volume.image(), volume.0.join("secret"));
        fs::write(&secret, "secret").unwrap();
        symlink(&secret, &image).unwrap();
        assert!(volume.refusal().contains("a symbolic link"));
        // Not even one that stays within.
        symlink("secret", &image).unwrap();
        assert!(volume.refusal().contains("a symbolic link"));
        symlink("/dev/null", &image).unwrap();
        assert!(volume.refusal().contains("a symbolic link"));
        fs::hard_link(&secret, &image).unwrap();
        assert!(volume.refusal().contains("has 2 names"));
        fs::create_dir(&image).unwrap();
        assert!(volume.refusal().contains("a directory"));
        // Nobody waits for somebody who writes to it.
        rustix::fs::mknodat(CWD, &image, NodeType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(volume.refusal().contains("a FIFO"));
        drop(UnixListener::bind(&image).unwrap());
        assert!(volume.refusal().contains("a socket"));
        let missing = open(&image).unwrap_err().to_string();
        assert!(missing.contains("create: true"), "{missing}");
        fs::write(&image, "disk").unwrap();
        open(&image).unwrap();
    }

    /// Whatever moment it is: what is opened is the volume's own file.
    #[test]
    fn a_link_that_is_swapped_in_is_never_followed() {
        let volume = Volume::new("image-swapped");
        let (image, other) = (volume.image(), volume.0.join("other"));
        fs::write(volume.0.join("secret"), "secret").unwrap();
        fs::write(&image, "disk").unwrap();
        symlink("secret", &other).unwrap();
        let own = fs::metadata(&image).unwrap().ino();
        let end = AtomicBool::new(false);
        let (mut opened, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    renameat_with(CWD, &image, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                }
            });
            while opened + refused < 20_000 {
                match open(&image) {
                    Ok(file) => {
                        assert_eq!(file.metadata().unwrap().ino(), own);
                        opened += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
            end.store(true, Ordering::Relaxed);
        });
        assert!(
            opened > 0 && refused > 0,
            "{opened} opened, {refused} refused"
        );
    }
}
