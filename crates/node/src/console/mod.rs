//! `console`: the user's terminal becomes the guest's.

mod course;
mod feed;

use std::cell::{Cell, RefCell};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use disklet::terminal::{DETACH, RawTerminal};
use uuid::Uuid;
use virt::event::{self, EventHandleWatch};
use virt::stream::Stream;
use virt::sys;

use crate::failure::{Failure, Result};
use crate::libvirt::Libvirt;

pub(crate) use course::Parting;

use course::Course;
use feed::{Feed, WOULD_WAIT};

/// What a terminal rings when it takes no more.
const BELL: &[u8] = b"\x07";

/// One end of the conversation, shared by the callbacks of the other.
struct Session {
    stream: Stream,
    to_guest: Arc<Feed>,
    /// The user types, rather than a program.
    typed: bool,
    /// The user has said all.
    left: Cell<bool>,
    /// Since when the user wants to hear no more.
    detached: Cell<Option<Instant>>,
    /// The guest's side is closed.
    closed: Cell<bool>,
    /// What was heard cannot be written.
    unheard: RefCell<Option<io::Error>>,
}

/// Connects the terminal with a VM's console until either side has enough. The
/// console has a connection `apart`, since a guest that does not read blocks it.
pub(crate) fn attach(
    libvirt: &Libvirt,
    apart: &Libvirt,
    uuid: Uuid,
    name: &str,
    force: bool,
) -> Result<Parting> {
    let events = libvirt.listen()?;
    let stream = apart.open_console(uuid, force)?;
    let (to_guest, sender) = Feed::begin(stream.clone());
    let session = Rc::new(Session {
        stream: stream.clone(),
        to_guest,
        typed: io::stdin().is_terminal(),
        left: Cell::new(false),
        detached: Cell::new(None),
        closed: Cell::new(false),
        unheard: RefCell::new(None),
    });
    let _raw = RawTerminal::enter(name)
        .map_err(|error| Failure::new("the terminal cannot be used").because(error))?;
    let failed = |error| Failure::new("the console is lost").because(error);
    let mut incoming = stream;
    let other = Rc::clone(&session);
    incoming
        .event_add_callback(WATCHED, move |stream, _| other.hear_guest(stream))
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
    let mut course = Course::new(libvirt, apart, uuid, events);
    let outcome = loop {
        if let Err(error) = event::event_run_default_impl() {
            break Err(failed(error));
        }
        if let Some(outcome) = course.outcome(&session) {
            break outcome;
        }
        session.listen_if_there_is_room(&input);
    };
    session.to_guest.end();
    if session.to_guest.is_done() {
        let _ = sender.join();
    }
    if session.to_guest.was_used() && !session.closed.get() {
        take_from_ourselves(libvirt, uuid);
    }
    let _ = timer.event_remove_timeout();
    let _ = input.event_remove_handle();
    outcome
}

/// While the guest has not read all that was sent, which nobody tells us, the
/// daemon does not hear that we leave: the next who wants the console would be
/// told that somebody has it. So it is taken over by a connection that the daemon
/// does listen to, and is free when that is closed. An abort would wait for the
/// guest as well.
fn take_from_ourselves(libvirt: &Libvirt, uuid: Uuid) {
    drop(libvirt.open_console(uuid, true));
}

const WATCHED: sys::virStreamEventType =
    sys::VIR_STREAM_EVENT_READABLE | sys::VIR_STREAM_EVENT_ERROR | sys::VIR_STREAM_EVENT_HANGUP;

impl Session {
    fn hear_guest(&self, stream: &Stream) {
        let mut buffer = [0; 4096];
        while !self.closed.get() {
            match stream.recv(&mut buffer) {
                Ok(WOULD_WAIT) => break,
                Ok(length) if length > 0 => {
                    let bytes = &buffer[..usize::try_from(length).unwrap_or(0)];
                    if let Err(error) = show(bytes) {
                        *self.unheard.borrow_mut() = Some(error);
                        return;
                    }
                }
                // The VM has ended, or somebody else has taken the console.
                _ => return self.close(),
            }
        }
    }

    /// Its end would be told again and again.
    fn close(&self) {
        self.closed.set(true);
        let _ = self.stream.event_update_callback(0);
    }

    fn hear_user(&self) {
        if self.left.get() || self.detached.get().is_some() {
            return;
        }
        let mut buffer = [0; 1024];
        let heard = match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(0) => return self.left.set(true),
            Ok(length) => &buffer[..length],
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return,
            Err(_) => return self.detached.set(Some(Instant::now())),
        };
        let wanted = heard.iter().position(|byte| *byte == DETACH);
        let sent = &heard[..wanted.unwrap_or(heard.len())];
        // Whoever types is heard even if there is no room: the key to leave by
        // may be among it.
        if self.to_guest.take(sent) < sent.len() {
            let _ = show(BELL);
        }
        if wanted.is_some() {
            self.detached.set(Some(Instant::now()));
        }
    }

    /// A program waits until there is room again.
    fn listen_if_there_is_room(&self, input: &EventHandleWatch) {
        let is_over = self.left.get() || self.detached.get().is_some();
        let has_room = self.typed || !self.to_guest.is_full();
        input.event_update_handle(match has_room && !is_over {
            true => sys::VIR_EVENT_HANDLE_READABLE,
            false => 0,
        });
    }
}

fn show(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}
