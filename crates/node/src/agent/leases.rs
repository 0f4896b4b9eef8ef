//! Leases of storage that several nodes reach, for the VMs of this node.

use std::fs;
use std::pin::pin;
use std::time::Duration;

use disklet::cluster::leases::{Leases, Outcome, Version, content_of};
use disklet_core::lease::Holder;
use disklet_core::plan::Access;
use futures::StreamExt;
use futures::future::select;
use kube::ResourceExt;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::sleep;
use uuid::Uuid;

use super::cluster::{Cluster, now, unanswered};
use super::machine::Unwanted;
use crate::failure::{Failure, Result, on};
use crate::libvirt::Libvirt;
use crate::record::{Made, Record, Records};

/// Who of this node may use what all nodes reach.
#[derive(Clone)]
pub(crate) struct NodeLeases {
    cluster: Cluster,
    leases: Leases,
    node: String,
    /// Which start of the node this is.
    boot: String,
}

/// Whose lease it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whose<'w> {
    pub(crate) uuid: Uuid,
    pub(crate) namespace: &'w str,
    pub(crate) name: &'w str,
}

impl<'w> Whose<'w> {
    pub(crate) fn of(record: &'w Record) -> Self {
        Self {
            uuid: record.uuid,
            namespace: &record.namespace,
            name: &record.name,
        }
    }
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// How often it is looked whether anybody still waits.
const LOOK_UP: Duration = Duration::from_millis(100);
/// A watch that is refused is begun again so much later.
const AGAIN: Duration = Duration::from_secs(2);
/// A watch lasts so many seconds at most.
const WATCH: u32 = 240;

impl NodeLeases {
    pub(super) fn new(cluster: Cluster, leases: Leases, node: &str) -> Result<Self> {
        let boot = fs::read_to_string(BOOT_ID).map_err(|error| on(BOOT_ID, "read", error))?;
        Ok(Self {
            cluster,
            leases,
            node: node.to_owned(),
            boot: boot.trim().to_owned(),
        })
    }

    /// For somebody who has no time once a VM is not wanted any more.
    pub(super) fn unless(&self, unwanted: &Unwanted) -> Self {
        Self {
            cluster: self.cluster.unless(unwanted),
            ..self.clone()
        }
    }

    /// Has the right that a record names, if all nodes have to agree to it.
    pub(crate) fn take(&self, whose: Whose<'_>, lease: &Made) -> Result<()> {
        let Made::Lease {
            storage,
            hosts,
            access,
            object: Some(object),
        } = lease
        else {
            return Ok(());
        };
        let holder = Holder {
            uuid: whose.uuid,
            namespace: whose.namespace.to_owned(),
            name: whose.name.to_owned(),
            node: self.node.clone(),
            boot: self.boot.clone(),
            access: access_of(access)?,
            hosts: hosts.clone(),
            since: now(),
        };
        let taken = self
            .cluster
            .wait(self.leases.take(object, storage, &holder));
        match taken.map_err(|error| unanswered(&format!("lease {storage}"), error))? {
            Outcome::Ours => Ok(()),
            Outcome::Busy(other, version) => {
                let other = other.shown_to(whose.namespace);
                Err(Failure::new(format!("{storage} is in use by {other}"))
                    .help("two VMs that write to one disk destroy it: this one starts when the other is off")
                    .until(version))
            }
            Outcome::Full(version) => Err(Failure::new(format!(
                "{storage} has as many users as its Lease has room for"
            ))
            .help("this VM starts when one of them is off")
            .until(version)),
            Outcome::Unreadable(why, version) => {
                let place = self.leases.place(object);
                Err(Failure::new(format!(
                    "{storage} may be in use: the Lease {place} does not say"
                ))
                .because(why)
                .help("an administrator who has seen that no VM runs with it deletes that Lease")
                .until(version))
            }
        }
    }

    /// Gives up what a VM had. It is off, or does not need it any more.
    pub(crate) fn give_up<'m>(
        &self,
        uuid: Uuid,
        leases: impl Iterator<Item = &'m Made>,
    ) -> Result<()> {
        for lease in leases {
            let Made::Lease {
                storage,
                hosts,
                object: Some(object),
                ..
            } = lease
            else {
                continue;
            };
            let is_it = |holder: &Holder| {
                holder.uuid == uuid && holder.node == self.node && holder.hosts == *hosts
            };
            let released = self.cluster.wait(self.leases.release(object, is_it));
            released.map_err(|error| {
                unanswered(&format!("release {storage}"), error).into_unreleased()
            })?;
        }
        Ok(())
    }

    /// Gives up what nobody here knows of any more, as after the loss of the
    /// records' disk. Whoever takes a lease has written its record before: so the leases
    /// are read first.
    pub(super) fn sweep(&self, records: &Records, libvirt: &Libvirt) -> Result<()> {
        let all = self.cluster.wait(self.leases.list());
        let all = all.map_err(|error| unanswered("list the leases", error))?;
        let known = records.list()?;
        for lease in all {
            let mut gone = Vec::new();
            let holders = content_of(&lease).map_or(Vec::new(), |content| content.holders);
            for holder in holders.iter().filter(|it| it.node == self.node) {
                let is_known = known.iter().any(|record| record.uuid == holder.uuid);
                if !is_known && libvirt.is_running(holder.uuid)? != Some(true) {
                    gone.push(holder.clone());
                }
            }
            if gone.is_empty() {
                continue;
            }
            let object = lease.name_any();
            tracing::warn!(
                object,
                "leased by VMs that this node does not have; released"
            );
            let is_gone = |holder: &Holder| gone.contains(holder);
            let released = self.cluster.wait(self.leases.release(&object, is_gone));
            released.map_err(|error| unanswered("release a lease", error))?;
        }
        Ok(())
    }

    /// Returns when a lease is not as it was seen, or nobody waits any more. The
    /// API server tells; it is not asked again and again.
    pub(super) fn wait_for_change(&self, seen: &Version, unwanted: &Unwanted) {
        let nobody_waits = async {
            while !unwanted.is_set() {
                sleep(LOOK_UP).await;
            }
        };
        let (changed, nobody_waits) = (pin!(self.changed(seen)), pin!(nobody_waits));
        self.cluster.block_on(select(changed, nobody_waits));
    }

    async fn changed(&self, seen: &Version) {
        let api = self.leases.api();
        let this = format!("metadata.name={}", seen.object);
        let params = WatchParams::default().fields(&this).timeout(WATCH);
        loop {
            match super::cluster::answered(api.get_opt(&seen.object)).await {
                Ok(Some(lease)) if lease.resource_version().as_ref() == Some(&seen.version) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(object = seen.object, %error, "the API server does not tell of a lease");
                    sleep(AGAIN).await;
                    continue;
                }
            }
            let Ok(events) = api.watch(&params, &seen.version).await else {
                sleep(AGAIN).await;
                continue;
            };
            let mut events = pin!(events);
            while let Some(Ok(event)) = events.next().await {
                match event {
                    WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_) => {
                        return;
                    }
                    WatchEvent::Bookmark(_) => {}
                    // The version is too old by now, for one.
                    WatchEvent::Error(_) => break,
                }
            }
            sleep(LOOK_UP).await;
        }
    }
}

fn access_of(name: &str) -> Result<Access> {
    let known = Access::ALL.into_iter().find(|access| access.name() == name);
    known.ok_or_else(|| Failure::new(format!("the VM's record has an unknown access {name}")))
}
