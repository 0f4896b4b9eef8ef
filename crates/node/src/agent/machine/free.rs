//! Removing what was made for a VM.

use super::{AGAIN, Machine};
use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;
use crate::record::{Record, Records};
use crate::verbs::Node;

impl Machine {
    /// Removes what was made; volumes stay for a launcher that comes back.
    pub(super) fn free(&self, keep_volumes: bool) {
        let mut told = false;
        while let Err(failure) = self.try_free(keep_volumes) {
            if !told {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
                told = true;
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn try_free(&self, keep_volumes: bool) -> Result<()> {
        let records = Records::of(&self.shared.config);
        let Some(record) = self.record(&records)? else {
            return Ok(());
        };
        let libvirt = self.libvirt()?;
        let node = Node {
            libvirt: &libvirt,
            config: &self.shared.config,
            records: &records,
            launcher: None,
        };
        let held = records.hold(record.uuid)?;
        match keep_volumes {
            true => node.release_but_volumes(&held),
            false => node.release(held),
        }
    }

    /// What is on this node because of the pod.
    pub(super) fn record(&self, records: &Records) -> Result<Option<Record>> {
        let mut all = records.list()?.into_iter();
        Ok(all.find(|record| record.pod.as_deref() == Some(self.pod.uid.as_str())))
    }

    pub(super) fn libvirt(&self) -> Result<Libvirt> {
        Libvirt::open(Some(&self.shared.uri)).map_err(Failure::into_outage)
    }
}
