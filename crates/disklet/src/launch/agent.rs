//! The node's agent: it connects, and says how the VM is.

use std::io::Read;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use disklet_core::launch::protocol::{FromAgent, Inbox};

/// What the launcher has to react to.
#[derive(Debug)]
pub(super) enum Event {
    /// An agent has said who it is.
    Came(Connection),
    /// An agent says something.
    Said(usize, FromAgent),
    /// A connection has ended, and why if it should not have.
    Left(usize, Option<String>),
    /// The pod shall end.
    ToldToEnd,
}

/// A connection with an agent.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: usize,
    pub(super) stream: UnixStream,
}

/// Whoever does not say who it is in this time is not the agent.
const TO_SAY_HELLO: Duration = Duration::from_secs(5);
/// Nor can it be so many at once.
const MOST_STRANGERS: usize = 8;

/// Takes connections from now on.
pub(super) fn listen(listener: UnixListener, events: SyncSender<Event>) {
    thread::spawn(move || {
        let strangers = Arc::new(AtomicUsize::new(0));
        for number in 0.. {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if strangers.load(Ordering::SeqCst) >= MOST_STRANGERS {
                continue;
            }
            strangers.fetch_add(1, Ordering::SeqCst);
            let (strangers, events) = (Arc::clone(&strangers), events.clone());
            thread::spawn(move || serve(number, stream, &strangers, &events));
        }
    });
}

fn serve(
    number: usize,
    mut stream: UnixStream,
    strangers: &AtomicUsize,
    events: &SyncSender<Event>,
) {
    let mut inbox = Inbox::default();
    let greeted = hello(&mut stream, &mut inbox);
    strangers.fetch_sub(1, Ordering::SeqCst);
    let Ok(own) = stream.try_clone() else { return };
    if !greeted {
        let _ = stream.shutdown(Shutdown::Both);
        return;
    }
    let connection = Connection {
        number,
        stream: own,
    };
    if events.send(Event::Came(connection)).is_err() {
        return;
    }
    let why = listen_to(number, &mut stream, &mut inbox, events);
    let _ = stream.shutdown(Shutdown::Both);
    let _ = events.send(Event::Left(number, why));
}

/// Whether the first that it says is who it is.
fn hello(stream: &mut UnixStream, inbox: &mut Inbox<FromAgent>) -> bool {
    if stream.set_read_timeout(Some(TO_SAY_HELLO)).is_err() {
        return false;
    }
    let said = next(stream, inbox);
    stream.set_read_timeout(None).is_ok() && matches!(said, Ok(Some(FromAgent::Hello { .. })))
}

fn listen_to(
    number: usize,
    stream: &mut UnixStream,
    inbox: &mut Inbox<FromAgent>,
    events: &SyncSender<Event>,
) -> Option<String> {
    loop {
        match next(stream, inbox) {
            Ok(Some(message)) => events.send(Event::Said(number, message)).ok()?,
            Ok(None) => return None,
            Err(why) => return Some(why),
        }
    }
}

/// The next message; none when the connection has ended.
fn next(
    stream: &mut UnixStream,
    inbox: &mut Inbox<FromAgent>,
) -> Result<Option<FromAgent>, String> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(message) = inbox.take().map_err(|wrong| wrong.to_string())? {
            return Ok(Some(message));
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(read) => inbox.feed(&bytes[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
