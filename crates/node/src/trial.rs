//! `domainType: auto`: whether guests can run by hardware here. What libvirt
//! and /dev/kvm promise is not always so; a guest that really boots is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use disklet_block::new_file::replace_file;
use disklet_core::config::{Config, HypervisorChoice};
use disklet_core::domain::Hypervisor;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::failure::{Failure, Result, on};
use crate::libvirt::{End, Event, Libvirt};
use crate::record::same_file;

/// What a trial has shown, and for which machine.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Outcome {
    version: u32,
    /// `kvm` or `qemu`.
    domain_type: String,
    /// Another kernel or another QEMU may do better or worse.
    kernel: String,
    emulator: String,
    emulator_size: u64,
}

const VERSION: u32 = 1;

/// How long a BIOS takes at most to start one sector of code.
const PATIENCE: Duration = Duration::from_secs(10);

/// Puts the answer into the configuration. Asks the machine once, and
/// remembers.
pub(crate) fn decide(config: &mut Config, uri: Option<&str>) -> Result<()> {
    if config.hypervisor != HypervisorChoice::Auto {
        return Ok(());
    }
    let path = Path::new(&config.data_dir).join("domain-type.json");
    let mut outcome = this_machine(&config.emulator);
    let known = fs::read(&path).ok();
    let known = known.and_then(|text| serde_json::from_slice::<Outcome>(&text).ok());
    let hypervisor = match known {
        Some(known) if known.is_about(&outcome) && known.domain_type == "kvm" => Hypervisor::Kvm,
        Some(known) if known.is_about(&outcome) && known.domain_type == "qemu" => Hypervisor::Qemu,
        _ => {
            let shown = boots_by_hardware(config, uri)?;
            let (hypervisor, name) = match shown {
                Some(true) => (Hypervisor::Kvm, "kvm"),
                Some(false) | None => (Hypervisor::Qemu, "qemu"),
            };
            if hypervisor == Hypervisor::Qemu {
                tell_slow();
            }
            // What could not be tried may be otherwise tomorrow.
            if shown.is_some() {
                name.clone_into(&mut outcome.domain_type);
                outcome.write(&path)?;
            }
            hypervisor
        }
    };
    config.hypervisor = HypervisorChoice::Fixed(hypervisor);
    Ok(())
}

fn this_machine(emulator: &str) -> Outcome {
    let kernel = rustix::system::uname();
    Outcome {
        version: VERSION,
        domain_type: String::new(),
        kernel: kernel.release().to_string_lossy().into_owned(),
        emulator: emulator.to_owned(),
        emulator_size: fs::metadata(emulator).map_or(0, |meta| meta.len()),
    }
}

impl Outcome {
    fn is_about(&self, machine: &Self) -> bool {
        (self.version, &self.kernel) == (machine.version, &machine.kernel)
            && (&self.emulator, self.emulator_size) == (&machine.emulator, machine.emulator_size)
    }

    fn write(&self, path: &Path) -> Result<()> {
        let failed = |error| on(path, "written", error);
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(failed)?;
        }
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        replace_file(path, &text, 0o644).map_err(failed)
    }
}

fn tell_slow() {
    let _ = writeln!(
        io::stderr(),
        "notice: guests run in software on this machine, which is many times slower: \
         hardware support (/dev/kvm) is not there, or is of no use"
    );
}

/// Boots one sector of code by hardware and in software, which switches the
/// machine off again; whether hardware is any good, or nothing if that could not
/// be tried. There are machines on which it works, but so slowly that no guest
/// ever gets to its end: being there is not enough.
fn boots_by_hardware(config: &Config, uri: Option<&str>) -> Result<Option<bool>> {
    if !Path::new("/dev/kvm").exists() {
        return Ok(None);
    }
    let Some(software) = time_of(Hypervisor::Qemu, config, uri)? else {
        return Ok(None);
    };
    let hardware = time_of(Hypervisor::Kvm, config, uri)?;
    // Most of it is QEMU's own start, which is the same for both.
    let enough = software * 3 + Duration::from_millis(500);
    Ok(Some(hardware.is_some_and(|hardware| hardware <= enough)))
}

/// How long a trial takes; nothing if it does not get to its end.
fn time_of(kind: Hypervisor, config: &Config, uri: Option<&str>) -> Result<Option<Duration>> {
    let (libvirt, events) = Libvirt::open_listening(uri)?;
    let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, &std::process::id().to_be_bytes());
    let disk = TrialDisk::write(config)?;
    let xml = trial_xml(kind, uuid, &config.emulator, &disk.path);
    let begun = Instant::now();
    if libvirt.run_once(&xml).is_err() {
        return Ok(None);
    }
    loop {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        match events.receiver.recv_timeout(left) {
            Ok(Event::Stopped(whose, end)) if whose == uuid => {
                return Ok((end == End::Shutdown).then(|| begun.elapsed()));
            }
            Ok(Event::Lost) => {
                return Err(Failure::new("libvirt went away during a trial boot"));
            }
            Ok(_) => {}
            Err(_) => {
                libvirt.remove(uuid)?;
                return Ok(None);
            }
        }
    }
}

/// The disk of the trial; it goes with this. It is locked as long as somebody
/// uses it.
struct TrialDisk {
    path: PathBuf,
    _lock: File,
}

impl TrialDisk {
    fn write(config: &Config) -> Result<Self> {
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

fn trial_xml(kind: Hypervisor, uuid: Uuid, emulator: &str, disk: &Path) -> String {
    let kind = match kind {
        Hypervisor::Kvm => "kvm",
        Hypervisor::Qemu => "qemu",
    };
    let escape = |text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        text.replace('\'', "&apos;")
    };
    format!(
        "<domain type='{kind}'><name>disklet-trial-{uuid}</name><uuid>{uuid}</uuid>\
         <memory unit='MiB'>32</memory><os><type arch='x86_64' machine='pc'>hvm</type></os>\
         <features><acpi/></features><on_poweroff>destroy</on_poweroff>\
         <devices><emulator>{}</emulator><disk type='file' device='disk'>\
         <driver name='qemu' type='raw'/><source file='{}'><seclabel model='dac' relabel='no'/></source>\
         <backingStore/><target dev='vda' bus='virtio'/><readonly/></disk>\
         <controller type='usb' model='none'/><memballoon model='none'/></devices></domain>",
        escape(emulator),
        escape(&disk.display().to_string())
    )
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
