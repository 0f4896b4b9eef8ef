//! Images exchanged with imago, which shares no code with this crate or with
//! QEMU: it reads what is written here, and what it writes is read here. It
//! knows neither zstd nor subclusters.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::path::Path;

use disklet_block::image::Format;
use disklet_block::qcow2::{Compression, Verdict, check};
use imago::file::File;
use imago::qcow2::Qcow2;
use imago::{
    FormatAccess, FormatCreateBuilder, FormatDriverBuilder, PermissiveImplicitOpenGate, Storage,
    StorageCreateOptions,
};
use support::ours::{self, contents, random_image};
use support::{Random, Scratch, open};

const ROUNDS: u64 = 40;

fn by_imago(path: &Path) -> FormatAccess<File> {
    let image = Qcow2::<File>::builder_path(path).open(PermissiveImplicitOpenGate::default());
    FormatAccess::new(image.unwrap())
}

#[test]
fn imago_reads_what_is_written_here() {
    for seed in 0..ROUNDS {
        let scratch = Scratch::new("imago-reads");
        let path = scratch.file("image");
        let mut random = Random::new(seed);
        let bytes = random_image(&path, &[Compression::Zlib], &mut random);
        let image = by_imago(&path);
        assert_eq!(image.size(), bytes.len() as u64, "{seed}");
        let mut read = vec![0xaa; bytes.len()];
        image.read(&mut read, 0).unwrap();
        assert!(read == bytes, "{seed}");
        for _ in 0..20 {
            let start = random.index(bytes.len());
            let length = random.index(bytes.len() - start);
            let piece = &mut read[..length];
            image.read(&mut *piece, start as u64).unwrap();
            assert!(piece == &bytes[start..start + length], "{seed} {start}");
        }
    }
}

#[test]
fn what_imago_writes_is_read_here() {
    for seed in 0..ROUNDS {
        let scratch = Scratch::new("imago-writes");
        let mut random = Random::new(seed);
        let (path, below) = (scratch.file("image"), scratch.file("below"));
        let mut bytes = Vec::new();
        let has_below = random.below(2) == 0;
        if has_below {
            bytes = ours::disk(random.below(6 << 10) * 512, &mut random);
            std::fs::write(&below, &bytes).unwrap();
        }
        let size = (1 << 20) + random.below(6 << 10) * 512;
        bytes.resize(usize::try_from(size).unwrap(), 0);
        let cluster = 512 << random.below(13);
        create(&path, size, cluster, has_below, &mut random);
        write(&path, &mut bytes, cluster, &mut random);
        assert!(contents(&path, Format::Qcow2) == bytes, "{seed}");
        let report = check(&open(&path), "image").unwrap();
        assert_eq!(report.verdict(), Verdict::Clean, "{seed}: {report:?}");
    }
}

fn create(path: &Path, size: u64, cluster: usize, has_below: bool, random: &mut Random) {
    let file = File::create_open(StorageCreateOptions::new().filename(path)).unwrap();
    let mut builder = Qcow2::<File>::create_builder(file)
        .size(size)
        .cluster_size(cluster)
        .refcount_width(1 << random.below(7));
    if has_below {
        builder = builder.backing("below".to_owned(), "raw".to_owned());
    }
    builder.create().unwrap();
}

fn write(path: &Path, bytes: &mut [u8], cluster: usize, random: &mut Random) {
    let image = Qcow2::<File>::builder_path(path).write(true);
    let image = image.open(PermissiveImplicitOpenGate::default()).unwrap();
    let mut image = FormatAccess::new(image);
    for _ in 0..30 {
        let start = random.index(bytes.len());
        let end = start + 1 + random.index((bytes.len() - start).min(300_000));
        // Parts of a cluster at the end of a disk are too much for imago 0.2.6,
        // which computes with whole ones there.
        let first = start / cluster * cluster;
        let zeroes = first..end.next_multiple_of(cluster).min(bytes.len());
        let (at, length) = (first as u64, zeroes.len() as u64);
        match random.below(4) {
            0 => {
                image.write_zeroes(at, length).unwrap();
                bytes[zeroes].fill(0);
            }
            1 => {
                image.discard_to_zero(at, length).unwrap();
                bytes[zeroes].fill(0);
            }
            _ => {
                random.fill(&mut bytes[start..end]);
                image.write(&bytes[start..end], start as u64).unwrap();
            }
        }
    }
    image.flush().unwrap();
}
