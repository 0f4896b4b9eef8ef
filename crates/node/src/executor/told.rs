//! Long steps tell how far they are.

use disklet::progress::{Progress, ProgressForm};
use disklet_block::convert::Watch;

/// A copy that tells how far it is.
pub(super) struct Told<'t> {
    progress: Progress,
    watch: &'t dyn Watch,
}

impl<'t> Told<'t> {
    /// Of a copy of so many bytes.
    pub(super) fn new(size: u64, watch: &'t dyn Watch) -> Self {
        Self {
            progress: Progress::new(Some(size), ProgressForm::Auto),
            watch,
        }
    }

    /// Makes room for what comes next.
    pub(super) fn end(&self) {
        self.progress.end();
    }
}

impl Watch for Told<'_> {
    fn advance(&self, bytes: u64) {
        self.progress.advance(bytes);
        self.watch.advance(bytes);
    }

    fn cancelled(&self) -> bool {
        self.watch.cancelled()
    }
}
