//! Where tests kill the program: at every boundary between two steps, and in
//! the middle of long ones.
//!
//! `DISKLET_CUT=3` ends it at the third boundary as a power cut would, without
//! any cleaning up, and says where that was; `DISKLET_CUT='before StartDomain'` at
//! the first of that name. Only debug builds listen.

use disklet_core::plan::StepKind;

/// A boundary.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(
    not(debug_assertions),
    allow(dead_code, reason = "only debug builds tell")
)]
pub(crate) enum Cut {
    /// The record is written, the step not begun.
    Before(StepKind),
    /// Somewhere in a step that takes long.
    Within,
    /// mke2fs works on a new volume.
    Formatting,
    /// It is written down that a guest shall let go of a disk.
    LettingGo,
    /// It is written down that a disk grows.
    Growing,
    /// All steps are done.
    Done,
    /// What has become of a disk is written down, that it was begun not
    /// forgotten yet.
    Noted,
    /// Something is about to be removed.
    Removing,
    /// Everything is removed but the record.
    Forgetting,
}

#[cfg(debug_assertions)]
impl Cut {
    fn name(self) -> String {
        match self {
            Self::Before(step) => format!("before {step:?}"),
            other => format!("{other:?}"),
        }
    }
}

/// A boundary between two steps.
#[cfg(debug_assertions)]
pub(crate) fn boundary(cut: Cut) {
    use std::io::Write;
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let passed = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
    let wanted = std::env::var("DISKLET_CUT");
    let is_here = |wanted: String| wanted == passed.to_string() || wanted == cut.name();
    if wanted.is_ok_and(is_here) {
        let _ = writeln!(std::io::stderr(), "cut: {}", cut.name());
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// A boundary between two steps.
#[cfg(not(debug_assertions))]
pub(crate) fn boundary(_: Cut) {}
