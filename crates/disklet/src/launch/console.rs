//! The first serial port: what the guest writes goes to standard output, what
//! comes from standard input goes to the guest.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::termios::{OptionalActions, isatty, tcgetattr, tcsetattr};

use super::backlog::{Backlog, Piece};

/// A screenful two hundred times over, and nothing beside a guest's memory.
const MOST: usize = 1 << 20;
/// Whoever reads nothing for so long does not read.
const PATIENCE: Duration = Duration::from_secs(10);
const PIECE: usize = 16 << 10;

/// The serial port's two ways.
#[derive(Debug)]
pub(super) struct Console {
    backlog: Backlog,
    guest: Mutex<Option<Arc<UnixStream>>>,
    changed: Condvar,
}

impl Console {
    /// Serves QEMU at a listening socket from now on. A second connection
    /// takes the place of the first.
    pub(super) fn serve(listener: UnixListener) -> io::Result<Arc<Self>> {
        let console = Arc::new(Self {
            backlog: Backlog::new(MOST, PATIENCE),
            guest: Mutex::new(None),
            changed: Condvar::new(),
        });
        pass_bytes_as_they_are();
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let of = || Arc::clone(&console);
        let (accepting, reading, writing) = (of(), of(), of());
        thread::spawn(move || accepting.accept(&listener));
        thread::spawn(move || reading.read_input(input));
        thread::spawn(move || writing.write_output(output));
        Ok(console)
    }

    /// Waits until all that the guest wrote is written: QEMU is gone, so the
    /// end of its connection comes at once.
    pub(super) fn finish(&self, time: Duration) {
        let (guest, _) = self
            .changed
            .wait_timeout_while(self.lock(), time, |guest| guest.is_some())
            .unwrap_or_else(PoisonError::into_inner);
        drop(guest);
        self.backlog.drained(time);
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        let mut reader: Option<JoinHandle<()>> = None;
        loop {
            let Ok((stream, _)) = listener.accept() else {
                // No descriptors are left, for instance.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            let stream = Arc::new(stream);
            if let Some(old) = self.lock().replace(Arc::clone(&stream)) {
                let _ = old.shutdown(std::net::Shutdown::Both);
            }
            self.changed.notify_all();
            let (console, before) = (Arc::clone(self), reader.take());
            reader = Some(thread::spawn(move || {
                // What the first has written comes before the second's first byte.
                drop(before.map(JoinHandle::join));
                console.read_guest(&stream);
            }));
        }
    }

    fn read_guest(&self, stream: &Arc<UnixStream>) {
        let mut bytes = vec![0; PIECE];
        loop {
            match (&**stream).read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => self.backlog.put(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        let mut guest = self.lock();
        if guest.as_ref().is_some_and(|it| Arc::ptr_eq(it, stream)) {
            *guest = None;
        }
        self.changed.notify_all();
    }

    fn write_output(&self, mut output: File) {
        while let Some(piece) = self.backlog.take(PIECE) {
            let bytes = match piece {
                Piece::Bytes(bytes) => bytes,
                Piece::Lost(bytes) => lost(bytes).into_bytes(),
            };
            if write_all(&mut output, &bytes).is_err() {
                self.backlog.close();
                return;
            }
            self.backlog.written();
        }
    }

    /// The end of the input is the end of nothing else.
    fn read_input(&self, mut input: File) {
        let mut bytes = vec![0; 4096];
        loop {
            match input.read(&mut bytes) {
                Ok(0) => return,
                // What a guest does not take, because it has just ended, is
                // not for the next one.
                Ok(read) => drop((&*self.some_guest()).write_all(&bytes[..read])),
                Err(error) if is_passing(&error) => pause(&error),
                Err(_) => return,
            }
        }
    }

    /// The guest, as soon as there is one.
    fn some_guest(&self) -> Arc<UnixStream> {
        let mut guest = self.lock();
        loop {
            if let Some(stream) = &*guest {
                return Arc::clone(stream);
            }
            guest = self
                .changed
                .wait(guest)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<UnixStream>>> {
        self.guest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(bytes: u64) -> String {
    format!("\r\n[disklet: {bytes} bytes of the console are missing here: nobody read them]\r\n")
}

/// A terminal would echo, wait for whole lines, and keep Ctrl-C for itself:
/// all of that is the guest's.
fn pass_bytes_as_they_are() {
    for terminal in [io::stdin().as_fd(), io::stdout().as_fd()] {
        if isatty(terminal)
            && let Ok(mut settings) = tcgetattr(terminal)
        {
            settings.make_raw();
            let _ = tcsetattr(terminal, OptionalActions::Now, &settings);
        }
    }
}

/// The other end may have made it non-blocking.
fn write_all(output: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if is_passing(&error) => pause(&error),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

fn pause(error: &io::Error) {
    if error.kind() == ErrorKind::WouldBlock {
        thread::sleep(Duration::from_millis(10));
    }
}
