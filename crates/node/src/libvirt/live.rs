//! Disks of domains that run.

use uuid::Uuid;
use virt::domain::Domain;
use virt::sys;

use super::{DomainDisk, Events, Libvirt, disks_in, events, ffi};
use crate::failure::{Failure, Result};

/// A namespace of metadata that no domain has.
const NOBODYS: &str = "https://disklet.io/xmlns/none";

impl Libvirt {
    /// Has what guests let go of told as well.
    pub(crate) fn tell_of_devices(&self, events: &Events) -> Result<()> {
        events::subscribe_to_devices(&self.connect, &events.sender)
    }

    /// The disk of a domain at a target, as it runs.
    pub(crate) fn disk_at(&self, uuid: Uuid, target: &str) -> Result<Option<DomainDisk>> {
        let mut disks = self.disks(uuid)?.into_iter();
        Ok(disks.find(|disk| disk.target == target))
    }

    /// Returns when libvirt is done with what anybody has had it begin about a domain: it
    /// has one such thing at a time, and this is one. Nobody's metadata is touched.
    pub(crate) fn wait_until_idle(&self, uuid: Uuid) -> Result<()> {
        let Some(domain) = self.find(uuid)? else {
            return Ok(());
        };
        let kind = sys::VIR_DOMAIN_METADATA_ELEMENT.cast_signed();
        let nothing =
            domain.set_metadata(kind, None, None, Some(NOBODYS), sys::VIR_DOMAIN_AFFECT_LIVE);
        match nothing {
            Ok(()) => Ok(()),
            // It has ended meanwhile.
            Err(_) if self.is_running(uuid)? != Some(true) => Ok(()),
            Err(error) => Err(Failure::new("libvirt is still busy with the VM")
                .because(error)
                .help("say it again later; a server that does not answer may keep QEMU waiting")),
        }
    }

    /// Puts a disk into a domain that runs, and into its definition: into both,
    /// or into none.
    pub(crate) fn attach(&self, uuid: Uuid, xml: &str) -> Result<()> {
        let flags = sys::VIR_DOMAIN_AFFECT_LIVE | sys::VIR_DOMAIN_AFFECT_CONFIG;
        let attached = self.running(uuid)?.attach_device_flags(xml, flags);
        attached.map_err(|error| Failure::new("the disk cannot be attached").because(error))
    }

    /// Asks a guest to let go of a disk; that it does is told later.
    pub(crate) fn ask_to_let_go(&self, uuid: Uuid, alias: &str) -> Result<()> {
        let asked = ffi::ask_to_let_go(&self.running(uuid)?, alias);
        asked.map_err(|error| {
            Failure::new("the guest cannot be asked to let go of the disk").because(error)
        })
    }

    /// Takes a disk out of a domain's definition. That it is not there is as
    /// good.
    pub(crate) fn forget_disk(&self, uuid: Uuid, target: &str) -> Result<()> {
        let failed =
            |error| Failure::new("the domain's definition cannot be changed").because(error);
        let Some(domain) = self.find(uuid)? else {
            return Ok(());
        };
        let xml = domain.xml_desc(sys::VIR_DOMAIN_XML_INACTIVE);
        let defined = disks_in(&xml.map_err(failed)?);
        if !defined.iter().any(|disk| disk.target == target) {
            return Ok(());
        }
        // libvirt knows it by its target.
        let xml = format!("<disk type='file'><source file='/'/><target dev='{target}'/></disk>");
        domain
            .detach_device_flags(&xml, sys::VIR_DOMAIN_AFFECT_CONFIG)
            .map_err(failed)
    }

    /// Makes a disk larger, and tells the guest.
    pub(crate) fn resize(&self, uuid: Uuid, target: &str, size: u64) -> Result<()> {
        let flags = sys::VIR_DOMAIN_BLOCK_RESIZE_BYTES;
        let resized = self.running(uuid)?.block_resize(target, size, flags);
        resized.map_err(|error| Failure::new("the disk cannot be made larger").because(error))
    }

    /// How large a guest sees a disk.
    pub(crate) fn capacity(&self, uuid: Uuid, target: &str) -> Result<u64> {
        let found = ffi::capacity(&self.running(uuid)?, target);
        found.map_err(|error| {
            Failure::new("how large the guest sees the disk is not known").because(error)
        })
    }

    fn running(&self, uuid: Uuid) -> Result<Domain> {
        self.find(uuid)?
            .ok_or_else(|| Failure::new("the VM's domain is gone"))
    }
}
