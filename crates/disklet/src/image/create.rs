//! `disklet image create`.

use disklet_block::device::{Caching, FileDevice, Size};
use disklet_block::image::Format;
use disklet_block::ops::create_raw;
use disklet_block::qcow2::{self, Backing, NewImage, Qcow2};

use super::args::CreateArgs;
use super::convert::cluster;
use super::options::{ImageFormat, Preallocate};
use super::{Answer, Failure};
use disklet_block::new_file::{Existing, NewFile};

pub(super) fn create(args: &CreateArgs) -> Result<Answer, Failure> {
    refuse(args)?;
    let backing = backing(args)?;
    let size = match (args.size, &backing) {
        (Some(size), _) => size.0,
        (None, Some((_, size))) => *size,
        (None, None) => return Err(Failure::usage("say how large the disk is to be")),
    };
    let name = args.file.display();
    let failed = |error: std::io::Error| Failure::new(format!("{name}: cannot be made: {error}"));
    let cluster = cluster(args.cluster_size)?;
    let new = NewFile::create(&args.file, Existing::Refuse).map_err(failed)?;
    let device = FileDevice::new(
        new.file().map_err(failed)?,
        name.to_string(),
        Caching::Buffered,
    )?;
    match args.format {
        ImageFormat::Raw => create_raw(&device, size, args.preallocation.into())?,
        ImageFormat::Qcow2 => {
            let spec = NewImage {
                cluster,
                backing: backing.map(|(backing, _)| backing),
                ..NewImage::of_size(size.next_multiple_of(512))
            };
            qcow2::create(&device, &spec, args.preallocation.into())?;
        }
    }
    new.name().map_err(failed)?;
    Ok(Answer::yes(""))
}

/// What cannot be together.
fn refuse(args: &CreateArgs) -> Result<(), Failure> {
    let is_raw = args.format == ImageFormat::Raw;
    if is_raw && args.backing.is_some() {
        return Err(Failure::usage("a raw image cannot be laid over another"));
    }
    if is_raw && args.preallocation == Preallocate::Metadata {
        return Err(Failure::usage(NO_METADATA));
    }
    if args.backing.is_some() && args.preallocation != Preallocate::Off {
        return Err(Failure::usage(
            "space cannot be set aside in an image over another one: it would hide what lies below",
        ));
    }
    Ok(())
}

pub(super) const NO_METADATA: &str =
    "a raw image has no metadata; set space aside with --preallocation falloc or full";

/// What the new image is laid over, and the size of its disk.
fn backing(args: &CreateArgs) -> Result<Option<(Backing, u64)>, Failure> {
    let (Some(path), Some(format)) = (&args.backing, args.backing_format) else {
        return Ok(None);
    };
    // As QEMU has it, a relative name is relative to the new image.
    let found = match args.file.parent() {
        Some(parent) => parent.join(path),
        None => path.clone(),
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
