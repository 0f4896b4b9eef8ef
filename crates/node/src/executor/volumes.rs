//! Files of our own: overlays, new volumes, cloud-init images.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use disklet_block::convert::{Packing, Watch, to_qcow2};
use disklet_block::device::{Caching, FileDevice, Size as _};
use disklet_block::gate::NoImplicitFiles;
use disklet_block::image::{Format, Image};
use disklet_block::iso9660::{IsoFile, IsoImage};
use disklet_block::new_file::{Existing, NewFile, directory_of};
use disklet_block::qcow2::{Backing, Beyond, NewImage, Qcow2, ResizeOptions, Writer, resize};
use disklet_core::cloudinit::CloudInit;
use disklet_core::plan::Size;
use disklet_core::text::Reveal;
use disklet_core::units::ByteSize;

use super::filesystem;
use super::told::Told;
use crate::failure::{Failure, Result, on, on_image};
use crate::libvirt::QemuUser;

/// What an overlay is laid over.
pub(super) struct Below<'b> {
    /// What the overlay calls it.
    pub(super) name: String,
    /// How large it is; looking may take a while.
    pub(super) size: &'b dyn Fn() -> Result<u64>,
}

/// An overlay over a raw master.
pub(super) fn overlay(
    file: &Path,
    below: &Below<'_>,
    size: Size,
    user: Option<QemuUser>,
) -> Result<()> {
    let size = match size.known() {
        Some(size) => size.as_bytes(),
        None => (below.size)()?,
    };
    let size = size.next_multiple_of(512);
    if file.exists() {
        return adapt_overlay(file, below, size);
    }
    let spec = NewImage {
        backing: Some(Backing {
            file: below.name.clone(),
            format: Format::Raw,
        }),
        ..NewImage::of_size(size)
    };
    new_image(file, user, |device| {
        Writer::new(device, &spec)?.finish().map(drop)
    })
}

/// The size of a master that nobody has looked at before.
pub(super) fn size_of(master: &str) -> Result<u64> {
    let failed = |error| on_image(master, "looked at", error);
    let device = FileDevice::open(Path::new(master), Caching::Buffered).map_err(failed)?;
    device.size().map_err(failed)
}

/// An overlay that an earlier run has made: over another image it is worth
/// nothing, and it grows if it shall be larger.
fn adapt_overlay(file: &Path, below: &Below<'_>, size: u64) -> Result<()> {
    let failed = |error| on_image(file, "used", error);
    let device = FileDevice::open_writable(file, Caching::Buffered).map_err(failed)?;
    let header = Qcow2::read_header(&device, device.name()).map_err(failed)?;
    if header.backing_file.as_deref() != Some(&*below.name) {
        return Err(Failure::new(format!(
            "{}: the disk was begun over another master",
            file.display()
        ))
        .help("disklet down removes the VM with its copies; or go back to the master it was started with"));
    }
    if size <= header.size {
        return Ok(());
    }
    let options = ResizeOptions {
        beyond: Beyond::Keep,
        backing_size: Some((below.size)()?),
    };
    resize(&device, device.name(), size, &options).map_err(failed)?;
    Ok(())
}

/// A volume with one partition and ext4 on it.
pub(super) fn formatted(
    file: &Path,
    size: ByteSize,
    user: Option<QemuUser>,
    watch: &dyn Watch,
) -> Result<()> {
    let size = size.as_bytes().next_multiple_of(512);
    if file.exists() {
        return tell_other_size(file, size);
    }
    make_directory_of(file)?;
    let raw = filesystem::disk_for(file, size, watch)?;
    let failed = |error| on_image(file, "made", error);
    let source = FileDevice::new(raw, "the new filesystem", Caching::Buffered).map_err(failed)?;
    let source = Image::open(source, Format::Raw, &NoImplicitFiles).map_err(failed)?;
    let spec = NewImage::of_size(size);
    let watch = Told::new(size, watch);
    let outcome = new_image(file, user, |device| {
        to_qcow2(&source, device, &spec, Packing::Plain, 1, &watch).map(drop)
    });
    watch.end();
    outcome
}

/// A volume is made once: what a guest has written to it is kept, whatever size
/// is wanted now.
fn tell_other_size(file: &Path, wanted: u64) -> Result<()> {
    let failed = |error| on_image(file, "used", error);
    let device = FileDevice::open(file, Caching::Buffered).map_err(failed)?;
    let size = Qcow2::read_header(&device, device.name())
        .map_err(failed)?
        .size;
    if size == wanted {
        return Ok(());
    }
    let grow = match size < wanted {
        true => format!(
            "; to keep its data, disklet image resize {} {wanted} while the VM is off makes it \
             larger, and the guest its partition and filesystem",
            file.display()
        ),
        false => String::new(),
    };
    let _ = writeln!(
        io::stderr(),
        "notice: {}: stays as large as it was made, {}, although the manifest says {}\n  \
         help: disklet down removes it with its data, and the next up makes it anew{grow}",
        file.display(),
        ByteSize::from_bytes(size),
        ByteSize::from_bytes(wanted)
    );
    Ok(())
}

/// A cloud-init image, readable for its owner only: it may hold secrets.
pub(super) fn cloud_init(file: &Path, content: &CloudInit, user: Option<QemuUser>) -> Result<()> {
    let content = content.as_far_as_known();
    let files = content.files(Reveal::Show).into_iter();
    let image = IsoImage {
        label: content.label().to_owned(),
        files: files
            .map(|(path, text)| IsoFile {
                path: path.to_owned(),
                bytes: text.into_bytes(),
                mode: 0o644,
            })
            .collect(),
    };
    let bytes = image
        .to_bytes()
        .map_err(|error| Failure::new("the cloud-init image cannot be made").because(error))?;
    make_directory_of(file)?;
    let written = NewFile::with_mode(file, Existing::Replace, 0o600).and_then(|new| {
        let mut out = new.file()?;
        out.write_all(&bytes)?;
        own(&out, user)?;
        out.sync_data()?;
        new.name()
    });
    written.map_err(|error| on(file, "written", error))
}

/// Makes an image that appears only when it is complete; one that is there is.
fn new_image(
    path: &Path,
    user: Option<QemuUser>,
    fill: impl FnOnce(&FileDevice) -> disklet_block::error::Result<()>,
) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    make_directory_of(path)?;
    let failed = |error: io::Error| on(path, "made", error);
    let new = NewFile::with_mode(path, Existing::Refuse, 0o600).map_err(failed)?;
    let name = path.display().to_string();
    let made = FileDevice::new(new.file().map_err(failed)?, name, Caching::Buffered)
        .and_then(|device| fill(&device));
    made.map_err(|error| on_image(path, "made", error))?;
    new.file()
        .and_then(|file| own(&file, user))
        .and_then(|()| new.name())
        .map_err(failed)
}

/// Makes a new file QEMU's, before it has a name.
pub(super) fn own(file: &File, user: Option<QemuUser>) -> io::Result<()> {
    match user {
        Some(user) => std::os::unix::fs::fchown(file, Some(user.user), Some(user.group)),
        None => Ok(()),
    }
}

pub(super) fn make_directory_of(path: &Path) -> Result<()> {
    let directory = directory_of(path).map_err(|error| on(path, "made", error))?;
    std::fs::create_dir_all(directory).map_err(|error| on(directory, "made", error))
}
