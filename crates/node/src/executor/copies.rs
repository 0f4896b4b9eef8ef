//! Files with the bytes of others: clones, disk images of claims, UEFI variables.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use disklet_block::convert::{Watch, fitting_threads};
use disklet_block::device::{Caching, FileDevice, Size as _};
use disklet_block::error::{Error as BlockError, ErrorKind};
use disklet_block::gate::NoImplicitFiles;
use disklet_block::image::{Format, Image};
use disklet_block::new_file::{Existing, NewFile, directory_of};
use disklet_block::ops::clone as clone_image;
use disklet_core::units::ByteSize;
use rustix::fs::OFlags;

use super::Host;
use super::locked::hold_master;
use super::told::Told;
use super::volumes::{make_directory_of, own};
use crate::failure::{Failure, Result, on, on_image};
use crate::libvirt::QemuUser;

/// A master on this machine.
pub(super) struct Origin<'m> {
    /// Where it is to be opened.
    pub(super) path: &'m str,
    /// The path that a user knows it by.
    pub(super) known_as: &'m str,
    pub(super) format: Format,
}

/// A clone of a master that nobody changes meanwhile.
pub(super) fn clone(
    host: Host<'_>,
    file: &Path,
    master: &Origin<'_>,
    user: Option<QemuUser>,
    watch: &dyn Watch,
) -> Result<()> {
    let from = master.known_as;
    let failed = |error| on_image(from, "cloned", error);
    let source = Host::OURS.open(Path::new(master.path), OFlags::RDONLY | OFlags::NONBLOCK);
    let source = source.map_err(|error| on(from, "opened", error.into()))?;
    let source = FileDevice::new(source, from, Caching::Buffered).map_err(failed)?;
    let _held = hold_master(host, &source, from)?;
    // What the master names inside, a tenant has written.
    let image = Image::open(source, master.format, &NoImplicitFiles).map_err(failed)?;
    copy(file, from, &image, user, watch)
}

/// A raw file with all bytes of an image, which has its name when it is complete.
pub(super) fn copy(
    file: &Path,
    from: &str,
    image: &Image,
    user: Option<QemuUser>,
    watch: &dyn Watch,
) -> Result<()> {
    let _ = writeln!(io::stderr(), "{from}: copying all of it");
    make_directory_of(file)?;
    let unmade = |error: io::Error| on(file, "made", error);
    // Either may be at fault, and the error says which.
    let uncloned = |error: BlockError| match error.kind() {
        ErrorKind::NoSpace => on_image(file, "made", error),
        ErrorKind::Cancelled => Failure::cancelled(),
        _ => Failure::new(format!("{from}: cannot be cloned")).because(error.without_name(from)),
    };
    let new = NewFile::with_mode(file, Existing::Refuse, 0o600).map_err(unmade)?;
    let target = FileDevice::new(
        new.file().map_err(unmade)?,
        file.display().to_string(),
        Caching::Direct,
    )
    .map_err(uncloned)?;
    let size = image.size().map_err(uncloned)?;
    let told = Told::new(size, watch);
    let threads = fitting_threads(image, &target);
    let cloned = clone_image(image, &target, threads, &told);
    told.end();
    cloned.map_err(uncloned)?;
    new.file()
        .and_then(|made| own(&made, user))
        .and_then(|()| new.name())
        .map_err(unmade)
}

/// The disk image of a claim, empty, unless there is one. It is the claim's.
pub(super) fn disk_image(
    host: Host<'_>,
    file: &Path,
    size: ByteSize,
    user: Option<QemuUser>,
) -> Result<()> {
    let (Some(directory), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(Failure::new(format!(
            "{}: is no path of a file",
            file.display()
        )));
    };
    // The volume stays the one that was opened, whatever is mounted there next.
    let volume = host
        .open(directory, OFlags::PATH | OFlags::DIRECTORY)
        .map_err(|error| on(directory, "opened", error.into()))?;
    let within = Path::new(&format!("/proc/self/fd/{}", volume.as_raw_fd())).join(name);
    match fs::symlink_metadata(&within) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(on(file, "looked at", error)),
    }
    let made = NewFile::with_mode(&within, Existing::Refuse, 0o600).and_then(|new| {
        let made = new.file()?;
        made.set_len(size.as_bytes())?;
        own(&made, user)?;
        made.sync_all()?;
        new.name()
    });
    made.map_err(|error| on(file, "made", error))
}

/// How long a cluster may take to answer. A wrong key is not answered at all.
const CEPH_CONFIG: &str = "[global]\nclient_mount_timeout = 30\n";

/// What QEMU's Ceph client goes by.
pub(super) fn ceph_config(file: &Path, user: Option<QemuUser>) -> Result<()> {
    make_directory_of(file)?;
    let made = NewFile::with_mode(file, Existing::Replace, 0o600).and_then(|new| {
        let mut made = new.file()?;
        made.write_all(CEPH_CONFIG.as_bytes())?;
        own(&made, user)?;
        new.name()
    });
    made.map_err(|error| on(file, "written", error))
}

/// The UEFI variables of a machine, as on a new one, unless it has some.
pub(super) fn variables(file: &Path, template: &Path, user: Option<QemuUser>) -> Result<()> {
    if file.exists() {
        return Ok(());
    }
    let unread =
        |error| on(template, "read", error).help("install ovmf, or set uefi in the configuration");
    let mut from = File::open(template).map_err(unread)?;
    let kind = from.metadata().map_err(unread)?.file_type();
    if !kind.is_file() || kind.is_block_device() {
        return Err(
            Failure::new(format!("{}: is not a file", template.display()))
                .help("set uefi.variables in the configuration"),
        );
    }
    make_directory_of(file)?;
    let made = NewFile::with_mode(file, Existing::Refuse, 0o600).and_then(|new| {
        let mut made = new.file()?;
        io::copy(&mut from, &mut made)?;
        own(&made, user)?;
        made.sync_all()?;
        new.name()
    });
    made.and_then(|()| File::open(directory_of(file)?)?.sync_all())
        .map_err(|error| on(file, "made", error))
}
