//! `disklet image create`.

use std::path::Path;

use disklet_block::device::{Caching, FileDevice, Flush, Resize, Size};
use disklet_block::image::Format;
use disklet_block::qcow2::{Backing, NewImage, Qcow2, Writer};

use super::args::ImageFormat;
use super::convert::cluster;
use super::new_file::{Existing, NewFile};
use super::size::ByteCount;
use super::{Answer, Failure};

/// What is to be made.
pub(super) struct Wanted<'w> {
    pub(super) format: ImageFormat,
    pub(super) cluster_size: ByteCount,
    pub(super) backing: Option<&'w Path>,
    pub(super) backing_format: Option<ImageFormat>,
    pub(super) file: &'w Path,
    pub(super) size: Option<ByteCount>,
}

pub(super) fn create(wanted: &Wanted<'_>) -> Result<Answer, Failure> {
    let backing = backing(wanted)?;
    let size = match (wanted.size, &backing) {
        (Some(size), _) => size.0,
        (None, Some((_, size))) => *size,
        (None, None) => return Err(Failure::new("say how large the disk is to be").with_code(2)),
    };
    let name = wanted.file.display();
    let failed = |error: std::io::Error| Failure::new(format!("{name}: cannot be made: {error}"));
    let new = NewFile::create(wanted.file, Existing::Refuse).map_err(failed)?;
    let device = FileDevice::new(
        new.file().map_err(failed)?,
        name.to_string(),
        Caching::Buffered,
    )?;
    match wanted.format {
        ImageFormat::Raw => {
            device.resize(size)?;
            device.flush()?;
        }
        ImageFormat::Qcow2 => {
            let spec = NewImage {
                cluster: cluster(wanted.cluster_size)?,
                backing: backing.map(|(backing, _)| backing),
                ..NewImage::of_size(size.next_multiple_of(512))
            };
            Writer::new(&device, &spec)?.finish()?;
        }
    }
    new.name().map_err(failed)?;
    Ok(Answer::Text(String::new()))
}

/// What the new image is laid over, and the size of its disk.
fn backing(wanted: &Wanted<'_>) -> Result<Option<(Backing, u64)>, Failure> {
    let (Some(path), Some(format)) = (wanted.backing, wanted.backing_format) else {
        return Ok(None);
    };
    if wanted.format == ImageFormat::Raw {
        return Err(Failure::new("a raw image cannot be laid over another").with_code(2));
    }
    // As QEMU has it, a relative name is relative to the new image.
    let found = match wanted.file.parent() {
        Some(parent) => parent.join(path),
        None => path.to_owned(),
    };
    let file = FileDevice::open(&found, Caching::Buffered)?;
    let size = match format {
        ImageFormat::Raw => file.size()?,
        ImageFormat::Qcow2 => Qcow2::read_header(&file, file.name())?.size,
    };
    let name = path.to_str().ok_or_else(|| {
        Failure::new(format!(
            "{}: a name that is not UTF-8 cannot be written into an image",
            path.display()
        ))
    })?;
    let backing = Backing {
        file: name.to_owned(),
        format: Format::from(format),
    };
    Ok(Some((backing, size)))
}
