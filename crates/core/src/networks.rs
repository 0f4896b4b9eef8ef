//! Which servers VMs may have their disks at.
//!
//! QEMU runs on the node and reaches what the node reaches: also what listens
//! for the node alone, and a cloud's metadata with its keys.

use std::fmt;
use std::net::IpAddr;

/// Addresses with a common beginning, such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    address: IpAddr,
    prefix: u32,
}

impl Subnet {
    /// What a network may be.
    pub const ALLOWED: &str = "ADDRESS/LENGTH such as 10.0.0.0/8 or fd00::/8, or one address";

    /// Reads a network, or an address for itself alone.
    pub fn parse(text: &str) -> Result<Self, SubnetError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| SubnetError::BadAddress)?;
        let bits = bits_of(address);
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = match length {
            None => bits,
            Some(text) => text
                .parse()
                .ok()
                .filter(|prefix| is_number(text) && *prefix <= bits)
                .ok_or(SubnetError::BadLength)?,
        };
        let network = Self { address, prefix };
        match network.beginning_of(address) == number_of(address) {
            true => Ok(network),
            false => Err(SubnetError::BitsBeyond),
        }
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let same_family = bits_of(address) == bits_of(self.address);
        same_family && self.beginning_of(address) == number_of(self.address)
    }

    /// An address without what follows the prefix.
    fn beginning_of(&self, address: IpAddr) -> u128 {
        let rest = bits_of(self.address) - self.prefix;
        number_of(address) & u128::MAX.checked_shl(rest).unwrap_or(0)
    }
}

fn bits_of(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn number_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Why a text is no [`Subnet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubnetError {
    /// No address stands before the `/`.
    BadAddress,
    /// The length is no number of bits that the address has.
    BadLength,
    /// The address goes on after the length.
    BitsBeyond,
}

impl fmt::Display for SubnetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadAddress => "has no IPv4 or IPv6 address",
            Self::BadLength => "has a length that is not 0 to 32, or to 128 for IPv6",
            Self::BitsBeyond => "has an address that goes on after its length",
        })
    }
}

/// What an administrator says of networks. The smallest one that holds an
/// address decides; of equal ones the allowed; in none, an address is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks {
    /// Where no VM may have a disk.
    pub deny: Vec<Subnet>,
    /// Where VMs may, although it is in a network that is denied.
    pub allow: Vec<Subnet>,
    /// Whether QEMU may open files of web servers, which send it on to wherever
    /// they like, at every request; absent: unless it is for tenants.
    pub web: Option<bool>,
}

/// Links of the node, and where clouds have their metadata: most have it at a link.
const LINKS: [&str; 6] = [
    "169.254.0.0/16",
    "fe80::/10",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
    "100.100.100.200/32",
    "168.63.129.16/32",
];

/// The node itself; what has no address at all is the node, too.
const LOOPBACK: [&str; 4] = ["127.0.0.0/8", "0.0.0.0/8", "::1/128", "::/128"];

impl Networks {
    /// For users who own the machine: what it reaches is theirs, but for the
    /// metadata of clouds.
    #[must_use]
    pub fn of_owner() -> Self {
        Self::without(LINKS.iter())
    }

    /// For tenants of a cluster, to whom the node itself is closed as well.
    #[must_use]
    pub fn of_tenants() -> Self {
        Self::of_owner().closed_to_tenants()
    }

    /// The same for tenants of a cluster, unless it says otherwise of the node
    /// itself.
    #[must_use]
    pub fn closed_to_tenants(mut self) -> Self {
        let node = Self::without(LOOPBACK.iter()).deny.into_iter();
        let new: Vec<_> = node.filter(|subnet| !self.deny.contains(subnet)).collect();
        self.deny.extend(new);
        self.web.get_or_insert(false);
        self
    }

    fn without<'n>(denied: impl Iterator<Item = &'n &'static str>) -> Self {
        Self {
            deny: denied.filter_map(|text| Subnet::parse(text).ok()).collect(),
            allow: Vec::new(),
            web: None,
        }
    }

    /// Whether QEMU may open files of web servers.
    #[must_use]
    pub fn allows_web(&self) -> bool {
        self.web.unwrap_or(true)
    }

    /// The network because of which an address is denied, if it is.
    #[must_use]
    pub fn denied(&self, address: IpAddr) -> Option<Subnet> {
        let address = address.to_canonical();
        let smallest = |among: &[Subnet]| {
            let holding = among.iter().filter(|network| network.contains(address));
            holding.max_by_key(|network| network.prefix).copied()
        };
        let denied = smallest(&self.deny)?;
        let allowed = smallest(&self.allow);
        allowed
            .is_none_or(|allowed| allowed.prefix < denied.prefix)
            .then_some(denied)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subnet(text: &str) -> Subnet {
        Subnet::parse(text).unwrap()
    }

    #[test]
    fn networks_are_read_as_administrators_write_them() {
        for (text, printed) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("192.0.2.7", "192.0.2.7/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("FD00::/8", "fd00::/8"),
            ("::/0", "::/0"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(subnet(text).to_string(), printed);
        }
    }

    #[test]
    fn what_is_no_network_is_refused_by_its_fault() {
        use SubnetError::*;
        for (text, problem) in [
            ("", BadAddress),
            ("/8", BadAddress),
            ("10.0.0/8", BadAddress),
            ("example.com", BadAddress),
            ("[::1]/128", BadAddress),
            ("10.0.0.0/", BadLength),
            ("10.0.0.0/33", BadLength),
            ("10.0.0.0/+8", BadLength),
            ("10.0.0.0/8/8", BadLength),
            ("::/129", BadLength),
            ("10.0.0.1/8", BitsBeyond),
            ("fd00::1/8", BitsBeyond),
        ] {
            assert_eq!(Subnet::parse(text), Err(problem), "{text:?}");
        }
    }

    #[test]
    fn metadata_is_denied_and_the_node_itself_to_tenants() {
        let denied = |networks: &Networks, text: &str| networks.denied(text.parse().unwrap());
        let (owner, tenants) = (Networks::of_owner(), Networks::of_tenants());
        for metadata in [
            "169.254.169.254",
            "fe80::1",
            "::ffff:169.254.169.254",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
        ] {
            assert!(denied(&owner, metadata).is_some(), "{metadata}");
            assert!(denied(&tenants, metadata).is_some(), "{metadata}");
        }
        for node in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "::1",
            "::",
            "::ffff:127.0.0.1",
        ] {
            assert_eq!(denied(&owner, node), None, "{node}");
            assert!(denied(&tenants, node).is_some(), "{node}");
        }
        for other in ["10.0.0.1", "128.0.0.1", "2001:db8::1", "fec0::1"] {
            assert_eq!(denied(&tenants, other), None, "{other}");
        }
    }

    #[test]
    fn an_administrator_opens_the_node_to_tenants() {
        let mut networks = Networks::of_owner();
        networks.allow.push(subnet("127.0.0.0/8"));
        let networks = networks.closed_to_tenants();
        assert_eq!(networks.denied("127.0.0.1".parse().unwrap()), None);
        assert!(networks.denied("::1".parse().unwrap()).is_some());
        assert_eq!(networks.clone().closed_to_tenants(), networks);
    }

    #[test]
    fn tenants_have_no_web_servers_unless_an_administrator_says_so() {
        assert!(Networks::of_owner().allows_web());
        assert!(!Networks::of_tenants().allows_web());
        let mut networks = Networks::of_owner();
        networks.web = Some(true);
        assert!(networks.closed_to_tenants().allows_web());
    }

    #[test]
    fn the_smallest_network_decides() {
        let networks = Networks {
            deny: vec![subnet("0.0.0.0/0"), subnet("10.1.2.0/24")],
            allow: vec![subnet("10.0.0.0/8"), subnet("10.1.2.0/24")],
            web: None,
        };
        let denied = |text: &str| networks.denied(text.parse().unwrap());
        assert_eq!(denied("192.0.2.1"), Some(subnet("0.0.0.0/0")));
        assert_eq!(denied("10.9.9.9"), None);
        assert_eq!(denied("10.1.2.3"), None, "allowed where both are equal");
        assert_eq!(denied("::1"), None, "in none");
    }

    proptest! {
        /// By the bits, as one would do it by hand.
        #[test]
        fn a_network_holds_what_begins_like_it(base: u32, prefix in 0_u32..=32, other: u32) {
            let keep = |number: u32| number.checked_shr(32 - prefix).unwrap_or(0);
            let base = keep(base).checked_shl(32 - prefix).unwrap_or(0);
            let address = std::net::Ipv4Addr::from(base);
            let network = subnet(&format!("{address}/{prefix}"));
            let held = network.contains(std::net::Ipv4Addr::from(other).into());
            prop_assert_eq!(held, keep(base) == keep(other));
        }
    }
}
