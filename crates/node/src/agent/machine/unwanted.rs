//! That nobody wants a VM any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disklet_block::convert::Watch;

/// Set as soon as nobody wants the VM any more, for whoever is at work on it.
#[derive(Debug, Clone, Default)]
pub(in crate::agent) struct Unwanted {
    pod: Arc<AtomicBool>,
    launcher: Arc<AtomicBool>,
}

impl Unwanted {
    /// The pod is gone.
    pub(in crate::agent) fn without_pod(&self) {
        self.pod.store(true, Ordering::SeqCst);
    }

    /// Its launcher is to end, or has.
    pub(super) fn without_launcher(&self) {
        self.launcher.store(true, Ordering::SeqCst);
    }

    /// The same pod with another launcher.
    pub(super) fn with_new_launcher(&self) -> Self {
        Self {
            pod: self.pod.clone(),
            launcher: Arc::default(),
        }
    }

    pub(in crate::agent) fn is_set(&self) -> bool {
        self.pod.load(Ordering::SeqCst) || self.launcher.load(Ordering::SeqCst)
    }
}

impl Watch for Unwanted {
    fn advance(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        self.is_set()
    }
}
