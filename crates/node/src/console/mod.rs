//! `console`: the user's terminal becomes the guest's.

mod course;
mod terminal;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::rc::Rc;

use uuid::Uuid;
use virt::event;
use virt::stream::Stream;
use virt::sys;

use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;

pub(crate) use course::Parting;

use course::Course;
use terminal::RawTerminal;

/// Ctrl-], as in telnet and virsh: nothing in a guest needs it.
const DETACH: u8 = 0x1d;

/// What stream calls return when they would have to wait.
const WOULD_WAIT: isize = -2;

/// One end of the conversation, shared by the callbacks of the other.
struct Session {
    stream: Stream,
    to_guest: RefCell<VecDeque<u8>>,
    /// The user has said all.
    left: Cell<bool>,
    /// The user wants to hear no more.
    detached: Cell<bool>,
    /// The guest's side is closed.
    closed: Cell<bool>,
    /// What was heard cannot be written.
    unheard: RefCell<Option<io::Error>>,
}

/// Connects the terminal with a VM's console until either side has enough.
pub(crate) fn attach(libvirt: &Libvirt, uuid: Uuid, name: &str, force: bool) -> Result<Parting> {
    let events = libvirt.listen()?;
    let stream = libvirt.open_console(uuid, force)?;
    let session = Rc::new(Session {
        stream: stream.clone(),
        to_guest: RefCell::default(),
        left: Cell::new(false),
        detached: Cell::new(false),
        closed: Cell::new(false),
        unheard: RefCell::new(None),
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
    let mut course = Course::new(libvirt, uuid, events);
    let outcome = loop {
        if let Err(error) = event::event_run_default_impl() {
            break Err(failed(error));
        }
        if let Some(outcome) = course.outcome(&session) {
            break outcome;
        }
    };
    let _ = timer.event_remove_timeout();
    let _ = input.event_remove_handle();
    outcome
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
        while !self.closed.get() {
            match stream.recv(&mut buffer) {
                Ok(WOULD_WAIT) => break,
                Ok(length) if length > 0 => {
                    let bytes = &buffer[..usize::try_from(length).unwrap_or(0)];
                    let mut out = io::stdout().lock();
                    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
                        *self.unheard.borrow_mut() = Some(error);
                        return;
                    }
                }
                // The VM has ended, or somebody else has taken the console.
                _ => return self.close(),
            }
        }
        self.send();
    }

    /// Its end would be told again and again.
    fn close(&self) {
        self.closed.set(true);
        let _ = self.stream.event_update_callback(0);
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
            Err(_) => return self.detached.set(true),
        };
        let wanted = typed.iter().position(|byte| *byte == DETACH);
        let sent = &typed[..wanted.unwrap_or(typed.len())];
        self.to_guest.borrow_mut().extend(sent);
        self.send();
        if wanted.is_some() {
            self.detached.set(true);
        }
    }

    /// Sends what the guest takes; it is told when it takes more.
    fn send(&self) {
        if self.closed.get() {
            return;
        }
        let mut waiting = self.to_guest.borrow_mut();
        while !waiting.is_empty() {
            let (first, _) = waiting.as_slices();
            match self.stream.send(first) {
                Ok(length) if length >= 0 => {
                    waiting.drain(..usize::try_from(length).unwrap_or(0));
                }
                Ok(_) => break,
                Err(_) => return self.close(),
            }
        }
        let _ = self
            .stream
            .event_update_callback(watched(!waiting.is_empty()));
    }
}
