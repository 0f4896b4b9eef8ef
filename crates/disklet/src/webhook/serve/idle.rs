//! Connections that wait for their next request. They stay as long as there is room, and
//! make it for whoever comes: the one that waits longest goes first.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All that wait, by the turn in which they began to.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    turns: u64,
    all: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

impl Idle {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the one that waits longest to go, of one address or of all. Whether there is one.
    pub(super) fn make_room(&self, of: Option<IpAddr>) -> bool {
        let mut waiting = self.lock();
        let is_wanted = |address: &IpAddr| of.is_none_or(|of| of == *address);
        let mut turns = waiting.all.iter();
        let first = turns.find_map(|(turn, (address, _))| is_wanted(address).then_some(*turn));
        let told = first.and_then(|turn| waiting.all.remove(&turn));
        if let Some((_, leaves)) = &told {
            leaves.notify_one();
        }
        told.is_some()
    }
}

/// A connection, which waits or does not.
#[derive(Debug)]
pub(super) struct Course {
    idle: Arc<Idle>,
    address: IpAddr,
    leaves: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing was asked yet.
    New,
    Asks,
    /// Since this turn.
    Waits(u64),
}

impl Course {
    pub(super) fn new(idle: Arc<Idle>, address: IpAddr) -> Self {
        Self {
            idle,
            address,
            leaves: Arc::default(),
            state: Mutex::new(State::New),
        }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.address
    }

    fn become_one(&self, state: State) {
        let mut now = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Waits(turn) = *now {
            self.idle.lock().all.remove(&turn);
        }
        *now = state;
    }

    pub(super) fn asks(&self) {
        self.become_one(State::Asks);
    }

    pub(super) fn is_answered(&self) {
        let turn = {
            let mut waiting = self.idle.lock();
            waiting.turns += 1;
            let turn = waiting.turns;
            let waits = (self.address, Arc::clone(&self.leaves));
            waiting.all.insert(turn, waits);
            turn
        };
        self.become_one(State::Waits(turn));
    }

    pub(super) fn is_asking(&self) -> bool {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) == State::Asks
    }

    /// Until somebody else needs its place.
    pub(super) async fn told_to_go(&self) {
        self.leaves.notified().await;
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        self.become_one(State::New);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is told to go, of these.
    async fn told(courses: &[Course]) -> Vec<usize> {
        let mut told = Vec::new();
        for (nth, course) in courses.iter().enumerate() {
            let at_once = std::time::Duration::ZERO;
            let going = tokio::time::timeout(at_once, course.told_to_go()).await;
            told.extend(going.is_ok().then_some(nth));
        }
        told
    }

    #[tokio::test]
    async fn who_waits_longest_goes_first() {
        let idle = Arc::new(Idle::default());
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let course = |last| Course::new(Arc::clone(&idle), address(last));
        let mut courses = vec![course(1), course(1), course(2), course(2)];
        assert!(!idle.make_room(None), "nobody was answered yet");
        courses.iter().for_each(Course::asks);
        assert!(!idle.make_room(None), "all of them ask");
        courses.iter().for_each(Course::is_answered);
        courses[0].asks();
        courses[0].is_answered();
        assert!(idle.make_room(Some(address(2))));
        assert_eq!(told(&courses).await, [2]);
        assert!(idle.make_room(None));
        assert_eq!(told(&courses).await, [1]);
        courses.remove(3);
        assert!(idle.make_room(None));
        assert_eq!(told(&courses).await, [0]);
        assert!(!idle.make_room(None), "each is told once");
        assert!(idle.lock().all.is_empty());
    }
}
