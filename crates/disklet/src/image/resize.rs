//! `disklet image resize`.

use disklet_block::device::{Access, Caching, FileDevice, Flush, Resize, Size};
use disklet_block::gate::{Gate, Role};
use disklet_block::image::{Format, Image};
use disklet_block::qcow2::{self, Beyond, Header, Qcow2, ResizeOptions};
use disklet_core::units::ByteSize;

use super::args::ResizeArgs;
use super::open::{LockingGate, format_of, open_to_change};
use super::{Answer, Failure};

pub(super) fn resize(args: &ResizeArgs) -> Result<Answer, Failure> {
    let file = open_to_change(&args.file, Caching::Buffered)?;
    let (before, after) = match format_of(&args.format, &file)? {
        Format::Raw => {
            let before = file.size()?;
            let after = wanted(args, &file, before)?;
            file.resize(after)?;
            file.flush()?;
            (before, after)
        }
        Format::Qcow2 => {
            let header = Qcow2::read_header(&file, file.name())?;
            let after = wanted(args, &file, header.size)?;
            let options = ResizeOptions {
                // What is lost was asked about before.
                beyond: Beyond::Lose,
                backing_size: if after > header.size {
                    size_below(args, &file, &header)?
                } else {
                    None
                },
            };
            let before = qcow2::resize(&file, file.name(), after, &options)?;
            (before, after)
        }
    };
    let size = |bytes| ByteSize::from_bytes(bytes).to_string();
    Ok(Answer::yes(if before == after {
        format!("{}: has {} already\n", file.name(), size(after))
    } else {
        format!(
            "{}: resized from {} to {}\n",
            file.name(),
            size(before),
            size(after)
        )
    }))
}

/// The new size; a smaller one only if the user has said so.
fn wanted(args: &ResizeArgs, file: &FileDevice, before: u64) -> Result<u64, Failure> {
    let name = file.name();
    let after = args
        .size
        .of(before)
        .map_err(|problem| Failure::new(format!("{name}: {problem}")))?;
    if !after.is_multiple_of(512) {
        return Err(Failure::new(format!(
            "{name}: {after} bytes are no whole sectors: the size of a disk is a multiple of 512"
        )));
    }
    if after < before && !args.shrink {
        let (before, after) = (ByteSize::from_bytes(before), ByteSize::from_bytes(after));
        return Err(Failure::new(format!(
            "{name}: the disk has {before}; made smaller, it would lose what lies beyond {after}"
        ))
        .with_help("if nothing is there that you need, say so with --shrink"));
    }
    Ok(after)
}

/// The size of the disk below: its end must not come to light in a disk that
/// grows.
fn size_below(
    args: &ResizeArgs,
    file: &FileDevice,
    header: &Header,
) -> Result<Option<u64>, Failure> {
    let Some(name) = &header.backing_file else {
        return Ok(None);
    };
    let format = header.backing_format.as_deref();
    let format = format.and_then(Format::from_name).ok_or_else(|| {
        Failure::new(format!(
            "{}: the image does not say that its backing file is raw or qcow2; a format is not guessed",
            file.name()
        ))
    })?;
    let gate = LockingGate::new(&args.chain, Access::Read)?;
    let below = gate
        .open(name, Role::Backing, file)
        .map_err(|error| error.of(file.name()))?;
    Ok(Some(Image::open(below, format, &gate)?.size()?))
}
