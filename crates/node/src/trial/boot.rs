//! One trial boot.

use std::path::Path;
use std::time::{Duration, Instant};

use disklet_core::config::Config;
use disklet_core::domain::Hypervisor;
use uuid::Uuid;

use super::disk::TrialDisk;
use crate::failure::{Failure, Result};
use crate::libvirt::{End, Event, Libvirt};

/// How a trial has gone.
#[derive(Debug)]
pub(super) enum Trial {
    /// It got to its end in this time.
    Ended(Duration),
    /// It did not, for this reason.
    Failed(String),
}

/// How long a BIOS takes at most to start one sector of code.
const PATIENCE: Duration = Duration::from_secs(10);

/// Boots one sector of code, which switches the machine off again.
pub(super) fn boot(kind: Hypervisor, config: &Config, uri: Option<&str>) -> Result<Trial> {
    let (libvirt, events) = Libvirt::open_listening(uri)?;
    let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, &std::process::id().to_be_bytes());
    let disk = TrialDisk::write(config)?;
    // A user's own libvirt has no labels, and refuses to be told so.
    let label = match libvirt.qemu_user()? {
        Some(_) => "<seclabel model='dac' relabel='no'/>",
        None => "",
    };
    let xml = trial_xml(kind, uuid, &config.emulator, &disk.path, label);
    let begun = Instant::now();
    if let Err(failure) = libvirt.run_once(&xml) {
        return Ok(Trial::Failed(failure.to_string()));
    }
    loop {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        match events.receiver.recv_timeout(left) {
            Ok(Event::Stopped(whose, End::Shutdown)) if whose == uuid => {
                return Ok(Trial::Ended(begun.elapsed()));
            }
            Ok(Event::Stopped(whose, end)) if whose == uuid => {
                return Ok(Trial::Failed(format!("its guest {}", end.in_words())));
            }
            Ok(Event::Lost) => {
                return Err(Failure::new("libvirt went away during a trial boot"));
            }
            Ok(_) => {}
            Err(_) => {
                libvirt.remove(uuid)?;
                let seconds = PATIENCE.as_secs();
                let late = format!("its guest had not ended after {seconds} seconds");
                return Ok(Trial::Failed(late));
            }
        }
    }
}

fn trial_xml(kind: Hypervisor, uuid: Uuid, emulator: &str, disk: &Path, label: &str) -> String {
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
         <driver name='qemu' type='raw'/><source file='{}'>{label}</source>\
         <backingStore/><target dev='vda' bus='virtio'/><readonly/></disk>\
         <controller type='usb' model='none'/><memballoon model='none'/></devices></domain>",
        escape(emulator),
        escape(&disk.display().to_string())
    )
}
