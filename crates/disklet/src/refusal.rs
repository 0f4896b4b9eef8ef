//! Why something was not done in a cluster.

use std::io::{self, Write};
use std::process::ExitCode;

/// What is wrong, and what can be done about it.
#[derive(Debug)]
pub(crate) struct Refusal {
    why: String,
    help: Option<String>,
}

impl Refusal {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        let (why, help) = (why.into(), None);
        Self { why, help }
    }

    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Tells it; the exit code.
    pub(crate) fn tell(&self) -> ExitCode {
        let mut out = io::stderr().lock();
        // Nobody is left to tell if this fails.
        let _ = writeln!(out, "error: {}", self.why);
        if let Some(help) = &self.help {
            let _ = writeln!(out, "  help: {help}");
        }
        ExitCode::from(1)
    }
}
