//! Removing what was made for a VM.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disklet_core::plan::Launcher;

use super::{AGAIN, Machine};
use crate::agent::Shared;
use crate::agent::link::Link;
use crate::executor::{Host, open_socket};
use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;
use crate::record::{Made, Record, Records};
use crate::verbs::Node;

impl Machine {
    /// Removes what was made; volumes stay for a launcher that comes back.
    pub(super) fn free(&self, keep_volumes: bool) {
        while !self.free_here(keep_volumes) {
            std::thread::sleep(AGAIN);
        }
    }

    /// The same for somebody who waits: whether it is all. What the API server was
    /// not there to hear, that storage is free, is left.
    pub(super) fn free_here(&self, keep_volumes: bool) -> bool {
        let mut told = false;
        while let Err(failure) = self.try_free(keep_volumes) {
            if failure.is_unreleased() {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
                return false;
            }
            if !told {
                tracing::warn!(vm = self.pod.full_name(), "{failure}");
                told = true;
            }
            std::thread::sleep(AGAIN);
        }
        true
    }

    fn try_free(&self, keep_volumes: bool) -> Result<()> {
        let records = Records::of(&self.shared.config);
        let Some(record) = self.record(&records)? else {
            return Ok(());
        };
        let libvirt = self.libvirt()?;
        let leases = self.leases();
        let node = Node {
            libvirt: &libvirt,
            config: &self.shared.config,
            records: &records,
            launcher: None,
            leases: leases.as_ref(),
        };
        let held = records.hold(record.uuid)?;
        match keep_volumes {
            true => node.release_but_volumes(&held),
            false => node.release(held),
        }
    }

    /// A VM whose launcher has ended while no agent was there has nobody.
    pub(super) fn end_orphan(&self) {
        let Shared { config, .. } = &*self.shared;
        let records = Records::of(config);
        let is_there = matches!(self.record(&records), Ok(Some(_)));
        if is_there && !self.gone && !self.pod.is_done() && !Link::is_there(config, &self.pod.uid) {
            self.free(true);
        }
    }

    /// Whether what is shown to QEMU are the sockets of the launcher that is
    /// there now.
    pub(super) fn is_of_launcher(&self, record: &Record) -> bool {
        let Shared { config, .. } = &*self.shared;
        let directory = Launcher::directory(&config.kubelet_root, &self.pod.uid);
        let is_same = |from: &Path, shown: &Path| {
            let socket = open_socket(Host(&config.host_root), from).ok();
            let socket = socket.and_then(|socket| socket.metadata().ok());
            let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
            let shown = fs::symlink_metadata(shown).ok();
            socket.is_some() && socket.map(identity) == shown.map(identity)
        };
        record.made.iter().all(|made| match made {
            Made::Mount { path, from, .. } if from.starts_with(&directory) => is_same(from, path),
            _ => true,
        })
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
