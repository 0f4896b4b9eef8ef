//! Logs of what runs in a cluster.

use clap::ValueEnum;
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

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
    // A second call changes nothing.
    let _ = match format {
        LogFormat::Json => as_json(filter, std::io::stderr).try_init(),
        LogFormat::Text => as_text(filter, std::io::stderr).try_init(),
    };
}

fn as_json<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .json()
        .flatten_event(true)
        .with_current_span(false)
        .with_span_list(false)
        .finish()
}

fn as_text<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(false)
        .finish()
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use serde_json::Value;
    use tracing::subscriber::with_default;
    use tracing::{debug, info, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn log() {
        info!(vm = "n/web", "made the launcher pod");
        warn!(error = "two\nlines", "tried again later");
        debug!("nobody wants to know");
    }

    #[test]
    fn programs_read_one_object_a_line() {
        let lines = Lines::default();
        let writer = lines.clone();
        let logs = as_json(EnvFilter::new("info"), move || writer.clone());
        with_default(logs, log);
        let text = lines.text();
        let read: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(read.len(), 2, "{text}");
        assert_eq!(read[0]["level"], "INFO");
        assert_eq!(read[0]["message"], "made the launcher pod");
        assert_eq!(read[0]["vm"], "n/web");
        assert_eq!(read[1]["error"], "two\nlines");
        assert!(read[1]["timestamp"].is_string() && read[1]["target"].is_string());
    }

    #[test]
    fn people_read_words() {
        let lines = Lines::default();
        let writer = lines.clone();
        let logs = as_text(EnvFilter::new("info"), move || writer.clone());
        with_default(logs, log);
        let text = lines.text();
        assert!(
            text.contains("INFO") && text.contains("made the launcher pod vm=\"n/web\""),
            "{text}"
        );
    }
}
