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

/// Listens from now on. What whoever has started us has us ignore, as `nohup`
/// does, stays ignored.
pub(crate) fn listen() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = ignored(&status);
    let wanted = [SIGINT, SIGTERM, SIGHUP];
    let wanted = wanted
        .iter()
        .filter(|signal| ignored >> (*signal - 1) & 1 == 0);
    let Ok(mut signals) = Signals::new(wanted) else {
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

/// The signals that a process ignores, as the kernel tells: a bit for each.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
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
