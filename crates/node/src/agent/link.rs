//! The connection to a launcher.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use disklet_core::config::Config;
use disklet_core::launch::protocol::{
    AGENT_SOCKET, FromAgent, FromLauncher, Inbox, Message, VERSION,
};
use disklet_core::names::PodUid;
use disklet_core::plan::Launcher;

use crate::executor::{Host, open_socket};
use crate::failure::{Failure, Result};

/// A launcher answers at once; one that does not is no launcher.
const PATIENCE: Duration = Duration::from_secs(10);
/// A launcher says little. One that says much is not heard any faster, so that it
/// takes no more time of ours.
const BREATH: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    /// The launcher's process, as this machine numbers it.
    pub(super) process: u32,
    /// What it said along with its hello.
    inbox: Mutex<Inbox<FromLauncher>>,
    wish: Arc<Wish>,
}

/// How long a launcher leaves its guest, until somebody asks: the shortest time
/// that it has said. However often it says so, that takes no more room.
#[derive(Debug, Default)]
struct Wish(Mutex<Option<u32>>);

impl Wish {
    /// Whether nobody had said anything.
    fn shorten(&self, grace: u32) -> bool {
        let mut wish = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = wish.replace(grace);
        if let Some(before) = before {
            *wish = Some(before.min(grace));
        }
        before.is_none()
    }

    fn take(&self) -> Option<u32> {
        let mut wish = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wish.take()
    }
}

impl Link {
    /// Connects, and both say who they are.
    pub(super) fn open(config: &Config, pod: &PodUid) -> Result<Self> {
        let failed = |error: io::Error| Failure::new("the launcher does not answer").because(error);
        let stream = connect(config, pod)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream);
        let peer = peer.map_err(|error| failed(error.into()))?;
        let link = Self {
            stream,
            process: peer.pid.as_raw_nonzero().get().unsigned_abs(),
            inbox: Mutex::default(),
            wish: Arc::default(),
        };
        link.say(&FromAgent::Hello { version: VERSION })?;
        link.demand_hello()?;
        Ok(link)
    }

    /// Whether somebody listens there.
    pub(super) fn is_there(config: &Config, pod: &PodUid) -> bool {
        connect(config, pod).is_ok()
    }

    fn demand_hello(&self) -> Result<()> {
        let failed = |error: io::Error| Failure::new("the launcher does not answer").because(error);
        let until = Instant::now() + PATIENCE;
        let mut inbox = self.inbox();
        let mut bytes = [0; 512];
        let mut breath = Duration::ZERO;
        loop {
            match inbox.take() {
                Ok(Some(FromLauncher::Hello { .. })) => break,
                Ok(Some(FromLauncher::Stop { .. })) => {
                    return Err(failed(io::Error::other("it does not begin with a hello")));
                }
                Ok(None) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(failed(io::ErrorKind::TimedOut.into()));
                    }
                    self.stream.set_read_timeout(Some(left)).map_err(failed)?;
                    let count = (&self.stream).read(&mut bytes).map_err(failed)?;
                    if count == 0 {
                        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
                    }
                    inbox.feed(&bytes[..count]);
                    std::thread::sleep(breath);
                    breath = BREATH;
                }
                Err(wrong) => return Err(failed(io::Error::other(wrong))),
            }
        }
        self.stream.set_read_timeout(None).map_err(failed)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox<FromLauncher>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says something; a launcher that does not listen is lost.
    pub(super) fn say(&self, message: &FromAgent) -> Result<()> {
        (&self.stream)
            .write_all(message.to_line().as_bytes())
            .map_err(|error| Failure::new("the launcher does not listen").because(error))
    }

    /// In how many seconds the guest shall have switched itself off, if the
    /// launcher has said so since it was last asked.
    pub(super) fn take_wish(&self) -> Option<u32> {
        self.wish.take()
    }

    /// Hears what it says, on a thread of its own, until it is gone. That the
    /// guest shall end is told once, until somebody takes the wish.
    pub(super) fn hear(&self, mut tell: impl FnMut(Heard) + Send + 'static) -> Result<()> {
        let stream = self.stream.try_clone();
        let mut stream =
            stream.map_err(|error| Failure::new("the launcher is lost").because(error))?;
        let mut inbox = std::mem::take(&mut *self.inbox());
        let wish = self.wish.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                match inbox.take() {
                    Ok(Some(FromLauncher::Stop { grace })) => {
                        if wish.shorten(grace) {
                            tell(Heard::Stop);
                        }
                    }
                    Ok(Some(FromLauncher::Hello { .. })) => {}
                    Ok(None) => {
                        std::thread::sleep(BREATH);
                        match stream.read(&mut bytes) {
                            Ok(count) if count > 0 => inbox.feed(&bytes[..count]),
                            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                            _ => break,
                        }
                    }
                    Err(_) => break,
                }
            }
            let _ = stream.shutdown(Shutdown::Both);
            tell(Heard::Gone);
        });
        Ok(())
    }
}

impl Drop for Link {
    /// Whoever hears it ends, too, although the launcher may hold on.
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn connect(config: &Config, pod: &PodUid) -> Result<UnixStream> {
    let directory = Launcher::directory(&config.kubelet_root, pod);
    let path = Path::new(&directory).join(AGENT_SOCKET);
    let socket = open_socket(Host(&config.host_root), &path)?;
    UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()))
        .map_err(|error| Failure::new("the launcher does not answer").because(error))
}

/// What comes from a launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// The guest shall switch itself off; the wish says how soon.
    Stop,
    /// It is not there any more.
    Gone,
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use disklet_core::launch::protocol::{Ended, How};

    use super::*;

    const POD: &str = "0b6f8c1e-3c3e-4d3e-9a86-3f6b2f5f9c11";

    /// A place where a launcher listens.
    struct Place {
        root: PathBuf,
        config: Config,
        pod: PodUid,
    }

    impl Place {
        fn new(name: &str) -> (Self, UnixListener) {
            let name = format!("disklet-link-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            let config = Config {
                kubelet_root: root.display().to_string(),
                ..Config::default()
            };
            let pod = PodUid::parse(POD).unwrap();
            let directory = Launcher::directory(&config.kubelet_root, &pod);
            std::fs::create_dir_all(&directory).unwrap();
            // Its whole path is longer than a socket's may be.
            let open = std::fs::File::open(&directory).unwrap();
            let place = format!("/proc/self/fd/{}/{AGENT_SOCKET}", open.as_raw_fd());
            let listener = UnixListener::bind(place).unwrap();
            (Self { root, config, pod }, listener)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.root).unwrap();
        }
    }

    fn hello() -> String {
        FromLauncher::Hello { version: VERSION }.to_line()
    }

    /// A launcher that was told to end says so to the next agent at once.
    #[test]
    fn what_comes_with_the_hello_is_heard() {
        let (place, listener) = Place::new("hello");
        let launcher = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let stop = FromLauncher::Stop { grace: 7 }.to_line();
            stream.write_all((hello() + &stop).as_bytes()).unwrap();
            stream
        });
        let link = Link::open(&place.config, &place.pod).unwrap();
        let (teller, heard) = channel();
        link.hear(move |heard| {
            let _ = teller.send(heard);
        })
        .unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Heard::Stop));
        assert_eq!((link.take_wish(), link.take_wish()), (Some(7), None));
        drop(launcher.join().unwrap());
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Heard::Gone));
    }

    /// One that holds on keeps no thread of ours.
    #[test]
    fn who_is_left_is_not_heard_any_more() {
        let (place, listener) = Place::new("left");
        let launcher = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(hello().as_bytes()).unwrap();
            stream
        });
        let link = Link::open(&place.config, &place.pod).unwrap();
        let (teller, heard) = channel();
        link.hear(move |heard| {
            let _ = teller.send(heard);
        })
        .unwrap();
        let mut held = launcher.join().unwrap();
        let ended = Ended {
            how: How::Off,
            why: String::new(),
        };
        link.say(&FromAgent::Ended(ended)).unwrap();
        drop(link);
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Heard::Gone));
        // What was said last is not lost.
        let mut said = String::new();
        held.read_to_string(&mut said).unwrap();
        assert!(said.contains("\"ended\""), "{said}");
    }

    /// Somebody who plays a launcher may say anything, and as fast as can be.
    #[test]
    fn a_flood_of_wishes_is_one_wish_and_is_read_slowly() {
        let (place, listener) = Place::new("flood");
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = sent.clone();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(hello().as_bytes()).unwrap();
            for grace in (1..u32::MAX).rev() {
                let stop = FromLauncher::Stop { grace }.to_line();
                if stream.write_all(stop.as_bytes()).is_err() {
                    return;
                }
                counter.fetch_add(stop.len(), Ordering::Relaxed);
            }
        });
        let link = Link::open(&place.config, &place.pod).unwrap();
        let (teller, heard) = channel();
        link.hear(move |heard| {
            let _ = teller.send(heard);
        })
        .unwrap();
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), [Heard::Stop]);
        assert!(link.take_wish().is_some_and(|grace| grace < u32::MAX - 100));
        // What a socket holds, and what is read in a second.
        let most = (1 << 20) + 4096 * 20 * 2;
        let sent = sent.load(Ordering::Relaxed);
        assert!(sent < most, "{sent} bytes were taken in a second");
    }

    #[test]
    fn who_does_not_begin_with_a_hello_is_not_heard() {
        let (place, listener) = Place::new("rude");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let stop = FromLauncher::Stop { grace: 7 }.to_line();
            while stream.write_all(stop.as_bytes()).is_ok() {}
        });
        let failure = Link::open(&place.config, &place.pod).unwrap_err();
        assert!(failure.to_string().contains("hello"), "{failure}");
    }

    #[test]
    fn who_says_other_things_for_ever_is_not_waited_for() {
        let (place, listener) = Place::new("chatty");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b"{\"type\":\"news\"}\n").is_ok() {}
        });
        let begun = Instant::now();
        Link::open(&place.config, &place.pod).unwrap_err();
        assert!(begun.elapsed() < PATIENCE * 2);
    }
}
