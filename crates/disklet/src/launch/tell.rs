//! Telling people what happens, on standard error. Whoever does not read it
//! holds nothing up.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use disklet_core::diag::is_unprintable;
use rustix::termios::isatty;

/// More are dropped while nobody reads.
const WAITING: usize = 64;

/// Takes what is to be told.
#[derive(Debug, Clone)]
pub(super) struct Teller(SyncSender<Told>);

enum Told {
    Line(String),
    Done(SyncSender<()>),
}

impl Teller {
    pub(super) fn start() -> Self {
        let (sender, receiver) = sync_channel(WAITING);
        thread::spawn(move || write_lines(&receiver));
        Self(sender)
    }

    /// Tells it, unless too much waits already. Foreign text is made harmless
    /// for terminals.
    pub(super) fn tell(&self, text: &str) {
        for line in text.lines() {
            let line = line
                .chars()
                .map(|c| if is_unprintable(c) { '?' } else { c });
            let _ = self.0.try_send(Told::Line(line.collect()));
        }
    }

    /// Waits until everything was told, or for so long.
    pub(super) fn finish(&self, time: Duration) {
        let (sender, receiver) = sync_channel(1);
        let end = Instant::now() + time;
        // A full queue empties, or nobody reads.
        while self.0.try_send(Told::Done(sender.clone())).is_err() && Instant::now() < end {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = receiver.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

fn write_lines(receiver: &Receiver<Told>) {
    let stderr = io::stderr();
    // The console has made the terminal raw.
    let end = if isatty(&stderr) { "\r\n" } else { "\n" };
    for told in receiver {
        match told {
            Told::Line(line) => {
                let _ = stderr
                    .lock()
                    .write_all(format!("disklet: {line}{end}").as_bytes());
            }
            Told::Done(sender) => drop(sender.try_send(())),
        }
    }
}
