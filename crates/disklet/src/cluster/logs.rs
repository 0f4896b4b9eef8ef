//! Logs of what runs in a cluster.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

/// A form of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line, for programs
    Json,
    /// For people
    Text,
}

/// Begins to log, to standard error. `DISKLET_LOG` chooses what, such as
/// `debug` or `disklet=debug,kube=info`.
pub fn begin(format: LogFormat) {
    let filter = EnvFilter::try_from_env("DISKLET_LOG");
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second call changes nothing.
    let _ = match format {
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init(),
        LogFormat::Text => lines.with_ansi(false).try_init(),
    };
}
