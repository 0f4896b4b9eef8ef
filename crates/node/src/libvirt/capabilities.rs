//! What libvirt can run, and as whom.

use super::Libvirt;
use crate::failure::{Failure, Result};

/// Who QEMU runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QemuUser {
    pub(crate) user: u32,
    pub(crate) group: u32,
}

impl Libvirt {
    /// Who QEMU runs as; nothing if that is whoever runs the daemon.
    pub(crate) fn qemu_user(&self) -> Result<Option<QemuUser>> {
        let capabilities = self.connect.capabilities().map_err(|error| {
            Failure::new("libvirt does not tell its capabilities").because(error)
        })?;
        Ok(qemu_user_in(&capabilities))
    }

    /// Refuses an emulator that libvirt cannot use.
    pub(crate) fn demand_emulator(&self, emulator: &str) -> Result<()> {
        let any = None;
        self.connect
            .domain_capabilities(Some(emulator), any, any, any, 0)
            .map(drop)
            .map_err(|error| {
                if !self.is_alive() {
                    return Failure::new(format!("it was asked about the emulator {emulator}"))
                        .because(error)
                        .of_lost_daemon()
                        .help("nothing was begun: say it again once libvirtd answers");
                }
                Failure::new(format!("libvirt cannot use the emulator {emulator}"))
                    .because(error)
                    .help("install QEMU (Debian: qemu-system-x86), or correct emulator in the configuration (--config)")
            })
    }
}

/// The base label of the security model `dac`, such as `+64055:+64055`.
fn qemu_user_in(capabilities: &str) -> Option<QemuUser> {
    let (_, dac) = capabilities.split_once("<model>dac</model>")?;
    let (dac, _) = dac.split_once("</secmodel>")?;
    let (_, label) = dac.split_once("<baselabel")?;
    let (label, _) = label.split_once("</baselabel>")?;
    let (_, label) = label.split_once('>')?;
    let (user, group) = label.split_once(':')?;
    let number = |text: &str| text.trim().trim_start_matches('+').parse().ok();
    Some(QemuUser {
        user: number(user)?,
        group: number(group)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_of_qemu_is_found_in_the_capabilities() {
        let text = "<host><secmodel><model>apparmor</model><doi>0</doi></secmodel>\
            <secmodel><model>dac</model><doi>0</doi>\
            <baselabel type='kvm'>+64055:+107</baselabel>\
            <baselabel type='qemu'>+64055:+107</baselabel></secmodel></host>";
        let user = QemuUser {
            user: 64055,
            group: 107,
        };
        assert_eq!(qemu_user_in(text), Some(user));
        assert_eq!(qemu_user_in("<host/>"), None);
    }
}
