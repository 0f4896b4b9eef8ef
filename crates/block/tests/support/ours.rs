//! Images made by the code under test, of disks that the test knows.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Arc;

use disklet_block::convert::{Packing, Unwatched, to_qcow2};
use disklet_block::device::{Caching, FileDevice, MemoryDevice, ReadAt, Size};
use disklet_block::gate::BelowDirectories;
use disklet_block::image::{Format, Image};
use disklet_block::qcow2::{Backing, ClusterSize, Compression, GuestOffset, NewImage, Writer};

use super::{Random, open};

/// The bytes of a disk: zeroes, text and noise by turns, of lengths that fit
/// no cluster.
pub(crate) fn disk(size: u64, random: &mut Random) -> Vec<u8> {
    let size = usize::try_from(size).unwrap();
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let start = bytes.len();
        let length = 1 + random.index(size / 8 + 1);
        bytes.resize(size.min(start + length), 0);
        let piece = &mut bytes[start..];
        match random.below(4) {
            0 => {}
            1 => random.fill(piece),
            _ => write_text(piece, start),
        }
    }
    bytes
}

/// Packs well, and differs from place to place.
pub(crate) fn write_text(piece: &mut [u8], from: usize) {
    for (line, bytes) in piece.chunks_mut(32).enumerate() {
        let text = format!("line {:26}\n", from + line);
        bytes.copy_from_slice(&text.as_bytes()[..bytes.len()]);
    }
}

pub(crate) fn new_file(path: &Path) -> FileDevice {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path);
    FileDevice::new(file.unwrap(), "new", Caching::Direct).unwrap()
}

/// A disk converted into an image.
pub(crate) fn converted(path: &Path, disk: &[u8], spec: &NewImage, packing: Packing) {
    let source = Image::raw(Arc::new(MemoryDevice::new(disk.to_vec())));
    to_qcow2(&source, &new_file(path), spec, packing, 2, &Unwatched).unwrap();
}

/// An image whose clusters are new bytes, zeroes, or those of the disk below.
/// Returns its disk.
pub(crate) fn laid_over(
    path: &Path,
    spec: &NewImage,
    below: &[u8],
    random: &mut Random,
) -> Vec<u8> {
    let mut disk = below.to_vec();
    disk.resize(usize::try_from(spec.size).unwrap(), 0);
    let file = new_file(path);
    let mut writer = Writer::new(&file, spec).unwrap();
    for (index, piece) in disk.chunks_mut(spec.cluster.buffer_len()).enumerate() {
        let guest = GuestOffset(index as u64 * spec.cluster.bytes());
        match random.below(4) {
            0 => {
                random.fill(piece);
                writer.put_data(guest, piece).unwrap();
            }
            1 => {
                piece.fill(0);
                writer.put_zero(guest).unwrap();
            }
            _ => {}
        }
    }
    writer.finish().unwrap();
    disk
}

/// An image, with those below it in the same directory.
pub(crate) fn opened(path: &Path, format: Format) -> Image {
    let directory = path.parent().unwrap().canonicalize().unwrap();
    let gate = BelowDirectories::new([directory], Caching::Buffered);
    Image::open(open(path), format, &gate).unwrap()
}

/// The disk in an image, as it is read here.
pub(crate) fn contents(path: &Path, format: Format) -> Vec<u8> {
    let image = opened(path, format);
    let mut bytes = vec![0xaa; usize::try_from(image.size().unwrap()).unwrap()];
    image.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// An image of any sort that is made here: converted, or laid cluster by
/// cluster over nothing, a raw disk or an image. The one below may be shorter
/// or longer. Returns the disk.
pub(crate) fn random_image(
    path: &Path,
    compressions: &[Compression],
    random: &mut Random,
) -> Vec<u8> {
    let spec = random_spec(compressions, random);
    if random.below(2) == 0 {
        let bytes = disk(spec.size, random);
        let packing = [Packing::Plain, Packing::Packed][random.index(2)];
        converted(path, &bytes, &spec, packing);
        return bytes;
    }
    let below = path.with_extension("below");
    let below_spec = random_spec(compressions, random);
    let bytes = disk(below_spec.size, random);
    let format = [None, Some(Format::Raw), Some(Format::Qcow2)][random.index(3)];
    match format {
        None => return laid_over(path, &spec, &[], random),
        Some(Format::Raw) => std::fs::write(&below, &bytes).unwrap(),
        Some(Format::Qcow2) => converted(&below, &bytes, &below_spec, Packing::Packed),
    }
    let backing = format.map(|format| Backing {
        file: below.file_name().unwrap().to_str().unwrap().to_owned(),
        format,
    });
    let spec = NewImage { backing, ..spec };
    laid_over(path, &spec, &bytes, random)
}

fn random_spec(compressions: &[Compression], random: &mut Random) -> NewImage {
    let bits = 9 + u32::try_from(random.below(13)).unwrap();
    NewImage {
        cluster: ClusterSize::from_bits(bits).unwrap(),
        compression: compressions[random.index(compressions.len())],
        ..NewImage::of_size((1 << 20) + random.below(6 << 10) * 512)
    }
}
