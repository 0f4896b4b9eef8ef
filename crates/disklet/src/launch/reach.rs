//! The ports at which the guest is reached, as far as the pod can have them.

use std::fs;

use disklet_core::launch::ports::Ports;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};

use super::tell::Teller;

/// Where the guest is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) tcp: Ports,
    pub(super) udp: Ports,
}

/// Descriptors for connections and for passt itself, if there are so many.
const FOR_CONNECTIONS: u64 = 1024;

impl Reach {
    /// What is left of it here, for a passt that is started by this thread or
    /// by one that it starts; tells what is not.
    pub(super) fn here(self, teller: &Teller) -> Self {
        let open = self.open(first_open_port(), teller);
        open.within_limit(teller)
    }

    /// passt ends if it can have none of the ports of a protocol, and says
    /// nothing of single ones.
    fn open(self, first: Option<u16>, teller: &Teller) -> Self {
        let Some(first) = first else { return self };
        let open = Self {
            tcp: self.tcp.not_below(first),
            udp: self.udp.not_below(first),
        };
        if open != self {
            teller.tell(&format!(
                "the guest cannot be reached at ports below {first}: the launcher has no capability \
                 NET_BIND_SERVICE, which its pod and the file of its program have to name both"
            ));
        }
        open
    }

    fn within_limit(self, teller: &Teller) -> Self {
        let Some(limit) = getrlimit(Resource::Nofile).maximum else {
            return self;
        };
        let fitting = self.clone().fitting(limit);
        if fitting != self {
            teller.tell(&format!(
                "a process of this pod may have {limit} files open, and each port is one: the guest \
                 is reached at TCP ports {} and UDP ports {} only; name fewer ports, or raise the limit",
                fitting.tcp, fitting.udp
            ));
        }
        fitting
    }

    /// passt ends if it cannot have all of them, so it is not asked for more.
    fn fitting(self, limit: u64) -> Self {
        let room = limit - FOR_CONNECTIONS.min(limit / 2);
        let (tcp, udp) = (u64::from(self.tcp.count()), u64::from(self.udp.count()));
        if tcp + udp <= room {
            return self;
        }
        let share = room * tcp / (tcp + udp);
        let most = |count| u32::try_from(count).unwrap_or(u32::MAX);
        Self {
            tcp: self.tcp.at_most(most(share)),
            udp: self.udp.at_most(most(room - share)),
        }
    }
}

/// The first port that needs no right; passt says nothing of those that do.
fn first_open_port() -> Option<u16> {
    if hand_right_on() || rustix::process::geteuid().is_root() {
        return None;
    }
    let setting = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    fs::read_to_string(setting).ok()?.trim().parse().ok()
}

/// Whoever is started has the right to any port, if we have. passt gives it up as
/// soon as it listens.
fn hand_right_on() -> bool {
    let right = CapabilitySet::NET_BIND_SERVICE;
    let inheritable = capabilities(None).and_then(|mut own| {
        own.inheritable |= right;
        set_capabilities(None, own)
    });
    let ambient = inheritable.and_then(|()| configure_capability_in_ambient_set(right, true));
    ambient.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fitting(limit: u64) -> (String, String) {
        let usual = Reach {
            tcp: Ports::parse(Ports::TCP).unwrap(),
            udp: Ports::parse(Ports::UDP).unwrap(),
        };
        let fitting = usual.fitting(limit);
        assert!(u64::from(fitting.tcp.count() + fitting.udp.count()) < limit.max(1));
        (fitting.tcp.to_string(), fitting.udp.to_string())
    }

    #[test]
    fn ports_leave_room_for_connections() {
        let both = |tcp: &str, udp: &str| (tcp.to_owned(), udp.to_owned());
        assert_eq!(fitting(1 << 20), both("1-9999", "1-1023"));
        assert_eq!(fitting(12046), both("1-9999", "1-1023"));
        assert_eq!(fitting(4096), both("1-2786", "1-286"));
        assert_eq!(fitting(1024), both("1-464", "1-48"));
        assert_eq!(fitting(0), both("none", "none"));
    }
}
