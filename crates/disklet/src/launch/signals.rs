//! What the kernel and the kubelet tell.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::agent::Event;
use super::children::Children;

/// Listens from now on. The first process of a container gets no signal that
/// it does not ask for, so nothing here is left to the default.
pub(super) fn listen(children: Arc<Children>, events: SyncSender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGCHLD])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGCHLD => children.reap(),
                // Nobody is left to read the console: the VM does not care.
                SIGHUP => {}
                _ => drop(events.send(Event::ToldToEnd)),
            }
        }
    });
    Ok(())
}
