//! How a server is asked whether it is there, without a key and without using
//! anything: by what one of its kind answers at once, whoever asks.

use std::fmt;

use serde_json::Value;

use super::{Endpoint, Nbd, NbdServer, Network};

/// The servers of a storage: where they listen, and what they speak. One that
/// answers is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Servers {
    protocol: &'static str,
    doors: Vec<Door>,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    /// On a port.
    Port(Endpoint),
    /// On a socket of the node.
    Socket(String),
}

/// A login without a word in it: flags that ask for the last stage, no keys.
/// Targets say that something is missing, or hang up.
const ISCSI: [u8; 48] = {
    let mut login = [0; 48];
    (login[0], login[1]) = (0x43, 0x87);
    login
};

/// A call, in ONC RPC, of what every Gluster server has: the list of what it has.
#[rustfmt::skip]
const GLUSTER: [u8; 44] = [
    0x80, 0, 0, 40, // the last fragment, of 40 bytes
    0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, // number, call, version of RPC
    0x07, 0x5b, 0xb8, 0x6d, 0, 0, 0, 1, 0, 0, 0, 1, // program 123451501, version, procedure
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // nobody in particular
];

/// Servers that speak TLS say that this is none, or hang up.
const WEB: &[u8] = b"OPTIONS * HTTP/1.0\r\n\r\n";

impl Servers {
    /// Those of a storage.
    #[must_use]
    pub fn of(network: &Network) -> Self {
        let doors = match network {
            Network::Nbd(Nbd {
                server: NbdServer::Unix(path),
                ..
            }) => vec![Door::Socket(path.as_str().to_owned())],
            network => network
                .endpoints()
                .iter()
                .cloned()
                .map(Door::Port)
                .collect(),
        };
        Self {
            protocol: network.protocol(),
            doors,
        }
    }

    /// Those of a disk's source, as a plan shows it; nothing if it is at none.
    #[must_use]
    pub fn shown(source: &Value) -> Option<Self> {
        let (protocol, key) = match source["kind"].as_str()? {
            "iscsi" => ("iscsi", "portal"),
            "rbd" => ("rbd", "monitors"),
            "nbd" if source["socket"].is_string() => ("nbd", "socket"),
            "nbd" => ("nbd", "server"),
            "gluster" => ("gluster", "hosts"),
            "http" => ("http", "url"),
            "https" => ("https", "url"),
            _ => return None,
        };
        let texts: Vec<&str> = match &source[key] {
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        let door = |text: &&str| match key {
            "socket" => Some(Door::Socket((*text).to_owned())),
            "url" => {
                let server = text.split_once("://")?.1.split('/').next()?;
                Endpoint::parse(server, u16::MAX).map(Door::Port)
            }
            // A plan always shows the port.
            _ => Endpoint::parse(text, u16::MAX).map(Door::Port),
        };
        let doors: Vec<_> = texts.iter().filter_map(door).collect();
        (!doors.is_empty()).then_some(Self { protocol, doors })
    }

    /// Where they listen.
    #[must_use]
    pub fn doors(&self) -> &[Door] {
        &self.doors
    }

    /// Whether one that says nothing may be there for somebody else: there are NBD servers
    /// that take one client at a time.
    #[must_use]
    pub fn may_be_busy(&self) -> bool {
        self.protocol == "nbd"
    }

    /// What to say first. NBD servers and Ceph's monitors speak first themselves.
    #[must_use]
    pub fn knock(&self) -> &'static [u8] {
        match self.protocol {
            "iscsi" => &ISCSI,
            "gluster" => &GLUSTER,
            "http" | "https" => WEB,
            _ => &[],
        }
    }
}

/// For people.
impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.doors.len() == 1 { "" } else { "s" };
        write!(f, "{} server{plural} ", self.protocol)?;
        for (nth, door) in self.doors.iter().enumerate() {
            let before = if nth == 0 { "" } else { ", " };
            match door {
                Door::Port(endpoint) => write!(f, "{before}{endpoint}")?,
                Door::Socket(path) => write!(f, "{before}{path}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_plan_shows_is_found_again() {
        for (source, words) in [
            (
                json!({"kind": "iscsi", "portal": "a:3260"}),
                "iscsi server a:3260",
            ),
            (
                json!({"kind": "rbd", "monitors": ["a:1", "[fd00::1]:2"]}),
                "rbd servers a:1, [fd00::1]:2",
            ),
            (
                json!({"kind": "nbd", "server": "a:10809"}),
                "nbd server a:10809",
            ),
            (
                json!({"kind": "nbd", "socket": "/run/s"}),
                "nbd server /run/s",
            ),
            (
                json!({"kind": "gluster", "hosts": ["a:24007"], "path": "d"}),
                "gluster server a:24007",
            ),
            (
                json!({"kind": "https", "url": "https://a:443/disk one"}),
                "https server a:443",
            ),
        ] {
            let servers = Servers::shown(&source).unwrap();
            assert_eq!(servers.to_string(), words);
        }
        assert_eq!(Servers::shown(&json!({"kind": "image"})), None);
        assert_eq!(Servers::shown(&json!(null)), None);
    }

    #[test]
    fn calls_are_as_long_as_they_say() {
        let length = usize::from(GLUSTER[3]);
        assert_eq!(GLUSTER.len(), 4 + length);
        let program = u32::from_be_bytes([GLUSTER[16], GLUSTER[17], GLUSTER[18], GLUSTER[19]]);
        assert_eq!(program, 123_451_501);
    }
}
