//! How much memory conversions take: little, however large the disk is and
//! however small its clusters are.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "image/scratch.rs"]
mod scratch;

use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use scratch::{InUse, Scratch, wait_within};

const LIMIT: u64 = 96 << 20;

/// The most memory that a conversion has had. It is asked of the kernel when
/// the new file has its name and nothing is left to do but to tell of it, which
/// a full pipe holds up: a process that has ended has no memory to ask for.
fn peak(scratch: &Scratch, options: &str, from: &str) -> u64 {
    let _ = fs::remove_file(scratch.path("out"));
    let (mut told, full) = full_pipe();
    // Out of a pipe, with a bar before its name.
    let mut cat = from.strip_prefix("| ").map(|file| InUse(scratch.cat(file)));
    let pipe = cat.as_mut().and_then(|cat| cat.0.stdout.take());
    let name = if cat.is_some() { "-" } else { from };
    let mut command = scratch.command(&format!("convert {options} {name} out"));
    command.stdin(pipe.map_or_else(Stdio::null, Stdio::from));
    let mut disklet = InUse(command.stdout(full).spawn().unwrap());
    // The command has a copy of its end of the pipe.
    drop(command);
    wait_within(Duration::from_secs(120), "it is converted", || {
        scratch.path("out").exists() || has_ended(&disklet.0)
    });
    let status = fs::read_to_string(format!("/proc/{}/status", disklet.0.id())).unwrap();
    told.read_to_end(&mut Vec::new()).unwrap();
    assert!(disklet.0.wait().unwrap().success(), "{options} {from}");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kibibytes.parse::<u64>().unwrap() << 10
}

fn has_ended(child: &Child) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    stat.rsplit_once(") ").unwrap().1.starts_with('Z')
}

/// Whoever writes into it waits until it is read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while writer.write(&[0]).is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

/// Every thread has its buffers; how many there are must not matter.
fn takes_little(scratch: &Scratch, options: &str, from: &str) {
    for threads in [8, 64] {
        takes_little_with(scratch, &format!("-t {threads} {options}"), from);
    }
}

fn takes_little_with(scratch: &Scratch, options: &str, from: &str) {
    let peak = peak(scratch, options, from);
    // Less than a program takes at all would be a mistake of the measurement.
    assert!(peak > 1 << 20, "{options} {from}: {peak}");
    assert!(peak < LIMIT, "{options} {from}: {} MiB", peak >> 20);
}

/// A stream has its own threads.
fn takes_little_from_a_pipe(scratch: &Scratch, options: &str, from: &str) {
    takes_little_with(scratch, options, &format!("| {from}"));
}

/// Converts a disk in each direction.
fn in_each_direction(scratch: &Scratch) {
    takes_little(scratch, "-f raw -O raw", "disk.raw");
    for packing in ["", "-c zlib", "-c zstd"] {
        takes_little(scratch, &format!("-f raw -O qcow2 {packing}"), "disk.raw");
        fs::rename(scratch.path("out"), scratch.path("disk.qcow2")).unwrap();
        takes_little(scratch, "-f qcow2 -O raw", "disk.qcow2");
        takes_little_from_a_pipe(scratch, "-f qcow2 -O raw", "disk.qcow2");
    }
}

/// Noise at the beginning of every MiB, then text: packing noise takes long.
fn full_disk(scratch: &Scratch, mebibytes: usize) {
    let mut file = File::create(scratch.path("disk.raw")).unwrap();
    let mut state = 1u64;
    for number in 0..mebibytes {
        let mut bytes = Vec::with_capacity(1 << 20);
        while bytes.len() < 1 << 20 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let word = state ^ state >> 29;
            if bytes.len() < 1 << 17 {
                bytes.extend(word.to_le_bytes());
            } else {
                bytes.extend(format!("{number:8} {:>22}\n", word % 9).as_bytes());
            }
        }
        file.write_all(&bytes).unwrap();
    }
}

/// Data here and there, holes elsewhere.
fn sparse_disk(scratch: &Scratch, size: u64) {
    let file = File::create(scratch.path("disk.raw")).unwrap();
    file.set_len(size).unwrap();
    for number in 0..64 {
        file.write_all_at(&[7; 50_000], size / 64 * number + 12_345)
            .unwrap();
    }
}

#[test]
fn large_disks_take_little_memory() {
    let scratch = Scratch::new("memory-full");
    full_disk(&scratch, 160);
    in_each_direction(&scratch);
    // Holes would not come through a pipe, but be read out of it.
    takes_little_from_a_pipe(&scratch, "-f raw -O raw", "disk.raw");
}

#[test]
fn sparse_disks_take_little_memory() {
    let scratch = Scratch::new("memory-sparse");
    sparse_disk(&scratch, 1 << 40);
    in_each_direction(&scratch);
}

#[test]
fn small_clusters_take_little_memory() {
    let scratch = Scratch::new("memory-small");
    full_disk(&scratch, 64);
    for packing in ["", "-c zlib"] {
        let options = format!("-f raw -O qcow2 --cluster-size 512 {packing}");
        takes_little(&scratch, &options, "disk.raw");
        fs::rename(scratch.path("out"), scratch.path("disk.qcow2")).unwrap();
        takes_little(&scratch, "-f qcow2 -O raw", "disk.qcow2");
        takes_little_from_a_pipe(&scratch, "-f qcow2 -O raw", "disk.qcow2");
    }
}

/// A thread holds some of them, packed and not.
#[test]
fn large_clusters_take_little_memory() {
    let scratch = Scratch::new("memory-large");
    full_disk(&scratch, 160);
    for packing in ["", "-c zlib", "-c zstd"] {
        let options = format!("-f raw -O qcow2 --cluster-size 2M {packing}");
        takes_little(&scratch, &options, "disk.raw");
        fs::rename(scratch.path("out"), scratch.path("disk.qcow2")).unwrap();
        takes_little(&scratch, "-f qcow2 -O raw", "disk.qcow2");
        takes_little_from_a_pipe(&scratch, "-f qcow2 -O raw", "disk.qcow2");
    }
    // The last one is packed.
    let options = "-t 64 -f qcow2 -O qcow2 -c zlib --cluster-size 2M";
    takes_little_with(&scratch, options, "disk.qcow2");
}

/// As large as a disk with the smallest clusters can be.
#[test]
fn large_tables_take_little_memory() {
    let scratch = Scratch::new("memory-tables");
    sparse_disk(&scratch, 128 << 30);
    takes_little(&scratch, "-f raw -O qcow2 --cluster-size 512", "disk.raw");
    fs::rename(scratch.path("out"), scratch.path("disk.qcow2")).unwrap();
    takes_little(&scratch, "-f qcow2 -O raw", "disk.qcow2");
    takes_little_from_a_pipe(&scratch, "-f qcow2 -O raw", "disk.qcow2");
}
