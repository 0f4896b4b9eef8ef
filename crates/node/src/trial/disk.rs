//! The disk of a trial boot.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use disklet_core::config::Config;
use rustix::fs::FlockOperation;

use crate::failure::{Result, on};
use crate::record::same_file;

/// The disk of the trial; it goes with this. It is locked as long as somebody
/// uses it.
pub(super) struct TrialDisk {
    pub(super) path: PathBuf,
    _lock: File,
}

impl TrialDisk {
    pub(super) fn write(config: &Config) -> Result<Self> {
        let directory = Path::new(&config.data_dir);
        let path = directory.join(format!("{BEGIN}{}{END}", std::process::id()));
        let failed = |error| on(&path, "written", error);
        fs::create_dir_all(directory).map_err(failed)?;
        loop {
            let mut disk = File::create(&path).map_err(failed)?;
            rustix::fs::flock(&disk, FlockOperation::LockExclusive)
                .map_err(|error| failed(error.into()))?;
            // Who sweeps may have been faster than the lock.
            if same_file(&disk, &path) {
                disk.write_all(&switches_itself_off()).map_err(failed)?;
                return Ok(Self { path, _lock: disk });
            }
        }
    }
}

impl Drop for TrialDisk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// How the names of trial disks begin and end.
const BEGIN: &str = "trial-";
const END: &str = ".img";

/// Removes trial disks that a crash has left.
pub(crate) fn sweep(data_dir: &str) -> Result<()> {
    for entry in fs::read_dir(data_dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_trial = |name: &str| name.starts_with(BEGIN) && name.ends_with(END);
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if !is_file || !name.to_str().is_some_and(is_trial) {
            continue;
        }
        let path = entry.path();
        let Ok(disk) = File::open(&path) else {
            continue;
        };
        // Held while it is removed, so that nobody begins to use it meanwhile.
        if rustix::fs::flock(&disk, FlockOperation::NonBlockingLockExclusive).is_ok() {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(on(&path, "removed", error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// A boot sector that has the BIOS switch the machine off (APM 1.2).
fn switches_itself_off() -> Vec<u8> {
    let code: &[u8] = &[
        0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, // no segments, a stack
        0xb8, 0x01, 0x53, 0x31, 0xdb, 0xcd, 0x15, // connect
        0xb8, 0x0e, 0x53, 0x31, 0xdb, 0xb9, 0x02, 0x01, 0xcd, 0x15, // version 1.2
        0xb8, 0x07, 0x53, 0xbb, 0x01, 0x00, 0xb9, 0x03, 0x00, 0xcd, 0x15, // off
        0xf4, 0xeb, 0xfd, // else nothing, for ever
    ];
    let mut disk = vec![0; 1 << 20];
    disk[..code.len()].copy_from_slice(code);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_that_goes_on_keeps_its_disk() {
        let data = std::env::temp_dir().join(format!("disklet-trial-{}", std::process::id()));
        let config = Config::default();
        let config = config.in_directories(data.display().to_string(), "/nonexistent".to_owned());
        let disk = TrialDisk::write(&config).unwrap();
        sweep(&config.data_dir).unwrap();
        assert_eq!(fs::read(&disk.path).unwrap(), switches_itself_off());
        // As a crash leaves it.
        let left = data.join("trial-x.img");
        fs::write(&left, "").unwrap();
        sweep(&config.data_dir).unwrap();
        assert!(!left.exists());
        drop(disk);
        fs::remove_dir(&data).unwrap();
    }
}
