//! A new filesystem, made in a file that has no name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use disklet_block::convert::Watch;
use disklet_block::new_file::{directory_of, scratch_file};
use disklet_block::sys::end_with_parent;
use disklet_core::units::ByteSize;
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use signal_hook::consts::SIGINT;

use super::partitions::{Partition, write_table};
use crate::cut::{self, Cut};
use crate::failure::{Failure, Result, on};

/// A disk with one partition and ext4 on it, for a volume to take what is not
/// zero.
pub(super) fn disk_for(file: &Path, size: u64, watch: &dyn Watch) -> Result<File> {
    if size > FITS_MEMORY {
        tell(file, size);
    }
    let raw = scratch(file, size).map_err(|error| on(file, "made", error))?;
    raw.set_len(size)
        .map_err(|error| too_large(file, size, error))?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let partition =
        write_table(&raw, size, &name).map_err(|error| on(file, "partitioned", error))?;
    make_filesystem(&raw, partition, watch)
        .map_err(|failure| failure.of(&file.display().to_string()))?;
    Ok(raw)
}

/// Whoever waits wants to know for what.
fn tell(file: &Path, size: u64) {
    let (file, size) = (file.display(), ByteSize::from_bytes(size));
    let _ = writeln!(io::stderr(), "{file}: making a volume of {size}");
}

/// Up to here, what a new filesystem has written takes 16 MiB at most; beyond, it
/// also takes its time.
const FITS_MEMORY: u64 = 1 << 40;

/// In memory rather than beside the file where it can be: mke2fs flushes what it
/// has made, which nobody needs.
fn scratch(file: &Path, size: u64) -> io::Result<File> {
    if size <= FITS_MEMORY {
        let memory = rustix::fs::memfd_create("filesystem", MemfdFlags::CLOEXEC)?;
        Ok(File::from(memory))
    } else {
        scratch_file(directory_of(file)?)
    }
}

fn too_large(file: &Path, size: u64, error: io::Error) -> Failure {
    if error.raw_os_error() != Some(Errno::FBIG.raw_os_error()) {
        return on(file, "made", error);
    }
    let directory = file.parent().unwrap_or(Path::new("/")).display();
    Failure::new(format!(
        "{}: {} are more than a file can have in {directory}",
        file.display(),
        ByteSize::from_bytes(size)
    ))
    .help("ask for less capacity, or have the pool on a filesystem with larger files, such as XFS")
}

/// Soon enough for whoever has changed their mind.
const LOOK: Duration = Duration::from_millis(50);

fn make_filesystem(raw: &File, partition: Partition, watch: &dyn Watch) -> Result<()> {
    let mut mke2fs = start(raw, partition)?;
    cut::boundary(Cut::Formatting);
    let ended = when_ended(mke2fs.stderr.take());
    let said = loop {
        match ended.recv_timeout(LOOK) {
            Ok(said) => break said,
            Err(RecvTimeoutError::Disconnected) => break String::new(),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if watch.cancelled() {
            let _ = mke2fs.kill().and_then(|()| mke2fs.wait());
            return Err(Failure::cancelled());
        }
    };
    let status = mke2fs
        .wait()
        .map_err(|error| Failure::new("mke2fs is lost").because(error))?;
    match status.signal() {
        None if status.success() => Ok(()),
        // Ctrl-C on a terminal is for it as well.
        Some(SIGINT) => Err(Failure::cancelled()),
        _ => Err(Failure::new(format!(
            "mke2fs has failed ({status}): {}",
            said.trim()
        ))),
    }
}

fn start(raw: &File, partition: Partition) -> Result<Child> {
    let path = format!("/proc/{}/fd/{}", std::process::id(), raw.as_raw_fd());
    let mut mke2fs = Command::new("mke2fs");
    mke2fs
        .args(["-q", "-F", "-t", "ext4", "-E"])
        .arg(format!(
            "offset={},lazy_itable_init=1,lazy_journal_init=1",
            partition.begin
        ))
        .arg(path)
        .arg(format!("{}k", partition.length / 1024))
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // Nobody wants what it makes when we have been killed.
    end_with_parent(&mut mke2fs);
    mke2fs.spawn().map_err(|error| {
        Failure::new("mke2fs cannot be started")
            .because(error)
            .help("install e2fsprogs")
    })
}

/// Gets what a program has said, when it has ended.
fn when_ended(said: Option<ChildStderr>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut said) = said {
            let _ = said.read_to_end(&mut text);
        }
        let _ = sender.send(String::from_utf8_lossy(&text).into_owned());
    });
    receiver
}
