//! Disks with holes, which are sent as frames.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Output};

use super::proxy::{Fault, Proxy};
use super::scratch::Scratch;
use super::serving::Serving;

const MIB: u64 = 1 << 20;

/// A disk with holes between what nobody makes smaller.
fn disk(scratch: &Scratch, mebibytes: u64, data: &[(u64, usize)]) {
    let file = File::create(scratch.path("disk.raw")).unwrap();
    file.set_len(mebibytes * MIB).unwrap();
    for (at, length) in data {
        let noise: Vec<u8> = (0..u32::try_from(length * 1024 * 1024 / 4).unwrap())
            .flat_map(|word| {
                word.wrapping_add(7)
                    .wrapping_mul(0x9e37_79b9)
                    .rotate_left(9)
                    .to_le_bytes()
            })
            .collect();
        file.write_all_at(&noise, at * MIB).unwrap();
    }
}

fn send(scratch: &Scratch, address: &str, more: &str) -> Output {
    let url = format!("http://{address}/upload");
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args(["upload", "disk.raw", &url, "--token-file", "token"]);
    command.args(more.split_whitespace());
    command.current_dir(scratch.path("")).output().unwrap()
}

fn received(serving: &Serving) -> u64 {
    let metrics = serving.ask("GET /metrics HTTP/1.1", b"").body;
    let lines = metrics.lines();
    let mut counts = lines.filter_map(|it| it.strip_prefix("disklet_upload_received_bytes_total "));
    counts.next().unwrap().parse().unwrap()
}

#[test]
fn holes_are_hardly_sent() {
    let scratch = Scratch::new("upload-holes");
    // The last frame is a short one, and a hole as well.
    disk(&scratch, 202, &[(3, 2), (141, 1)]);
    let mut sizes = Vec::new();
    for (more, least, most) in [
        ("", 0, 4 * MIB),
        ("--compress zstd", 0, 4 * MIB),
        ("--compress none", 202 * MIB, 603 * MIB),
    ] {
        let serving = Serving::start(&scratch, "out.img", "--keep-serving");
        let output = send(&scratch, &serving.address, more);
        assert!(output.status.success(), "{more}: {output:?}");
        let received = received(&serving);
        assert!((least..=most).contains(&received), "{more}: {received}");
        sizes.push(received);
        scratch.tool("cmp", "disk.raw out.img");
        drop(serving);
        fs::remove_file(scratch.path("out.img")).unwrap();
        fs::remove_dir_all(scratch.path("state")).unwrap();
    }
    assert_eq!(sizes[0], sizes[1]);
}

/// A disk of a hole and nothing else is one, too; what is no raw disk goes as it is.
#[test]
fn what_has_no_data_and_what_is_not_raw_is_sent() {
    let scratch = Scratch::new("upload-odd-holes");
    for bytes in [512, 4 * MIB, 12 * MIB + 512] {
        let file = File::create(scratch.path("disk.raw")).unwrap();
        file.set_len(bytes).unwrap();
        let serving = Serving::start(&scratch, "out.img", "");
        let output = send(&scratch, &serving.address, "--compress zstd");
        assert!(output.status.success(), "{bytes}: {output:?}");
        scratch.tool("cmp", "disk.raw out.img");
        drop(serving);
        fs::remove_file(scratch.path("out.img")).unwrap();
        fs::remove_dir_all(scratch.path("state")).unwrap();
    }
    disk(&scratch, 5, &[(2, 1)]);
    scratch.tool("mv", "disk.raw plain.raw");
    scratch.qemu("convert -f raw -O qcow2 plain.raw disk.raw");
    let serving = Serving::start(&scratch, "out.img", "--keep-serving");
    let output = send(&scratch, &serving.address, "--compress zstd");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        received(&serving),
        fs::metadata(scratch.path("disk.raw")).unwrap().len()
    );
    scratch.tool("cmp", "plain.raw out.img");
}

#[test]
fn what_is_lost_goes_on_at_a_frame() {
    let scratch = Scratch::new("upload-frames-lost");
    disk(&scratch, 200, &[(0, 24), (150, 24)]);
    let serving = Serving::start(&scratch, "out.img", "--keep-serving");
    let cuts = [Fault::Cut(18 << 20), Fault::Cut(10 << 20)];
    let proxy = Proxy::before(&serving.address, &cuts, &[]);
    let output = send(&scratch, &proxy.address, "");
    assert!(output.status.success(), "{output:?}");
    assert!(proxy.is_spent());
    scratch.tool("cmp", "disk.raw out.img");
    let received = received(&serving);
    // All of it once, and what of a frame came in vain.
    assert!(received > 48 * MIB && received < 60 * MIB, "{received}");
    // How large the disk is is told before any of it comes.
    drop(serving);
    fs::remove_dir_all(scratch.path("state")).unwrap();
    let small = Serving::start(&scratch, "small.img", "--max-size 100Mi");
    let output = send(&scratch, &small.address, "");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("status 413"), "{told}");
}
