//! The monitors of a Ceph cluster: where a client asks first.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The address of a monitor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Monitor {
    /// A DNS name, or an IP address; IPv6 is without brackets.
    pub host: String,
    /// Never 0.
    pub port: u16,
}

impl Monitor {
    /// Where monitors listen for the first version of their protocol.
    pub const DEFAULT_PORT: u16 = 6789;

    /// Reads a comma-separated list of at least one `host[:port]`.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, MonitorError> {
        text.split(',')
            .map(|item| Self::parse(item.trim_ascii()))
            .collect()
    }

    /// Reads one `host[:port]`; an IPv6 address stands in brackets.
    pub fn parse(text: &str) -> Result<Self, MonitorError> {
        if text.is_empty() {
            return Err(MonitorError::Empty);
        }
        // With the colons of the address around, nobody could tell whether
        // the last group is a port.
        if text.parse::<Ipv6Addr>().is_ok() {
            return Err(MonitorError::NoBrackets);
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(bracketed) => split_bracketed(bracketed)?,
            None => split_plain(text)?,
        };
        let port = port.map_or(Ok(Self::DEFAULT_PORT), parse_port)?;
        Ok(Self { host, port })
    }
}

fn split_bracketed(text: &str) -> Result<(String, Option<&str>), MonitorError> {
    let (address, rest) = text.split_once(']').ok_or(MonitorError::BadHost)?;
    let address: Ipv6Addr = address.parse().map_err(|_| MonitorError::BadHost)?;
    let port = match rest.strip_prefix(':') {
        Some(port) => Some(port),
        None if rest.is_empty() => None,
        None => return Err(MonitorError::BadPort),
    };
    // The same host as by its IPv4 address.
    let host = match address.to_ipv4_mapped() {
        Some(mapped) => mapped.to_string(),
        None => address.to_string(),
    };
    Ok((host, port))
}

fn split_plain(text: &str) -> Result<(String, Option<&str>), MonitorError> {
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    if host.parse::<Ipv4Addr>().is_err() && !is_dns_name(host) {
        return Err(MonitorError::BadHost);
    }
    Ok((host.to_owned(), port))
}

/// No top-level domain is a number, so a name that ends in one is an IPv4
/// address gone wrong.
fn is_dns_name(name: &str) -> bool {
    // In hexadecimal, too: libraries take such names for addresses.
    let is_number = |label: &str| {
        let hex = label.strip_prefix("0x").or(label.strip_prefix("0X"));
        let is_hex = hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        is_hex || label.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.len() <= 253
        && name.split('.').all(is_dns_label)
        && !name.rsplit('.').next().is_some_and(is_number)
}

fn is_dns_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(is_allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn parse_port(text: &str) -> Result<u16, MonitorError> {
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if all_digits && port > 0 => Ok(port),
        _ => Err(MonitorError::BadPort),
    }
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a text is no [`Monitor`], or no list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonitorError {
    /// There is nothing, or nothing between two commas.
    Empty,
    /// The host is neither an IP address nor a DNS name.
    BadHost,
    /// The port is no number from 1 to 65535.
    BadPort,
    /// An IPv6 address stands without brackets.
    NoBrackets,
}

impl fmt::Display for MonitorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "has an empty address",
            Self::BadHost => "has a host that is neither an IP address nor a DNS name",
            Self::BadPort => "has a port that is not a number from 1 to 65535",
            Self::NoBrackets => {
                "has an IPv6 address without brackets: write [address] or [address]:port"
            }
        })
    }
}

impl std::error::Error for MonitorError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> Result<Vec<String>, MonitorError> {
        let monitors = Monitor::parse_list(text)?;
        Ok(monitors.iter().map(Monitor::to_string).collect())
    }

    #[test]
    fn hosts_of_every_family_get_a_port() {
        assert_eq!(
            list("10.192.0.1:6789, mon-a.ceph.svc ,[fd00::1]:3300,[FD00:0::2]").unwrap(),
            [
                "10.192.0.1:6789",
                "mon-a.ceph.svc:6789",
                "[fd00::1]:3300",
                "[fd00::2]:6789"
            ]
        );
        assert_eq!(Monitor::parse("[::1]").unwrap().host, "::1");
        assert_eq!(list("[::ffff:192.0.2.1]").unwrap(), ["192.0.2.1:6789"]);
    }

    #[test]
    fn what_is_no_address_is_refused_by_its_fault() {
        use MonitorError::*;
        for (text, problem) in [
            ("", Empty),
            ("a,", Empty),
            (",a", Empty),
            ("fd00::1", NoBrackets),
            ("::1", NoBrackets),
            ("a,fd00::1:6789", NoBrackets),
            ("10.0.0.256", BadHost),
            ("10.0.1:6789", BadHost),
            ("0xc0000201", BadHost),
            ("192.0.2.0x1:6789", BadHost),
            ("-a", BadHost),
            ("a..b", BadHost),
            ("a/b", BadHost),
            ("a b", BadHost),
            (":6789", BadHost),
            ("[fd00::1", BadHost),
            ("[10.0.0.1]", BadHost),
            ("[fe80::1%eth0]", BadHost),
            ("a:", BadPort),
            ("a:0", BadPort),
            ("a:65536", BadPort),
            ("a:+1", BadPort),
            ("a:1:2", BadPort),
            ("[::1]6789", BadPort),
            ("[::1]:", BadPort),
        ] {
            assert_eq!(list(text), Err(problem), "{text:?}");
        }
        assert_eq!(list(&"a".repeat(64)), Err(BadHost));
        assert_eq!(list(&"a.".repeat(127)), Err(BadHost));
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(text in "\\PC*|[a-c0-9.:,\\[\\]-]{0,20}") {
            if let Ok(monitors) = Monitor::parse_list(&text) {
                let printed: Vec<_> = monitors.iter().map(Monitor::to_string).collect();
                prop_assert_eq!(Monitor::parse_list(&printed.join(",")), Ok(monitors));
            }
        }
    }
}
