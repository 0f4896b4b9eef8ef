//! Where a server listens.

use std::fmt;
use std::net::IpAddr;

use disklet_flexvolume::Monitor;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    host: String,
    port: u16,
}

impl Endpoint {
    /// What a host may be.
    pub const ALLOWED: &str = "a DNS name, an IPv4 address, or an IPv6 address";

    /// A host by name or address, IPv6 with or without brackets.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Option<Self> {
        let bracketed = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        let bare = bracketed.unwrap_or(host);
        let written = match bare.contains(':') {
            true => format!("[{bare}]"),
            false => bare.to_owned(),
        };
        // Case has no meaning in it, and two spellings are one server.
        let host = Monitor::parse(&written).ok()?.host.to_ascii_lowercase();
        (port > 0).then_some(Self { host, port })
    }

    /// Reads `host[:port]`; IPv6 with a port stands in brackets.
    #[must_use]
    pub fn parse(text: &str, default_port: u16) -> Option<Self> {
        if let Some(whole) = Self::new(text, default_port) {
            return Some(whole);
        }
        let read = Monitor::parse(text).ok()?;
        Self::new(&read.host, read.port)
    }

    /// Equal for names that are the same host's: case does not count.
    pub(crate) fn in_lower_case(&self) -> Self {
        Self {
            host: self.host.to_ascii_lowercase(),
            port: self.port,
        }
    }

    /// A DNS name or an IP address; IPv6 is without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The address, unless it is a name.
    #[must_use]
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// The same port at an address.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Self {
        Self {
            host: address.to_string(),
            port: self.port,
        }
    }

    /// Never 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl From<&Monitor> for Endpoint {
    fn from(monitor: &Monitor) -> Self {
        Self {
            host: monitor.host.to_ascii_lowercase(),
            port: monitor.port,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_every_family_are_read() {
        let read = |text| Endpoint::parse(text, 3260).map(|it| it.to_string());
        for (text, wanted) in [
            ("Example.com", "example.com:3260"),
            ("example.com:3261", "example.com:3261"),
            ("10.0.0.1", "10.0.0.1:3260"),
            ("[fd00::1]:80", "[fd00::1]:80"),
            ("[FD00::1]", "[fd00::1]:3260"),
            ("fd00::1", "[fd00::1]:3260"),
        ] {
            assert_eq!(read(text).as_deref(), Some(wanted), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            ":80",
            "a b",
            "a/b",
            "a:0",
            "a:65536",
            "a:x",
            "10.0.0.256",
            "[::1",
            "a,b",
            "-a",
            "a?b",
            "user@host",
            "a\0",
        ] {
            assert_eq!(Endpoint::parse(text, 1), None, "{text:?}");
        }
        assert_eq!(Endpoint::new("a:80", 1), None);
        assert_eq!(Endpoint::new("a", 0), None);
    }
}
