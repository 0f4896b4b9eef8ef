//! What happens to domains, as libvirt tells it.

use std::sync::Once;
use std::sync::mpsc::{Receiver, Sender, channel};

use uuid::Uuid;
use virt::connect::Connect;

use super::ffi;
use crate::failure::{Failure, Result};

/// Something that libvirt has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// A domain runs.
    Started(Uuid),
    /// A domain runs no more.
    Stopped(Uuid, End),
    /// A guest stands still.
    Paused(Uuid),
    /// A guest goes on.
    Resumed(Uuid),
    /// A guest has let go of a device; which, its domain tells.
    Removed(Uuid),
    /// A guest does not let go of a device.
    Kept(Uuid),
    /// The daemon is gone: what happens from now on is not told.
    Lost,
    /// A guest says that it is ready; its serial log tells, not libvirt.
    Ready(Uuid),
    /// The user wants no more of it.
    Interrupted,
}

impl Event {
    /// Whether it happened to this domain.
    pub(crate) fn is_of(self, domain: Uuid) -> bool {
        match self {
            Self::Started(uuid)
            | Self::Stopped(uuid, _)
            | Self::Paused(uuid)
            | Self::Resumed(uuid)
            | Self::Removed(uuid)
            | Self::Kept(uuid)
            | Self::Ready(uuid) => uuid == domain,
            Self::Lost | Self::Interrupted => false,
        }
    }
}

/// Why a guest stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    /// A disk could not be read or written.
    DiskError,
    /// Somebody wants it so, or it is not to run yet.
    Wanted,
}

/// How a domain has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The guest switched itself off.
    Shutdown,
    /// Somebody has ended it.
    Destroyed,
    /// It has crashed, or QEMU has.
    Failed,
    /// It has not run since libvirt knows it.
    Unknown,
}

impl End {
    /// What is said of the VM.
    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Self::Shutdown => "has ended",
            Self::Destroyed => "was ended by somebody",
            Self::Failed => "has crashed",
            Self::Unknown => "does not run",
        }
    }
}

/// Has libvirt's events delivered, and its keepalive messages, by a thread of
/// their own. Must come before the first connection.
pub(super) fn deliver() -> Result<()> {
    begin(|| {
        std::thread::spawn(|| while virt::event::event_run_default_impl().is_ok() {});
    })
}

/// The same without a thread: the caller runs the loop.
pub(super) fn leave_loop_to_caller() -> Result<()> {
    begin(|| {})
}

fn begin(run: impl FnOnce()) -> Result<()> {
    static BEGUN: Once = Once::new();
    let mut outcome = Ok(());
    BEGUN.call_once(|| {
        outcome = virt::event::event_register_default_impl()
            .map_err(|error| Failure::new("libvirt's events cannot be had").because(error));
        if outcome.is_ok() {
            run();
        }
    });
    outcome
}

/// All that happens, and a way for others to tell something as well.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) receiver: Receiver<Event>,
    pub(crate) sender: Sender<Event>,
}

impl Events {
    /// Nothing yet; connections tell theirs.
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Self { receiver, sender }
    }
}

/// The same of devices that guests let go of.
pub(super) fn subscribe_to_devices(connect: &Connect, sender: &Sender<Event>) -> Result<()> {
    ffi::on_devices(connect, sender)
        .map_err(|error| Failure::new("libvirt does not tell of devices").because(error))
}

/// Has all that happens from now on sent there.
pub(super) fn subscribe(connect: &Connect, sender: Sender<Event>) -> Result<()> {
    ffi::on_lifecycle(connect, sender)
        .map_err(|error| Failure::new("libvirt does not tell of events").because(error))
}
