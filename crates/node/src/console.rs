//! `console`: the user's terminal becomes the guest's.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use virt::event;
use virt::stream::Stream;
use virt::sys;

use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::libvirt::Libvirt;

/// Ctrl-], as in telnet and virsh: nothing in a guest needs it.
const DETACH: u8 = 0x1d;

/// How long the last of a pipe takes to get to the guest: QEMU looks once a
/// second whether somebody is at the other end of its terminal.
const PARTING: Duration = Duration::from_millis(1500);

/// What stream calls return when they would have to wait.
const WOULD_WAIT: isize = -2;

/// One end of the conversation, shared by the callbacks of the other.
struct Session {
    stream: Stream,
    to_guest: RefCell<VecDeque<u8>>,
    /// The user has said all.
    left: Cell<bool>,
    done: Cell<bool>,
}

/// Connects the terminal with a VM's console until either side has enough.
pub(crate) fn attach(libvirt: &Libvirt, uuid: uuid::Uuid, name: &str, force: bool) -> Result<()> {
    let stream = libvirt.open_console(uuid, force)?;
    let session = Rc::new(Session {
        stream: stream.clone(),
        to_guest: RefCell::default(),
        left: Cell::new(false),
        done: Cell::new(false),
    });
    let _raw = RawTerminal::enter(name)?;
    let failed = |error| Failure::new("the console is lost").because(error);
    let mut incoming = stream;
    let other = Rc::clone(&session);
    incoming
        .event_add_callback(watched(false), move |stream, _| other.hear_guest(stream))
        .map_err(failed)?;
    let other = Rc::clone(&session);
    let input = event::event_add_handle(
        io::stdin().as_raw_fd(),
        sys::VIR_EVENT_HANDLE_READABLE,
        move |_, _, _, _| other.hear_user(),
        std::ptr::null_mut(),
    )
    .map_err(failed)?;
    // Whoever sends a signal is heard within the second.
    let timer = event::event_add_timeout(100, |_, _| {}, std::ptr::null_mut()).map_err(failed)?;
    let mut over: Option<Instant> = None;
    while !session.done.get() && !interrupt::asked() {
        event::event_run_default_impl().map_err(failed)?;
        // What was typed last has to get to the guest, and its answer back.
        if session.left.get() {
            let over = *over.get_or_insert_with(|| Instant::now() + PARTING);
            session
                .done
                .set(session.done.get() || Instant::now() > over);
        }
    }
    let _ = timer.event_remove_timeout();
    let _ = input.event_remove_handle();
    Ok(())
}

fn watched(writable: bool) -> sys::virStreamEventType {
    let always =
        sys::VIR_STREAM_EVENT_READABLE | sys::VIR_STREAM_EVENT_ERROR | sys::VIR_STREAM_EVENT_HANGUP;
    match writable {
        true => always | sys::VIR_STREAM_EVENT_WRITABLE,
        false => always,
    }
}

impl Session {
    fn hear_guest(&self, stream: &Stream) {
        let mut buffer = [0; 4096];
        loop {
            match stream.recv(&mut buffer) {
                Ok(WOULD_WAIT) => break,
                Ok(length) if length > 0 => {
                    let bytes = &buffer[..usize::try_from(length).unwrap_or(0)];
                    let mut out = io::stdout().lock();
                    if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
                        return self.done.set(true);
                    }
                }
                // The VM has ended, or somebody else has taken the console.
                _ => return self.done.set(true),
            }
        }
        self.send();
    }

    fn hear_user(&self) {
        if self.left.get() {
            return;
        }
        let mut buffer = [0; 1024];
        let typed = match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(0) => return self.left.set(true),
            Ok(length) => &buffer[..length],
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return,
            Err(_) => return self.done.set(true),
        };
        let wanted = typed.iter().position(|byte| *byte == DETACH);
        let sent = &typed[..wanted.unwrap_or(typed.len())];
        self.to_guest.borrow_mut().extend(sent);
        self.send();
        if wanted.is_some() {
            self.done.set(true);
        }
    }

    /// Sends what the guest takes; it is told when it takes more.
    fn send(&self) {
        let mut waiting = self.to_guest.borrow_mut();
        while !waiting.is_empty() {
            let (first, _) = waiting.as_slices();
            match self.stream.send(first) {
                Ok(length) if length >= 0 => {
                    waiting.drain(..usize::try_from(length).unwrap_or(0));
                }
                Ok(_) => break,
                Err(_) => return self.done.set(true),
            }
        }
        let _ = self
            .stream
            .event_update_callback(watched(!waiting.is_empty()));
    }
}

/// A terminal that passes every key on; it is what it was when this is dropped.
struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    fn enter(name: &str) -> Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self { before: None });
        }
        let _ = writeln!(
            io::stderr(),
            "Console of {name}. Enter may be needed to see anything; Ctrl-] detaches."
        );
        let failed =
            |error: rustix::io::Errno| Failure::new("the terminal cannot be used").because(error);
        let before = tcgetattr(&stdin).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Flush, &raw).map_err(failed)?;
        Ok(Self {
            before: Some(before),
        })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
            let _ = writeln!(io::stderr());
        }
    }
}
