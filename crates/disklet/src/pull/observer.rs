//! Whoever watches a pull, and may end it.

use std::io::{self, Write};
use std::sync::Mutex;

use disklet_block::convert::Watch;

use crate::progress::{Progress, ProgressForm};
use crate::shown::short_size;

/// What is about to come.
#[derive(Debug, Clone)]
pub struct Beginning<'b> {
    /// The image's name.
    pub image: &'b str,
    /// From where, without secrets.
    pub from: &'b str,
    /// How long the file is, if that is known.
    pub total: Option<u64>,
    /// How much of it has come before.
    pub before: u64,
}

/// Whoever watches a pull. What it is told has no secrets in it.
pub trait Observer: Sync {
    /// It begins, perhaps anew.
    fn begins(&self, beginning: &Beginning<'_>);
    /// So many more bytes of the file have come.
    fn advance(&self, bytes: u64);
    /// Something worth a line, such as a lost connection.
    fn notice(&self, text: &str);
    /// Somebody else fetches the same image; this waits until they have.
    fn waits(&self, image: &str) {
        self.notice(&format!("{image}: waiting for another pull of it"));
    }
    /// The server cannot be asked whether an image is still the same; what is
    /// here is used.
    fn stale(&self, image: &str, why: &str) {
        self.notice(&format!("{image}: {why}; what is here is used"));
    }
    /// Whether to stop.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Tells people, or programs, on standard error.
#[derive(Debug)]
pub struct Teller {
    form: ProgressForm,
    progress: Mutex<Option<Progress>>,
}

impl Teller {
    /// In a form: `Auto` is a line for each image, and on a terminal a bar.
    #[must_use]
    pub fn new(form: ProgressForm) -> Self {
        Self {
            form,
            progress: Mutex::new(None),
        }
    }

    /// Clears the bar, or tells the end.
    pub fn end(&self) {
        self.with(|progress| {
            if let Some(progress) = progress.take() {
                progress.end();
            }
        });
    }

    fn with(&self, act: impl FnOnce(&mut Option<Progress>)) {
        if let Ok(mut progress) = self.progress.lock() {
            act(&mut progress);
        }
    }

    fn line(&self, text: &str) {
        if self.form == ProgressForm::Auto {
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

impl Observer for Teller {
    fn begins(&self, beginning: &Beginning<'_>) {
        let Beginning { image, from, .. } = beginning;
        let mut text = format!("{image}: fetching {from}");
        if let Some(total) = beginning.total {
            text.push_str(&format!(" ({})", short_size(total)));
        }
        if beginning.before > 0 {
            text.push_str(&format!(", {} are here", short_size(beginning.before)));
        }
        self.with(|progress| {
            self.line(&text);
            let new = Progress::new(beginning.total, self.form);
            *progress = Some(new.beginning_at(beginning.before));
        });
    }

    fn advance(&self, bytes: u64) {
        self.with(|progress| {
            if let Some(progress) = progress {
                progress.advance(bytes);
            }
        });
    }

    fn notice(&self, text: &str) {
        self.with(|progress| {
            if let Some(progress) = progress {
                progress.clear();
            }
            self.line(text);
        });
    }
}

/// Lets the conversion know when to stop; how far the file has come is what
/// counts, and is told elsewhere.
pub(super) struct Stop<'o>(pub(super) &'o dyn Observer);

impl Watch for Stop<'_> {
    fn advance(&self, _bytes: u64) {}

    fn cancelled(&self) -> bool {
        self.0.cancelled()
    }
}
