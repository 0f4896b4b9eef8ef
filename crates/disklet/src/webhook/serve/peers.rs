//! Who is connected. The port is open to every pod of the cluster, and none of them may
//! keep API servers away.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many connections from one address, at most. API servers have one for each request
/// that is under way, since this is HTTP/1.1: when a controller of the cluster makes pods,
/// some dozens for a moment.
pub(super) const MOST: usize = 64;

/// An address that is connected, by one connection or several.
#[derive(Debug)]
pub(super) struct Peer {
    /// One each for its connections.
    places: Arc<Semaphore>,
    /// Whose turn it is to send something large.
    pub(super) large: Semaphore,
    /// For whom claims are looked up.
    pub(super) looked_up: Semaphore,
}

/// Of one address, at the same time.
const MOST_LOOKED_UP: usize = 8;

impl Peer {
    fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MOST)),
            large: Semaphore::new(1),
            looked_up: Semaphore::new(MOST_LOOKED_UP),
        }
    }

    /// A place for one more connection; nothing if there are too many of that address.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// The place of one that goes.
    pub(super) async fn next_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).acquire_owned().await.ok()
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<HashMap<IpAddr, Weak<Peer>>>);

impl Peers {
    /// The same for all connections of an address.
    pub(super) fn of(&self, address: IpAddr) -> Arc<Peer> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, peer| peer.strong_count() > 0);
        let peer = all.get(&address).and_then(Weak::upgrade);
        let peer = peer.unwrap_or_else(|| Arc::new(Peer::new()));
        all.insert(address, Arc::downgrade(&peer));
        peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_its_share_and_others_theirs() {
        let (peers, one) = (Peers::default(), IpAddr::from([192, 0, 2, 1]));
        let peer = peers.of(one);
        let mut places: Vec<_> = (0..MOST).filter_map(|_| peers.of(one).place()).collect();
        assert_eq!(places.len(), MOST);
        assert!(peers.of(one).place().is_none());
        assert!(peers.of(IpAddr::from([192, 0, 2, 2])).place().is_some());
        places.pop();
        assert!(peers.of(one).place().is_some());
        drop(peer);
        let other = peers.of(IpAddr::from([192, 0, 2, 3]));
        assert_eq!(
            peers.0.lock().unwrap().len(),
            1,
            "nobody else is remembered"
        );
        drop(other);
    }
}
