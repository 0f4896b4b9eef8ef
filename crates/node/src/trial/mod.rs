//! `domainType: auto`: whether guests can run by hardware here. What libvirt
//! and /dev/kvm promise is not always so; a guest that really boots is.

mod boot;
mod disk;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use disklet_block::new_file::replace_file;
use disklet_core::config::{Config, HypervisorChoice};
use disklet_core::domain::Hypervisor;
use serde::{Deserialize, Serialize};

use crate::failure::{Result, on};
use crate::libvirt::Libvirt;

use boot::{Trial, boot};
pub(crate) use disk::sweep;

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

/// Whether guests can run by hardware; if not, why not.
#[derive(Debug)]
enum Hardware {
    Good,
    OfNoUse(String),
    Untried(String),
}

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
            let (hypervisor, name) = match boots_by_hardware(config, uri)? {
                Hardware::Good => (Hypervisor::Kvm, Some("kvm")),
                Hardware::OfNoUse(why) => {
                    tell_slow(&why);
                    (Hypervisor::Qemu, Some("qemu"))
                }
                // It may be otherwise tomorrow.
                Hardware::Untried(why) => {
                    tell_slow(&why);
                    (Hypervisor::Qemu, None)
                }
            };
            if let Some(name) = name {
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

fn tell_slow(why: &str) {
    let _ = writeln!(
        io::stderr(),
        "notice: guests run in software on this machine, which is many times slower: {why}"
    );
}

const KVM: &str = "/dev/kvm";

/// Boots by hardware and in software. There are machines on which hardware
/// works, but so slowly that no guest ever gets to its end: being there is not
/// enough.
fn boots_by_hardware(config: &Config, uri: Option<&str>) -> Result<Hardware> {
    if !Path::new(KVM).exists() {
        return Ok(Hardware::Untried(format!("there is no {KVM}")));
    }
    // QEMU runs as whoever runs the daemon: as the user who asks.
    if Libvirt::open(uri)?.qemu_user()?.is_none()
        && let Err(error) = File::options().read(true).write(true).open(KVM)
    {
        return Ok(Hardware::Untried(format!(
            "{KVM} cannot be opened: {error}\n  help: have the administrator put you into the \
             group that may, on Debian kvm"
        )));
    }
    let software = match boot(Hypervisor::Qemu, config, uri)? {
        Trial::Ended(time) => time,
        Trial::Failed(why) => {
            return Ok(Hardware::Untried(format!("a trial boot has failed: {why}")));
        }
    };
    let hardware = match boot(Hypervisor::Kvm, config, uri)? {
        Trial::Ended(time) => time,
        Trial::Failed(why) => {
            return Ok(Hardware::OfNoUse(format!(
                "a trial boot by hardware ({KVM}) has failed: {why}"
            )));
        }
    };
    // Most of it is QEMU's own start, which is the same for both.
    let enough = software * 3 + Duration::from_millis(500);
    if hardware <= enough {
        return Ok(Hardware::Good);
    }
    Ok(Hardware::OfNoUse(format!(
        "a trial boot by hardware ({KVM}) took {:.1} seconds, and in software {:.1}",
        hardware.as_secs_f64(),
        software.as_secs_f64()
    )))
}
