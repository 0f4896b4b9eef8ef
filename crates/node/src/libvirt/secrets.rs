//! Keys that QEMU needs to open a disk.

use disklet_core::domain::KeyKind;
use uuid::Uuid;
use virt::error::ErrorNumber;
use virt::secret::Secret;

use super::Libvirt;
use crate::failure::{Failure, Result};

impl Libvirt {
    /// Gives libvirt a key: in its memory only, and not to be read back.
    pub(crate) fn define_secret(
        &self,
        uuid: Uuid,
        kind: KeyKind,
        usage: &str,
        key: &[u8],
    ) -> Result<()> {
        let failed = |error| Failure::new("libvirt does not take the disk's key").because(error);
        // libvirt names what a target's key is for in another way.
        let element = match kind {
            KeyKind::Iscsi => "target",
            KeyKind::Ceph | KeyKind::Web => "name",
        };
        let kind = kind.name();
        let xml = format!(
            "<secret ephemeral='yes' private='yes'><uuid>{uuid}</uuid>\
             <usage type='{kind}'><{element}>{usage}</{element}></usage></secret>"
        );
        let secret = self.connect.define_secret_xml(&xml, 0).map_err(failed)?;
        secret.set_value(key, 0).map_err(failed)
    }

    /// Takes a key back. That it is not there is as good.
    pub(crate) fn remove_secret(&self, uuid: Uuid) -> Result<()> {
        match self.find_secret(uuid)?.map(|secret| secret.undefine()) {
            Some(Err(error)) if !error.code().is(ErrorNumber::NoSecret) => {
                Err(Failure::new(format!("secret {uuid} cannot be removed")).because(error))
            }
            _ => Ok(()),
        }
    }

    /// Whether libvirt has a secret.
    pub(crate) fn has_secret(&self, uuid: Uuid) -> Result<bool> {
        Ok(self.find_secret(uuid)?.is_some())
    }

    fn find_secret(&self, uuid: Uuid) -> Result<Option<Secret>> {
        match self.connect.lookup_secret_by_uuid_string(&uuid.to_string()) {
            Ok(secret) => Ok(Some(secret)),
            Err(error) if error.code().is(ErrorNumber::NoSecret) => Ok(None),
            Err(error) => Err(Failure::new("libvirt's secrets cannot be looked up").because(error)),
        }
    }
}
