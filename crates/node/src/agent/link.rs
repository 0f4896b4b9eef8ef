//! The connection to a launcher.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
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
}

impl Link {
    /// Connects, and both say who they are.
    pub(super) fn open(config: &Config, pod: &PodUid) -> Result<Self> {
        let directory = Launcher::directory(&config.kubelet_root, pod);
        let path = Path::new(&directory).join(AGENT_SOCKET);
        let socket = open_socket(Host(&config.host_root), &path)?;
        let failed = |error: io::Error| Failure::new("the launcher does not answer").because(error);
        let stream = UnixStream::connect(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        let stream = stream.map_err(failed)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(failed)?;
        let peer = rustix::net::sockopt::socket_peercred(&stream);
        let peer = peer.map_err(|error| failed(error.into()))?;
        let link = Self {
            stream,
            process: peer.pid.as_raw_nonzero().get().unsigned_abs(),
        };
        link.say(&FromAgent::Hello { version: VERSION })?;
        link.demand_hello()?;
        Ok(link)
    }

    fn demand_hello(&self) -> Result<()> {
        let failed = |error: io::Error| Failure::new("the launcher does not answer").because(error);
        let until = Instant::now() + PATIENCE;
        let mut inbox = Inbox::<FromLauncher>::default();
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
        std::thread::spawn(move || {
            let mut inbox = Inbox::<FromLauncher>::default();
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

/// What comes from a launcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// The guest shall switch itself off, within so many seconds.
    Stop(u32),
    /// It is not there any more.
    Gone,
}
