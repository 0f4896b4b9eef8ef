//! The launcher's children, and whoever it inherits: the first process of a
//! container has to wait for all orphans in it.

use std::collections::BTreeMap;
use std::io;
use std::process::{ChildStderr, Command};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};

/// Those that were started here, and how they ended.
#[derive(Debug, Default)]
pub(super) struct Children {
    ends: Mutex<BTreeMap<i32, Option<WaitStatus>>>,
    changed: Condvar,
}

/// A child that was started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) pid: Pid,
    pub(super) stderr: Option<ChildStderr>,
}

impl Children {
    /// Starts a program. It is not waited for before it is known here.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Started> {
        let mut ends = self.lock();
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        ends.insert(pid.as_raw_nonzero().get(), None);
        Ok(Started {
            pid,
            stderr: child.stderr.take(),
        })
    }

    /// Waits for all children that have ended, known or not.
    pub(super) fn reap(&self) {
        let mut ends = self.lock();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(end) = ends.get_mut(&pid.as_raw_nonzero().get()) {
                *end = Some(status);
            }
        }
        self.changed.notify_all();
    }

    /// How a child that was started here has ended, if it does in time. Its
    /// end is told once.
    pub(super) fn end_of(&self, pid: Pid, time: Duration) -> Option<WaitStatus> {
        let pid = pid.as_raw_nonzero().get();
        let (mut ends, _) = self
            .changed
            .wait_timeout_while(self.lock(), time, |ends| running(ends, pid))
            .unwrap_or_else(PoisonError::into_inner);
        let end = ends.get(&pid).copied().flatten();
        if end.is_some() {
            ends.remove(&pid);
        }
        end
    }

    /// Whether a child has ended, or does in time. Somebody else is told how.
    pub(super) fn has_ended(&self, pid: Pid, time: Duration) -> bool {
        let pid = pid.as_raw_nonzero().get();
        let (ends, _) = self
            .changed
            .wait_timeout_while(self.lock(), time, |ends| running(ends, pid))
            .unwrap_or_else(PoisonError::into_inner);
        !running(&ends, pid)
    }

    /// Ends a child by force. Its number cannot be somebody else's: it is not
    /// given back while the lock is held.
    pub(super) fn kill(&self, pid: Pid) {
        let ends = self.lock();
        if running(&ends, pid.as_raw_nonzero().get()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Option<WaitStatus>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn running(ends: &BTreeMap<i32, Option<WaitStatus>>, pid: i32) -> bool {
    matches!(ends.get(&pid), Some(None))
}
