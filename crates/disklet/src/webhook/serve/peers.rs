//! Who is connected. The port is open to every pod of the cluster, and none of them may
//! keep API servers away.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// So many connections from one address, at most. API servers have one for each request
/// that is under way, since this is HTTP/1.1: when a controller of the cluster makes pods,
/// some dozens for a moment.
pub(super) const MOST: usize = 64;

/// An address that is connected, by one connection or several.
#[derive(Debug)]
pub(super) struct Peer {
    /// Whose turn it is to send something large.
    pub(super) large: Semaphore,
    /// For whom claims are looked up.
    pub(super) looked_up: Semaphore,
}

/// Of one address, at the same time.
const MOST_LOOKED_UP: usize = 8;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<HashMap<IpAddr, Weak<Peer>>>);

impl Peers {
    /// One more connection, which lasts as long as what is returned; nothing if there are
    /// too many of that address.
    pub(super) fn welcome(&self, address: IpAddr) -> Option<Arc<Peer>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, peer| peer.strong_count() > 0);
        let peer = all.get(&address).and_then(Weak::upgrade);
        let peer = peer.unwrap_or_else(|| {
            Arc::new(Peer {
                large: Semaphore::new(1),
                looked_up: Semaphore::new(MOST_LOOKED_UP),
            })
        });
        // This one is counted.
        if Arc::strong_count(&peer) > MOST {
            return None;
        }
        all.insert(address, Arc::downgrade(&peer));
        Some(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_others_theirs() {
        let (peers, one) = (Peers::default(), IpAddr::from([192, 0, 2, 1]));
        let mut places: Vec<_> = (0..MOST).filter_map(|_| peers.welcome(one)).collect();
        assert_eq!(places.len(), MOST);
        assert!(peers.welcome(one).is_none());
        assert!(peers.welcome(IpAddr::from([192, 0, 2, 2])).is_some());
        places.pop();
        assert!(peers.welcome(one).is_some());
        places.clear();
        let other = peers.welcome(IpAddr::from([192, 0, 2, 3]));
        assert_eq!(
            peers.0.lock().unwrap().len(),
            1,
            "nobody else is remembered"
        );
        drop(other);
    }
}
