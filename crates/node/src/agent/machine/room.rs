//! Guests that QEMU has stopped because a disk's storage is full.

use std::time::Instant;

use super::times::Times;
use super::{Guest, Machine};
use crate::agent::link::Link;
use crate::agent::status::{Standing, file_of};

/// What is worth going on for, unless the whole storage is small.
const ROOM: u64 = 64 << 20;
/// Then it is such a part of it.
const PART: u64 = 16;

const DISK_FULL: &str = "DiskFull";

impl Machine {
    /// QEMU has stopped the guest; it goes on when there is room.
    pub(super) fn disk_full(&self, link: &Link, guest: &Guest, times: &mut Times) {
        times.disk_full();
        if is_full(&guest.standing.borrow()) && !guest.untold.get() {
            return;
        }
        let disks = self.without_room(guest);
        let which = match &disks[..] {
            [] => "a disk".to_owned(),
            [disk] => format!("disk {disk}"),
            [first @ .., last] => format!("disks {} and {last}", first.join(", ")),
        };
        let why = format!(
            "{which} cannot be written, as its storage is full: the guest goes on when there is room"
        );
        self.stands(link, guest, Standing::Paused(DISK_FULL, why), times);
    }

    /// QEMU tries again what it could not write.
    pub(super) fn go_on(&self, guest: &Guest, times: &mut Times) {
        times.retry = Some(Instant::now() + times.patience);
        if !self.without_room(guest).is_empty() {
            return;
        }
        let resumed = self
            .libvirt()
            .and_then(|libvirt| libvirt.resume(guest.uuid));
        if let Err(failure) = resumed {
            tracing::warn!(vm = self.pod.full_name(), "{failure}");
        }
    }

    /// The guest's disks that are files on a full filesystem.
    fn without_room(&self, guest: &Guest) -> Vec<String> {
        let disks = guest.plan.iter().flat_map(|plan| &plan.disks);
        let full = disks.filter(|disk| file_of(disk).is_some_and(|file| !has_room(file)));
        full.map(|disk| disk.name.to_string()).collect()
    }
}

pub(super) fn is_full(standing: &Standing) -> bool {
    matches!(standing, Standing::Paused(DISK_FULL, _))
}

fn has_room(file: &str) -> bool {
    // What cannot be asked is not what keeps the guest.
    rustix::fs::statvfs(file).map_or(true, |it| {
        let bytes = |blocks: u64| blocks.saturating_mul(it.f_frsize);
        bytes(it.f_bavail) >= ROOM.min(bytes(it.f_blocks) / PART)
    })
}
