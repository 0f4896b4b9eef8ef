//! Sound images with random bytes changed: whatever is done with them ends,
//! and in an error if not well.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disklet_block::convert::{Before, Options, Unwatched, to_raw};
use disklet_block::device::{MemoryDevice, ReadAt, Size};
use disklet_block::error::Result;
use disklet_block::image::Image;
use disklet_block::qcow2::{Beyond, GuestOffset, Qcow2, ResizeOptions, check, resize};
use support::models::{VARIANTS, make};
use support::{Random, Scratch};

/// More than any of these disks; larger ones are claims.
const MOST: u64 = 64 << 20;

fn open(device: &MemoryDevice) -> Result<Qcow2> {
    let header = Qcow2::read_header(device, "image")?;
    Qcow2::assemble(header, "image", Arc::new(device.clone()), None, None)
}

fn map_all(image: &Qcow2) -> Result<()> {
    let end = image.size()?.min(MOST);
    let mut at = 0;
    while at < end {
        let (_, length) = image.map(GuestOffset(at), end - at)?;
        assert!(length > 0 && length <= end - at);
        at += length;
    }
    Ok(())
}

fn read_all(image: &Qcow2) -> Result<()> {
    let mut buffer = vec![0; 300_000];
    let end = image.size()?.min(MOST);
    for at in (0..end).step_by(buffer.len()) {
        let length = usize::try_from((end - at).min(buffer.len() as u64)).unwrap();
        image.read_at(&mut buffer[..length], at)?;
    }
    Ok(())
}

fn copy(image: Qcow2) -> Result<()> {
    let size = image.size()?;
    if size > MOST {
        return Ok(());
    }
    let target = MemoryDevice::zeroed(usize::try_from(size).unwrap());
    let options = Options {
        threads: 2,
        target: Before::Anything,
        share: true,
    };
    to_raw(
        &Image::Qcow2(Box::new(image)),
        &target,
        &options,
        &Unwatched,
    )
    .map(drop)
}

/// Does everything, and returns how many steps were refused.
fn exercise(device: &MemoryDevice, random: &mut Random) -> usize {
    let mut steps: Vec<Result<()>> = vec![check(device, "image").map(drop)];
    match open(device) {
        Err(error) => steps.push(Err(error)),
        Ok(image) => {
            steps.push(image.snapshots().map(drop));
            steps.push(image.bitmaps().map(drop));
            steps.push(map_all(&image));
            steps.push(read_all(&image));
            steps.push(copy(image));
        }
    }
    let options = ResizeOptions {
        beyond: Beyond::Lose,
        backing_size: Some(0),
    };
    let size = random.below(20 << 11) * 512;
    steps.push(resize(device, "image", size, &options).map(drop));
    steps.iter().filter(|step| step.is_err()).count()
}

/// Mostly in the tables, which are small and come first.
fn mutate(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..=random.below(6) {
        let reach = match random.below(4) {
            0 => 120,
            1 => 4096,
            _ => bytes.len(),
        };
        let at = random.index(reach.min(bytes.len()));
        match random.below(4) {
            0 => bytes[at] = random.byte(),
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = 0xff,
            _ => {
                let from = random.index(bytes.len());
                let length = 64.min(bytes.len() - from.max(at));
                bytes.copy_within(from..from + length, at);
            }
        }
    }
}

#[test]
fn random_changes_are_survived() {
    let scratch = Scratch::new("mutations");
    let path = scratch.file("image");
    let rounds = match std::env::var_os("DISKLET_TEST_FULL") {
        Some(_) => 4000,
        None => 60,
    };
    let (mut refused, mut tried) = (0, 0);
    for (number, options) in VARIANTS.iter().enumerate() {
        let mut random = Random::new(number as u64);
        make(&path, options, &mut random, 3);
        let sound = fs::read(&path).unwrap();
        for round in 0..rounds {
            let mut random = Random::new(number as u64 * 1_000_000 + round);
            let mut bytes = sound.clone();
            mutate(&mut bytes, &mut random);
            if random.below(8) == 0 {
                bytes.truncate(random.index(sound.len()));
            }
            let device = MemoryDevice::new(bytes);
            let start = Instant::now();
            refused += usize::from(exercise(&device, &mut random) > 0);
            tried += 1;
            let time = start.elapsed();
            assert!(
                time < Duration::from_secs(20),
                "{options} {round}: {time:?}"
            );
        }
    }
    // Neither all nor none: else the changes are too wild or too tame.
    assert!(
        refused > tried / 20 && refused < tried,
        "{refused} of {tried}"
    );
}
