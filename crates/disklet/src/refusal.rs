//! Why something was not done in a cluster.

use std::io::{self, Write};
use std::process::ExitCode;

use disklet::cluster::trouble::Trouble;
use disklet::report::harmless_line;

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

    /// What a cluster has not told or done.
    pub(crate) fn of(what: &str, error: &kube::Error) -> Self {
        let trouble = Trouble::of(error);
        let refusal = Self::new(format!("{what}: {trouble}"));
        match trouble.remedy() {
            Some(help) => refusal.help(help),
            None => refusal,
        }
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
        // API servers and objects of a cluster have their say in both.
        let _ = writeln!(out, "error: {}", harmless_line(&self.why));
        if let Some(help) = &self.help {
            let _ = writeln!(out, "  help: {}", harmless_line(help));
        }
        ExitCode::from(1)
    }
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Self {
        let refusal = Self::new(format!("no cluster to ask: {trouble}"));
        match trouble.remedy() {
            Some(help) => refusal.help(help),
            None => refusal,
        }
    }
}
