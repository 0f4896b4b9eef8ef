//! Whether servers are there, asked without using anything of theirs.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use disklet_core::source::{Door, Endpoint, Servers};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// What became of it.
#[derive(Debug)]
pub(crate) enum Answer {
    /// One is there.
    Given,
    /// Somebody takes connections, and says nothing.
    Silent,
    /// Nobody takes connections, though somebody might.
    None,
    /// Nobody is there, or can be reached from here.
    Unreached(io::Error),
}

impl Answer {
    /// Of two servers of a storage, one is enough.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Given, _) | (_, Self::Given) => Self::Given,
            (Self::Silent, _) | (_, Self::Silent) => Self::Silent,
            (Self::None, _) | (_, Self::None) => Self::None,
            (first, Self::Unreached(_)) => first,
        }
    }

    /// What is said of a server that is not there.
    pub(crate) fn missing_in_words(&self) -> Option<String> {
        match self {
            Self::Given => None,
            Self::Silent | Self::None => Some("does not answer".to_owned()),
            Self::Unreached(error) => Some(format!("cannot be reached: {error}")),
        }
    }
}

/// How long servers are waited for that have nothing to do but answer.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// Asks all servers of a storage at once; one that answers is enough.
pub(crate) fn knock(servers: &Servers, patience: Duration) -> Answer {
    knock_where(servers, patience, &|_, _| true)
}

/// The same of hosts that lead somewhere else now than when they were judged: only
/// addresses that are allowed for a host are asked.
pub(crate) fn knock_where(
    servers: &Servers,
    patience: Duration,
    allowed: &(dyn Fn(&str, IpAddr) -> bool + Sync),
) -> Answer {
    let words = servers.knock();
    std::thread::scope(|scope| {
        let asked = servers.doors().iter().map(|door| {
            let ask = move || ask(door, words, patience, allowed);
            // Without another thread they are asked one by one.
            let asker = std::thread::Builder::new().spawn_scoped(scope, ask);
            asker.map_err(|_| ask())
        });
        let asked: Vec<_> = asked.collect();
        let answers = asked.into_iter().map(|asked| match asked {
            Ok(thread) => thread.join().unwrap_or(Answer::None),
            Err(answer) => answer,
        });
        answers
            .reduce(Answer::or)
            .unwrap_or_else(|| Answer::Unreached(io::ErrorKind::NotFound.into()))
    })
}

fn ask(
    door: &Door,
    words: &[u8],
    patience: Duration,
    allowed: &(dyn Fn(&str, IpAddr) -> bool + Sync),
) -> Answer {
    let until = Instant::now() + patience;
    let asked = match door {
        Door::Port(endpoint) => reach(endpoint, until, allowed).and_then(|stream| {
            stream.set_read_timeout(Some(left(until)))?;
            Ok(heard(stream, words))
        }),
        Door::Socket(path) => reach_socket(path).and_then(|stream| {
            stream.set_read_timeout(Some(left(until)))?;
            Ok(heard(stream, words))
        }),
    };
    asked.unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Answer::None,
        _ => Answer::Unreached(error),
    })
}

fn reach(
    endpoint: &Endpoint,
    until: Instant,
    allowed: &(dyn Fn(&str, IpAddr) -> bool + Sync),
) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in (endpoint.host(), endpoint.port()).to_socket_addrs()? {
        if !allowed(endpoint.host(), address.ip()) {
            last = io::ErrorKind::PermissionDenied.into();
            continue;
        }
        match TcpStream::connect_timeout(&address, left(until)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Where too many wait already, one would wait for ever.
fn reach_socket(path: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// What it says does not matter, and whoever hangs up is there.
fn heard(mut stream: impl Read + Write, words: &[u8]) -> Answer {
    let heard = stream
        .write_all(words)
        .and_then(|()| stream.read(&mut [0; 1]));
    match heard {
        Ok(_) => Answer::Given,
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Answer::Given,
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Answer::Silent,
            _ => Answer::Unreached(error),
        },
    }
}

/// Never nothing: that would be for ever.
fn left(until: Instant) -> Duration {
    let left = until.saturating_duration_since(Instant::now());
    left.max(Duration::from_millis(1))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use serde_json::json;

    use super::*;

    fn ask_at(ports: &[u16]) -> Answer {
        let places: Vec<_> = ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect();
        let servers = Servers::shown(&json!({"kind": "rbd", "monitors": places})).unwrap();
        knock(&servers, Duration::from_millis(200))
    }

    fn listener() -> (TcpListener, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, port)
    }

    #[test]
    fn who_may_not_be_asked_is_not() {
        let (listener, port) = listener();
        let place = format!("127.0.0.1:{port}");
        let servers = Servers::shown(&json!({"kind": "nbd", "server": place})).unwrap();
        let none = |host: &str, _: IpAddr| host != "127.0.0.1";
        let answer = knock_where(&servers, Duration::from_millis(200), &none);
        assert!(matches!(answer, Answer::Unreached(_)), "{answer:?}");
        listener.set_nonblocking(true).unwrap();
        listener.accept().unwrap_err();
    }

    #[test]
    fn who_is_there_and_who_answers_are_told_apart() {
        let (silent, silent_port) = listener();
        let (answering, port) = listener();
        let gone = listener().1;
        std::thread::spawn(move || {
            for stream in answering.incoming() {
                let _ = stream.unwrap().write_all(b"ceph v2\n");
            }
        });
        assert!(matches!(ask_at(&[port]), Answer::Given));
        assert!(matches!(ask_at(&[silent_port]), Answer::Silent));
        assert!(matches!(ask_at(&[gone]), Answer::Unreached(_)));
        assert!(matches!(ask_at(&[gone, silent_port]), Answer::Silent));
        assert!(matches!(ask_at(&[silent_port, gone, port]), Answer::Given));
        drop(silent);
    }

    #[test]
    fn where_too_many_wait_already_nobody_waits() {
        let path = std::env::temp_dir().join(format!("disklet-knock-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let shown = path.to_str().unwrap();
        let servers = Servers::shown(&json!({"kind": "nbd", "socket": shown})).unwrap();
        let ask = || knock(&servers, Duration::from_millis(100));
        assert!(matches!(ask(), Answer::Silent));
        while reach_socket(shown).is_ok() {}
        assert!(matches!(ask(), Answer::None));
        drop(listener);
        assert!(matches!(ask(), Answer::Unreached(_)));
        std::fs::remove_file(&path).unwrap();
    }
}
