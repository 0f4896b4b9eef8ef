//! The connection to a launcher.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
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

#[derive(Debug)]
pub(super) struct Link {
    stream: UnixStream,
    /// The launcher's process, as this machine numbers it.
    pub(super) process: u32,
    /// What it said along with its hello.
    inbox: Mutex<Inbox<FromLauncher>>,
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
        loop {
            match inbox.take() {
                Ok(Some(FromLauncher::Hello { .. })) => break,
                Ok(Some(FromLauncher::Stop { .. })) => {}
                Ok(None) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let left = left.max(Duration::from_millis(1));
                    self.stream.set_read_timeout(Some(left)).map_err(failed)?;
                    let count = (&self.stream).read(&mut bytes).map_err(failed)?;
                    if count == 0 {
                        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
                    }
                    inbox.feed(&bytes[..count]);
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

    /// Hears what it says, on a thread of its own, until it is gone.
    pub(super) fn hear(&self, mut tell: impl FnMut(Heard) + Send + 'static) -> Result<()> {
        let stream = self.stream.try_clone();
        let mut stream =
            stream.map_err(|error| Failure::new("the launcher is lost").because(error))?;
        let mut inbox = std::mem::take(&mut *self.inbox());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            loop {
                match inbox.take() {
                    Ok(Some(FromLauncher::Stop { grace })) => tell(Heard::Stop(grace)),
                    Ok(Some(FromLauncher::Hello { .. })) => {}
                    Ok(None) => match stream.read(&mut bytes) {
                        Ok(count) if count > 0 => inbox.feed(&bytes[..count]),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        _ => break,
                    },
                    Err(_) => break,
                }
            }
            let _ = stream.shutdown(std::net::Shutdown::Both);
            tell(Heard::Gone);
        });
        Ok(())
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
    /// The guest shall switch itself off, within so many seconds.
    Stop(u32),
    /// It is not there any more.
    Gone,
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::channel;

    use super::*;

    /// A launcher that was told to end says so to the next agent at once.
    #[test]
    fn what_comes_with_the_hello_is_heard() {
        let root = std::env::temp_dir().join(format!("disklet-link-{}", std::process::id()));
        let config = Config {
            kubelet_root: root.display().to_string(),
            ..Config::default()
        };
        let pod = PodUid::parse("0b6f8c1e-3c3e-4d3e-9a86-3f6b2f5f9c11").unwrap();
        let directory = Launcher::directory(&config.kubelet_root, &pod);
        std::fs::create_dir_all(&directory).unwrap();
        // Its whole path is longer than a socket's may be.
        let open = std::fs::File::open(&directory).unwrap();
        let place = format!("/proc/self/fd/{}/{AGENT_SOCKET}", open.as_raw_fd());
        let listener = UnixListener::bind(place).unwrap();
        let launcher = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let hello = FromLauncher::Hello { version: VERSION }.to_line();
            let stop = FromLauncher::Stop { grace: 7 }.to_line();
            stream.write_all((hello + &stop).as_bytes()).unwrap();
            stream
        });
        let link = Link::open(&config, &pod).unwrap();
        let (teller, heard) = channel();
        link.hear(move |heard| {
            let _ = teller.send(heard);
        })
        .unwrap();
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Heard::Stop(7)));
        drop(launcher.join().unwrap());
        assert_eq!(heard.recv_timeout(PATIENCE), Ok(Heard::Gone));
        std::fs::remove_dir_all(&root).unwrap();
    }
}
