//! Ctrl-C and its like: the first asks to stop in order, the second ends at
//! once.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use disklet_block::convert::Watch;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::libvirt::Event;

static ASKED: AtomicBool = AtomicBool::new(false);
static TOLD: Mutex<Vec<Sender<Event>>> = Mutex::new(Vec::new());

/// Listens from now on.
pub(crate) fn listen() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else {
        return;
    };
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if ASKED.swap(true, Ordering::SeqCst) {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            if let Ok(told) = TOLD.lock() {
                for sender in told.iter() {
                    let _ = sender.send(Event::Interrupted);
                }
            }
        }
    });
}

/// Whether somebody has asked to stop.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Tells a waiting loop as well.
pub(crate) fn tell(sender: Sender<Event>) {
    if let Ok(mut told) = TOLD.lock() {
        told.push(sender);
    }
}

/// Whoever works watches for it.
pub(crate) struct UntilInterrupted;

impl Watch for UntilInterrupted {
    fn advance(&self, _bytes: u64) {
        crate::cut::boundary(crate::cut::Cut::Within);
    }

    fn cancelled(&self) -> bool {
        asked()
    }
}
