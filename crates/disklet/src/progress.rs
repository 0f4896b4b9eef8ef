//! Telling how far a copy or a download has come, on standard error.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use disklet_block::convert::Watch;
use disklet_core::units::ByteSize;

/// How it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressForm {
    /// A bar, if standard error is a terminal; lines, if that can show none
    Auto,
    /// A JSON object a line, on standard error
    Json,
    /// Nothing
    None,
}

/// Watches a copy.
#[derive(Debug)]
pub struct Progress {
    /// Unknown of what comes out of a pipe.
    total: Option<u64>,
    done: AtomicU64,
    /// What was there before, and says nothing about the speed.
    before: u64,
    form: Form,
    start: Instant,
    told: Mutex<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Bar,
    Lines,
    Json,
    Nothing,
}

/// Often enough to look alive, seldom enough to cost nothing.
const INTERVAL: Duration = Duration::from_millis(200);
/// Lines stay, and shall not drown the others.
const BETWEEN_LINES: Duration = Duration::from_secs(5);

impl Progress {
    /// Of a copy of so many bytes.
    #[must_use]
    pub fn new(total: Option<u64>, wanted: ProgressForm) -> Self {
        let form = match wanted {
            ProgressForm::Json => Form::Json,
            ProgressForm::Auto if io::stderr().is_terminal() => {
                Form::of_terminal(std::env::var_os("TERM").as_deref())
            }
            ProgressForm::Auto | ProgressForm::None => Form::Nothing,
        };
        Self {
            total,
            done: AtomicU64::new(0),
            before: 0,
            form,
            start: Instant::now(),
            told: Mutex::new(Duration::ZERO),
        }
    }

    /// So much was done before.
    #[must_use]
    pub fn beginning_at(self, before: u64) -> Self {
        Self {
            done: AtomicU64::new(before),
            before,
            ..self
        }
    }

    /// Clears the bar, or tells the end.
    pub fn end(&self) {
        self.clear();
        if self.form == Form::Json {
            self.tell(self.start.elapsed());
        }
    }

    /// Makes room for a line; the bar comes again below it.
    pub fn clear(&self) {
        if self.form == Form::Bar {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }

    fn tell(&self, elapsed: Duration) {
        let done = self.done.load(Ordering::Relaxed);
        let done = self.total.map_or(done, |total| done.min(total));
        let rate = per_second(done.saturating_sub(self.before), elapsed);
        let left = self
            .total
            .filter(|_| rate > 0)
            .map(|total| (total - done) / rate);
        let mut out = io::stderr().lock();
        // Who watches may have gone; the copy goes on.
        let _ = match self.form {
            Form::Bar => {
                let line = bar(
                    done,
                    self.total,
                    &words(done, self.total, rate, left),
                    columns(),
                );
                write!(out, "\r\x1b[K{line}").and_then(|()| out.flush())
            }
            Form::Lines => writeln!(out, "{}", words(done, self.total, rate, left).trim_start()),
            Form::Json => writeln!(
                out,
                "{}",
                serde_json::json!({"done": done, "total": self.total, "bytesPerSecond": rate, "secondsLeft": left})
            ),
            Form::Nothing => Ok(()),
        };
    }
}

fn per_second(bytes: u64, elapsed: Duration) -> u64 {
    let millis = u64::try_from(elapsed.as_millis())
        .unwrap_or(u64::MAX)
        .max(1);
    u64::try_from(u128::from(bytes) * 1000 / u128::from(millis)).unwrap_or(u64::MAX)
}

impl Form {
    /// What a terminal of this kind can show: one that does not say what it is
    /// may not know how to begin its line again.
    fn of_terminal(kind: Option<&OsStr>) -> Self {
        match kind {
            Some(kind) if !kind.is_empty() && kind != "dumb" => Self::Bar,
            _ => Self::Lines,
        }
    }

    fn interval(self) -> Duration {
        match self {
            Self::Lines => BETWEEN_LINES,
            Self::Bar | Self::Json | Self::Nothing => INTERVAL,
        }
    }
}

/// How wide the terminal is.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let columns = size.map_or(0, |size| usize::from(size.ws_col));
    match columns {
        0 => 80,
        columns => columns,
    }
}

fn share(done: u64, total: u64, of: u64) -> u64 {
    u64::try_from(u128::from(done) * u128::from(of) / u128::from(total.max(1))).unwrap_or(of)
}

/// How far it is, in words.
fn words(done: u64, total: Option<u64>, rate: u64, left: Option<u64>) -> String {
    let whole_mebibytes = |bytes| ByteSize::from_bytes(bytes >> 20 << 20);
    let rate = whole_mebibytes(rate);
    let Some(total) = total else {
        return format!("{} read, {rate}/s", whole_mebibytes(done));
    };
    let left = left.map_or_else(String::new, |seconds| format!(", {seconds} s left"));
    format!("{:>3} %, {rate}/s{left}", share(done, total, 100))
}

/// The same with a bar before it, as far as there is room: a line that does not fit
/// cannot be taken back.
fn bar(done: u64, total: Option<u64>, words: &str, columns: usize) -> String {
    const WIDEST: usize = 30;
    const NARROWEST: usize = 5;
    // The last column stays free: some terminals go on to the next line there.
    let room = columns.saturating_sub(1);
    let around = "[] ".len() + words.len();
    let width = room.saturating_sub(around).min(WIDEST);
    let Some(total) = total.filter(|_| width >= NARROWEST) else {
        return words.chars().take(room).collect();
    };
    let filled =
        usize::try_from(share(done, total, u64::try_from(width).unwrap_or(0))).unwrap_or(0);
    let empty = width - filled.min(width);
    format!("[{}{}] {words}", "#".repeat(filled), "-".repeat(empty))
}

impl Watch for Progress {
    fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        if self.form == Form::Nothing {
            return;
        }
        let elapsed = self.start.elapsed();
        // Whoever holds the lock is telling already.
        if let Ok(mut told) = self.told.try_lock()
            // Another thread may have told of a later moment.
            && elapsed.saturating_sub(*told) >= self.form.interval()
        {
            *told = elapsed;
            self.tell(elapsed);
        }
    }

    fn cancelled(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads look at the clock before they take the lock: what was told last
    /// may be later than what a thread has seen.
    #[test]
    fn a_thread_that_comes_late_tells_nothing() {
        let progress = Progress::new(Some(8), ProgressForm::Json);
        let later = Duration::from_secs(600);
        *progress.told.lock().unwrap() = later;
        progress.advance(8);
        assert_eq!(*progress.told.lock().unwrap(), later);
        assert_eq!(progress.done.into_inner(), 8);
    }

    #[test]
    fn a_bar_is_never_wider_than_its_terminal() {
        let gib = 1 << 30;
        let words = words(gib, Some(3 * gib), 5 << 20, Some(410));
        assert_eq!(words, " 33 %, 5 MiB/s, 410 s left");
        let at = |columns| bar(gib, Some(3 * gib), &words, columns);
        assert_eq!(
            at(80),
            format!("[{}{}] {words}", "#".repeat(10), "-".repeat(20))
        );
        assert_eq!(at(40), format!("[###-------] {words}"));
        assert_eq!(at(30), words);
        assert_eq!(at(10), " 33 %, 5 ");
        for columns in 0..100 {
            assert!(at(columns).len() < columns.max(1), "{columns}");
        }
    }

    #[test]
    fn a_terminal_that_can_do_nothing_has_lines() {
        let of = |kind: Option<&str>| Form::of_terminal(kind.map(OsStr::new));
        assert_eq!(of(Some("xterm")), Form::Bar);
        for kind in [None, Some(""), Some("dumb")] {
            assert_eq!(of(kind), Form::Lines, "{kind:?}");
        }
    }
}
