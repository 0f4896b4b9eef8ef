//! Who gets in: so many in all, and so many of one address.

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::ARRIVES_WITHIN;
use super::idle::{Course, Idle};
use super::peers::{Peer, Peers};

/// If the one that was told to make room does not go, another one is told after this.
const NEXT_GOES_AFTER: Duration = Duration::from_millis(100);

pub(super) struct Door {
    listener: TcpListener,
    /// Of connections.
    places: Arc<Semaphore>,
    peers: Peers,
    idle: Arc<Idle>,
}

/// A connection that has a place, and waits for that of its address if others of it have
/// to go first.
pub(super) struct Visitor {
    pub(super) stream: TcpStream,
    pub(super) peer: Arc<Peer>,
    pub(super) course: Course,
    /// In all, and of its address.
    pub(super) places: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl Door {
    pub(super) fn new(listener: TcpListener, most: usize) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(most)),
            peers: Peers::default(),
            idle: Arc::default(),
        }
    }

    /// Who comes next; nothing if that one stays outside.
    pub(super) async fn next(&self) -> Option<Visitor> {
        let (stream, address) = match self.listener.accept().await {
            Ok((stream, address)) => (stream, address.ip()),
            Err(error) => {
                debug!(%error, "a connection was not accepted");
                sleep(Duration::from_millis(100)).await;
                return None;
            }
        };
        // An address that has all of its places takes none of others.
        let peer = self.peers.of(address);
        let of_peer = peer.place();
        if of_peer.is_none() && !self.idle.make_room(Some(address)) {
            debug!(%address, "too many connections of one address");
            return None;
        }
        let place = self.place(of_peer.is_none()).await?;
        Some(Visitor {
            places: (place, of_peer),
            stream,
            peer,
            course: Course::new(Arc::clone(&self.idle), address),
        })
    }

    /// A place, for which those who only wait for their next request have to go if there
    /// is none.
    async fn place(&self, one_goes: bool) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        let mut one_goes = one_goes;
        let mut place = pin!(Arc::clone(&self.places).acquire_owned());
        loop {
            if !one_goes {
                self.idle.make_room(None);
            }
            one_goes = false;
            if let Ok(place) = timeout(NEXT_GOES_AFTER, place.as_mut()).await {
                return place.ok();
            }
        }
    }

    /// Nobody gets in any more. Until all have gone.
    pub(super) async fn close(self, most: usize) {
        drop(self.listener);
        let all = u32::try_from(most).unwrap_or(u32::MAX);
        let _ = self.places.acquire_many(all).await;
    }
}

impl Visitor {
    pub(super) fn address(&self) -> IpAddr {
        self.course.address()
    }

    /// Whether there is a place of its address.
    pub(super) async fn has_entered(&mut self) -> bool {
        if self.places.1.is_none() {
            let place = timeout(ARRIVES_WITHIN, self.peer.next_place()).await;
            self.places.1 = place.ok().flatten();
        }
        self.places.1.is_some()
    }
}
