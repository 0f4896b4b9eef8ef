//! A device in memory that misbehaves on order.
//!
//! Tests hand it to whatever works on devices and then let single requests
//! fail, tear, or be lost as a power cut would lose them.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{
    Allocation, Discard, Extent, Extents, Flush, ReadAt, Resize, SetAside, Shareable, Size,
    WriteAt, WriteZeroes,
};
use crate::error::{Error, ErrorKind, Result, invalid};

/// A request that a device has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Of so many bytes at an offset.
    Read(u64, u64),
    /// Of so many bytes at an offset.
    Write(u64, u64),
    /// Of so many bytes at an offset.
    Zero(u64, u64),
    /// Of so many bytes at an offset.
    Discard(u64, u64),
    /// To a size.
    Resize(u64),
    /// Of everything.
    Flush,
}

/// What to do to a request instead of carrying it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Fail; nothing is changed.
    Fail,
    /// Fail as a full disk does.
    NoSpace,
    /// Write only so many bytes, then fail.
    Tear(u64),
    /// Wait before carrying it out.
    Delay(Duration),
    /// Wait until [`MemoryDevice::release`].
    Hold,
}

type Rule = Box<dyn FnMut(usize, Request) -> Option<Fault> + Send>;

/// A device in memory.
#[derive(Clone, Default)]
pub struct MemoryDevice {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// What a power cut would leave: the bytes at the last flush.
    durable: Vec<u8>,
    /// Writes since the last flush, which a power cut may lose one by one.
    pending: VecDeque<Pending>,
    seen: usize,
    rule: Option<Rule>,
    holding: bool,
}

#[derive(Clone)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    Resize(usize),
}

impl std::fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemoryDevice({} bytes)", self.lock().bytes.len())
    }
}

impl MemoryDevice {
    /// A device with these bytes, which are durable.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        let device = Self::default();
        let mut state = device.lock();
        state.durable.clone_from(&bytes);
        state.bytes = bytes;
        drop(state);
        device
    }

    /// A device of zeroes.
    #[must_use]
    pub fn zeroed(size: usize) -> Self {
        Self::new(vec![0; size])
    }

    /// Asks `rule` about every request from now on: its number and what it is.
    pub fn set_rule(&self, rule: impl FnMut(usize, Request) -> Option<Fault> + Send + 'static) {
        let mut state = self.lock();
        state.seen = 0;
        state.rule = Some(Box::new(rule));
    }

    /// Lets held requests go on.
    pub fn release(&self) {
        self.lock().holding = false;
        self.shared.released.notify_all();
    }

    /// How many requests there were since the rule was set.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.lock().seen
    }

    /// The bytes as a reader sees them.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// What a power cut now could leave: everything flushed, and of the writes
    /// since then those that `keeps` says, in any choice.
    #[must_use]
    pub fn after_power_cut(&self, mut keeps: impl FnMut(usize) -> bool) -> Self {
        let state = self.lock();
        let mut bytes = state.durable.clone();
        for (index, pending) in state.pending.iter().enumerate() {
            if keeps(index) {
                pending.apply(&mut bytes);
            }
        }
        Self::new(bytes)
    }

    /// How many writes a power cut now could lose.
    #[must_use]
    pub fn unflushed(&self) -> usize {
        self.lock().pending.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the rule; returns how much of a write to carry out, if not all.
    fn admit(&self, request: Request) -> Result<(MutexGuard<'_, State>, Option<u64>)> {
        let mut state = self.lock();
        let number = state.seen;
        state.seen += 1;
        let fault = state.rule.as_mut().and_then(|rule| rule(number, request));
        match fault {
            None => Ok((state, None)),
            Some(Fault::Fail) => Err(Error::new(ErrorKind::Io, "injected failure")),
            Some(Fault::NoSpace) => Err(Error::new(ErrorKind::NoSpace, "injected lack of space")),
            Some(Fault::Tear(bytes)) => Ok((state, Some(bytes))),
            Some(Fault::Delay(time)) => {
                drop(state);
                std::thread::sleep(time);
                Ok((self.lock(), None))
            }
            Some(Fault::Hold) => {
                state.holding = true;
                while state.holding {
                    state = self
                        .shared
                        .released
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Ok((state, None))
            }
        }
    }
}

impl Pending {
    fn apply(&self, onto: &mut Vec<u8>) {
        match self {
            Self::Resize(size) => onto.resize(*size, 0),
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if onto.len() < end {
                    onto.resize(end, 0);
                }
                onto[*offset..end].copy_from_slice(bytes);
            }
        }
    }
}

impl State {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let range = range_in(self.bytes.len(), offset, bytes.len() as u64)?;
        let pending = Pending::Write {
            offset: range.start,
            bytes: bytes.to_vec(),
        };
        pending.apply(&mut self.bytes);
        self.pending.push_back(pending);
        Ok(())
    }
}

fn range_in(size: usize, offset: u64, length: u64) -> Result<std::ops::Range<usize>> {
    let end = offset.checked_add(length).filter(|end| *end <= size as u64);
    let end = end.ok_or_else(|| invalid("a request reaches beyond the end of the device"))?;
    let index = |n: u64| usize::try_from(n).map_err(|_| invalid("beyond memory"));
    Ok(index(offset)?..index(end)?)
}

fn torn() -> Error {
    Error::new(ErrorKind::Io, "injected torn write")
}

impl SetAside for MemoryDevice {
    fn set_aside(&self, _offset: u64, _length: u64) -> bool {
        false
    }
}

impl Shareable for MemoryDevice {
    fn shareable_file(&self) -> Option<&File> {
        None
    }
}

impl Size for MemoryDevice {
    fn size(&self) -> Result<u64> {
        Ok(self.lock().bytes.len() as u64)
    }
}

impl ReadAt for MemoryDevice {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let (state, _) = self.admit(Request::Read(offset, buffer.len() as u64))?;
        let range = range_in(state.bytes.len(), offset, buffer.len() as u64)?;
        buffer.copy_from_slice(&state.bytes[range]);
        Ok(())
    }
}

impl Extents for MemoryDevice {
    fn extent_at(&self, offset: u64) -> Result<Extent> {
        let state = self.lock();
        let range = range_in(state.bytes.len(), offset, state.bytes.len() as u64 - offset)?;
        Ok(Extent {
            length: range.len() as u64,
            zero: false,
        })
    }
}

impl WriteAt for MemoryDevice {
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let (mut state, cut) = self.admit(Request::Write(offset, buffer.len() as u64))?;
        match cut.and_then(|cut| usize::try_from(cut).ok()) {
            None => state.write(offset, buffer),
            Some(cut) => {
                state.write(offset, &buffer[..cut.min(buffer.len())])?;
                Err(torn())
            }
        }
    }
}

impl WriteZeroes for MemoryDevice {
    fn write_zeroes(&self, offset: u64, length: u64, _keep: Allocation) -> Result<()> {
        let (mut state, cut) = self.admit(Request::Zero(offset, length))?;
        let length = cut.map_or(length, |cut| cut.min(length));
        let range = range_in(state.bytes.len(), offset, length)?;
        state.write(offset, &vec![0; range.len()])?;
        cut.map_or(Ok(()), |_| Err(torn()))
    }
}

impl Discard for MemoryDevice {
    /// Fills with a pattern: whoever relies on what a discard leaves is wrong.
    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        let (mut state, _) = self.admit(Request::Discard(offset, length))?;
        let range = range_in(state.bytes.len(), offset, length)?;
        state.write(offset, &vec![0xdb; range.len()])
    }
}

impl Resize for MemoryDevice {
    fn resize(&self, size: u64) -> Result<()> {
        let (mut state, _) = self.admit(Request::Resize(size))?;
        let size = usize::try_from(size).map_err(|_| invalid("beyond memory"))?;
        state.bytes.resize(size, 0);
        state.pending.push_back(Pending::Resize(size));
        Ok(())
    }
}

impl Flush for MemoryDevice {
    fn flush(&self) -> Result<()> {
        let (mut state, _) = self.admit(Request::Flush)?;
        let bytes = state.bytes.clone();
        state.durable = bytes;
        state.pending.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_cut_keeps_what_was_flushed_and_any_choice_of_the_rest() {
        let device = MemoryDevice::zeroed(4);
        device.write_at(b"a", 0).unwrap();
        device.flush().unwrap();
        device.write_at(b"b", 1).unwrap();
        device.write_at(b"c", 2).unwrap();
        let cut = device.after_power_cut(|index| index == 1);
        assert_eq!(cut.contents(), b"a\0c\0");
        assert_eq!(device.unflushed(), 2);
    }

    #[test]
    fn requests_fail_and_tear_on_order() {
        let device = MemoryDevice::zeroed(8);
        device.set_rule(|number, _| match number {
            0 => Some(Fault::Tear(2)),
            1 => Some(Fault::NoSpace),
            _ => None,
        });
        device.write_at(b"xyz", 0).unwrap_err();
        let full = device.write_at(b"xyz", 4).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::NoSpace);
        device.write_at(b"z", 7).unwrap();
        assert_eq!(device.contents(), b"xy\0\0\0\0\0z");
        assert_eq!(device.requests(), 3);
    }

    #[test]
    fn held_requests_wait_for_their_release() {
        let device = MemoryDevice::zeroed(1);
        device.set_rule(|number, _| (number == 0).then_some(Fault::Hold));
        let writer = device.clone();
        let thread = std::thread::spawn(move || writer.write_at(b"x", 0));
        while !device.lock().holding {
            std::thread::yield_now();
        }
        assert_eq!(device.contents(), b"\0");
        device.release();
        thread.join().unwrap().unwrap();
        assert_eq!(device.contents(), b"x");
    }

    #[test]
    fn nothing_reaches_beyond_the_end() {
        let device = MemoryDevice::zeroed(4);
        device.write_at(b"xx", 3).unwrap_err();
        device.read_at(&mut [0], u64::MAX).unwrap_err();
        assert_eq!(device.contents(), [0; 4]);
    }
}
