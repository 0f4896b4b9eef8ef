use std::os::unix::fs::FileExt;

use super::*;
use crate::convert::Unwatched;
use crate::device::{Caching, Fault, FileDevice, MemoryDevice, Request};
use crate::error::ErrorKind;
use crate::gate::NoImplicitFiles;
use crate::image::{Format, Image};
use crate::new_file::scratch_file;

const OLD: ImageHash = [1; 32];
const NEW: ImageHash = [2; 32];
const SIZE: usize = 4 << 20;
const DATA: usize = 1 << 20;

/// An image with data, a hole and data.
fn image(byte: u8) -> Vec<u8> {
    let mut bytes = vec![byte; 600_064];
    bytes[100_000..400_000].fill(0);
    bytes
}

fn open(byte: u8) -> Image {
    let file = scratch_file(&std::env::temp_dir()).unwrap();
    file.write_all_at(&image(byte), 0).unwrap();
    let device = FileDevice::new(file, "image", Caching::Buffered).unwrap();
    Image::open(device, Format::Raw, &NoImplicitFiles).unwrap()
}

/// What happens to a device at every start; the deciding is core's.
fn bring_up(
    device: &MemoryDevice,
    (byte, hash): (u8, ImageHash),
    overwrite: bool,
) -> Result<&'static str, Found> {
    let found = look(device).unwrap();
    match found {
        Found::Complete(there) if there == hash => return Ok("kept"),
        Found::Blank | Found::Filling(_) => {}
        _ if overwrite => {}
        _ => return Err(found),
    }
    fill(device, &open(byte), &hash, Behind::Discard, 1, &Unwatched).unwrap();
    Ok("filled")
}

fn filled(byte: u8, hash: ImageHash) -> MemoryDevice {
    let device = MemoryDevice::new(vec![0xaa; SIZE]);
    bring_up(&device, (byte, hash), true).unwrap();
    device
}

fn holds(device: &MemoryDevice, byte: u8) -> bool {
    let image = image(byte);
    device.contents()[DATA..DATA + image.len()] == image
}

#[test]
fn a_blank_device_is_filled_once() {
    let device = MemoryDevice::zeroed(SIZE);
    assert_eq!(look(&device).unwrap(), Found::Blank);
    assert_eq!(bring_up(&device, (7, OLD), false), Ok("filled"));
    assert!(holds(&device, 7));
    assert_eq!(bring_up(&device, (7, OLD), false), Ok("kept"));
}

#[test]
fn data_is_seen_wherever_it_is() {
    for at in [1080, SIZE - 512, SIZE / 2] {
        let mut bytes = vec![0; SIZE];
        bytes[at] = 0x53;
        let device = MemoryDevice::new(bytes);
        assert_eq!(look(&device).unwrap(), Found::Foreign, "{at}");
    }
    assert_eq!(look(&MemoryDevice::zeroed(100)).unwrap(), Found::Blank);
    assert_eq!(look(&MemoryDevice::zeroed(0)).unwrap(), Found::Blank);
}

#[test]
fn nothing_of_the_earlier_shows_in_and_at_the_edges_behind_the_image() {
    let contents = filled(7, OLD).contents();
    let end = DATA + image(7).len();
    let rest = &contents[end..];
    assert!(rest[..1 << 20].iter().all(|byte| *byte == 0));
    assert!(rest[rest.len() - (1 << 20)..].iter().all(|byte| *byte == 0));
    assert!(holds(&MemoryDevice::new(contents), 7));
}

#[test]
fn headers_are_told_apart() {
    let header = |version: u16| {
        let mut bytes = vec![9; SIZE];
        bytes[..8].copy_from_slice(&[0x26, 0x3d, 0xbe, 0x52, 0xba, 0x57, 0x67, 0x02]);
        bytes[8..10].copy_from_slice(&version.to_be_bytes());
        bytes[10..42].copy_from_slice(&OLD);
        look(&MemoryDevice::new(bytes)).unwrap()
    };
    assert_eq!(header(0), Found::Damaged);
    assert_eq!(header(1), Found::Virtlet(OLD));
    assert_eq!(header(2), Found::Damaged);
    assert_eq!(header(3), Found::Later(3));
}

#[test]
fn a_device_that_is_too_small_stays_as_it_is() {
    let small = MemoryDevice::new(vec![3; DATA + 600_063]);
    let error = fill(&small, &open(7), &OLD, Behind::Keep, 1, &Unwatched).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(small.contents(), vec![3; DATA + 600_063]);
}

/// However far a fill with a larger image came, and however often it was tried
/// since: none of its bytes is behind the smaller one in the end.
#[test]
fn nothing_of_a_fill_that_was_cut_off_is_left_behind_a_smaller_image() {
    const LARGE: ImageHash = [3; 32];
    let large = |device: &MemoryDevice| {
        let file = scratch_file(&std::env::temp_dir()).unwrap();
        file.write_all_at(&[0xee; 2 << 20], 0).unwrap();
        let file = FileDevice::new(file, "large", Caching::Buffered).unwrap();
        let image = Image::open(file, Format::Raw, &NoImplicitFiles).unwrap();
        fill(device, &image, &LARGE, Behind::Keep, 1, &Unwatched)
    };
    let cut_at = |device: &MemoryDevice, cut: u64| {
        let mut writes = 0;
        device.set_rule(move |_, request| {
            let is_write = !matches!(request, Request::Read(..));
            writes += u64::from(is_write);
            (is_write && writes > cut).then_some(Fault::Fail)
        });
    };
    // Behind all of that there may be somebody's data that samples do not show.
    let foreign = DATA + (3 << 20) + 4097;
    let mut bytes = vec![0; 8 << 20];
    bytes[foreign] = 0x53;
    let mut begun = 0;
    for first in 0.. {
        let device = MemoryDevice::new(bytes.clone());
        cut_at(&device, first);
        let _ = large(&device);
        if look(&device).unwrap() == Found::Complete(LARGE) {
            break;
        }
        let left = device.contents();
        begun += u32::from(left.contains(&0xee));
        for second in 0.. {
            let device = MemoryDevice::new(left.clone());
            cut_at(&device, second);
            let small = || fill(&device, &open(7), &OLD, Behind::Keep, 1, &Unwatched);
            let done = small().is_ok();
            device.set_rule(|_, _| None);
            small().unwrap();
            let contents = device.contents();
            assert!(
                holds(&device, 7) && !contents.contains(&0xee),
                "{first}, {second}"
            );
            assert_eq!(look(&device).unwrap(), Found::Complete(OLD));
            assert_eq!(contents[foreign], 0x53, "{first}, {second}");
            if done {
                break;
            }
        }
    }
    assert!(begun > 1, "cut {begun} times in the midst of the image");
}

/// Cuts the power at every request of `before`'s re-imaging, with every one of
/// some choices of what the cut leaves, and hands over what is there then.
fn at_every_cut(before: &MemoryDevice, mut check: impl FnMut(&MemoryDevice)) {
    let mut cut = 0;
    loop {
        let device = MemoryDevice::new(before.contents());
        device.set_rule(move |number, request| {
            let is_read = matches!(request, Request::Read(..));
            (number >= cut && !is_read).then_some(Fault::Fail)
        });
        let outcome = fill(&device, &open(8), &NEW, Behind::Discard, 1, &Unwatched);
        for choice in [
            0_u64,
            u64::MAX,
            0x5555_5555_5555_5555,
            0xcccc_cccc_cccc_cccc,
        ] {
            check(&device.after_power_cut(|index| choice >> (index % 64) & 1 == 1));
        }
        if outcome.is_ok() {
            break;
        }
        cut += 1;
    }
    assert!(cut > 5, "only {cut} cuts");
}

#[test]
fn a_fill_that_was_cut_off_is_done_again() {
    at_every_cut(&MemoryDevice::zeroed(SIZE), |left| {
        bring_up(left, (8, NEW), false).unwrap();
        assert!(holds(left, 8));
    });
}

#[test]
fn a_re_image_that_was_cut_off_is_done_again_or_never_began() {
    let before = filled(7, OLD);
    at_every_cut(&before, |left| {
        // The user has taken the permission back, and wants the new image.
        match bring_up(left, (8, NEW), false) {
            Ok(_) => assert!(holds(left, 8)),
            Err(found) => {
                assert_eq!(found, Found::Complete(OLD));
                assert_eq!(left.contents(), before.contents());
            }
        }
    });
}

#[test]
fn a_revert_finds_the_old_disk_whole_or_fills_it_anew() {
    let before = filled(7, OLD);
    at_every_cut(&before, |left| {
        match bring_up(left, (7, OLD), false) {
            // Back on the old disk, untouched; or filled from the old image.
            Ok(_) => assert!(holds(left, 7)),
            Err(found) => assert!(found == Found::Complete(NEW) && holds(left, 8)),
        }
    });
}

#[test]
fn what_would_be_overwritten_is_looked_at_byte_by_byte() {
    let image = image(7).len();
    let with = |at: usize| {
        let mut bytes = vec![0; SIZE];
        bytes[at] = 1;
        MemoryDevice::new(bytes)
    };
    let unused = |device: &MemoryDevice| is_unused(device, image as u64, &Unwatched).unwrap();
    assert!(unused(&MemoryDevice::zeroed(SIZE)));
    // Between two samples, in the image's last byte, and at either edge behind it.
    for at in [DATA + 5001, DATA + image - 1, DATA + image, SIZE - 1] {
        assert!(!unused(&with(at)), "{at}");
    }
    // What stays is nobody's business.
    let device = with(SIZE - (1 << 20) - 1);
    assert!(unused(&device));
    fill(&device, &open(7), &OLD, Behind::Keep, 1, &Unwatched).unwrap();
    assert_eq!(device.contents()[SIZE - (1 << 20) - 1], 1);
}
