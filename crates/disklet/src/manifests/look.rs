//! Looking at this machine for what a plan asks. Nothing is changed: paths are
//! asked what they are, links followed, and of devices that shall be persistent
//! roots it is read what is on them.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use disklet_block::device::{Caching, FileDevice};
use disklet_block::root;
use disklet_core::config::Config;
use disklet_core::facts::{DeviceNumber, Facts, FileId, PathFact, Questions};
use disklet_core::names::Sha256;
use disklet_core::root::RootFact;
use disklet_core::units::ByteSize;
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::host::Host;

/// Answers what this machine's paths and devices answer; images are the
/// store's to know.
#[must_use]
pub fn look(questions: &Questions, config: &Config) -> Facts {
    let mut facts = Facts {
        looked: true,
        ..Facts::default()
    };
    let host = Host(&config.host_root);
    for path in &questions.paths {
        let fact = what_is(host, Path::new(path));
        facts.paths.insert(path.clone(), fact);
    }
    for path in &questions.roots {
        if let Some(fact) = what_root(host, Path::new(path)) {
            facts.roots.insert(path.clone(), fact);
        }
    }
    if questions.raw_devices {
        for path in config
            .raw_devices
            .iter()
            .flat_map(|glob| expand(glob.as_str()))
        {
            let fact = what_is(host, Path::new(&path));
            facts.paths.insert(path, fact);
        }
    }
    facts
}

/// What a whitelist's glob matches. Names that are not UTF-8 cannot be in a
/// manifest either.
fn expand(pattern: &str) -> Vec<String> {
    let options = glob::MatchOptions {
        case_sensitive: true,
        require_literal_separator: true,
        require_literal_leading_dot: false,
    };
    glob::glob_with(pattern, options)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter_map(|path| path.to_str().map(str::to_owned))
        .collect()
}

fn what_is(host: Host<'_>, path: &Path) -> PathFact {
    match host.open(path, OFlags::PATH) {
        Ok(file) => what_file(&file),
        Err(Errno::ACCESS | Errno::PERM) => PathFact::Forbidden,
        Err(_) => PathFact::Missing,
    }
}

fn what_file(file: &File) -> PathFact {
    let Ok(meta) = file.metadata() else {
        return PathFact::Missing;
    };
    let kind = meta.file_type();
    if kind.is_block_device() {
        let number = device_number(meta.rdev());
        PathFact::Block {
            number,
            size: device_size(number),
        }
    } else if kind.is_file() {
        PathFact::File {
            size: ByteSize::from_bytes(meta.len()),
            id: Some(FileId {
                device: device_number(meta.dev()),
                inode: meta.ino(),
            }),
        }
    } else if kind.is_dir() {
        PathFact::Directory
    } else {
        PathFact::Other
    }
}

/// What is on a device; nothing if it may not be read, or is none.
fn what_root(host: Host<'_>, path: &Path) -> Option<RootFact> {
    let seen = host.open(path, OFlags::PATH).ok()?;
    if !matches!(what_file(&seen), PathFact::Block { .. }) {
        return None;
    }
    // The one that was seen, whatever the path leads to by now.
    let device = File::open(format!("/proc/self/fd/{}", seen.as_raw_fd())).ok()?;
    let device = FileDevice::new(device, path.display().to_string(), Caching::Buffered).ok()?;
    Some(root_fact(root::look(&device).ok()?))
}

/// In core's words.
#[must_use]
pub fn root_fact(found: root::Found) -> RootFact {
    let digest = Sha256::from_bytes;
    match found {
        root::Found::Blank => RootFact::Blank,
        root::Found::Foreign => RootFact::Foreign,
        root::Found::Virtlet(hash) => RootFact::Virtlet(digest(hash)),
        root::Found::Filling(hash) => RootFact::Filling(digest(hash)),
        root::Found::Complete(hash) => RootFact::Complete(digest(hash)),
        root::Found::Later(version) => RootFact::Later(version),
        root::Found::Damaged => RootFact::Damaged,
    }
}

/// Linux's encoding of a device number.
#[must_use]
pub fn device_number(device: u64) -> DeviceNumber {
    let part = |bits: u64| u32::try_from(bits & 0xffff_ffff).unwrap_or(u32::MAX);
    DeviceNumber {
        major: part((device >> 8) & 0xfff | (device >> 32) & !0xfff),
        minor: part(device & 0xff | (device >> 12) & !0xff),
    }
}

/// The kernel's word, which needs no right to open the device. It counts
/// sectors of 512 bytes, whatever the device's own are.
fn device_size(number: DeviceNumber) -> Option<ByteSize> {
    let sectors = fs::read_to_string(format!("/sys/dev/block/{number}/size")).ok()?;
    let sectors: u64 = sectors.trim().parse().ok()?;
    sectors.checked_mul(512).map(ByteSize::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_taken_apart_as_the_kernel_does() {
        let number = |device| device_number(device).to_string();
        assert_eq!(number(0x700), "7:0");
        assert_eq!(number(0xfd03), "253:3");
        assert_eq!(number(0x0010_0301), "3:257");
    }

    #[test]
    fn paths_are_told_apart() {
        assert_eq!(
            what_is(Host::OURS, Path::new("/nonexistent/x")),
            PathFact::Missing
        );
        assert_eq!(what_is(Host::OURS, Path::new("/dev/null")), PathFact::Other);
        assert_eq!(what_is(Host::OURS, Path::new("/dev")), PathFact::Directory);
        assert!(matches!(
            what_is(Host::OURS, Path::new("/proc/self/exe")),
            PathFact::File { .. }
        ));
    }
}
