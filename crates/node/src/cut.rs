//! Where tests kill the program: at every boundary between two steps.
//!
//! `DISKLET_CUT=3` ends it at the third boundary as a power cut would, without
//! any cleaning up. Only debug builds listen.

/// A boundary between two steps.
#[cfg(debug_assertions)]
pub(crate) fn boundary() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let wanted = std::env::var("DISKLET_CUT").ok();
    let wanted = wanted.and_then(|wanted| wanted.parse::<u64>().ok());
    if Some(PASSED.fetch_add(1, Ordering::Relaxed) + 1) == wanted {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// A boundary between two steps.
#[cfg(not(debug_assertions))]
pub(crate) fn boundary() {}
