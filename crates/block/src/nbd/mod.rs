//! Reading what an NBD server exports.
//!
//! ```text
//!   read_at   --\                        /-- connection --\
//!                +--> whichever is idle +--- connection ---+--> server
//!   extent_at --/                        \-- connection --/
//!        \--> what the server said before of which parts are zeroes
//! ```
//!
//! A connection has one request under way at a time; several are had by
//! several connections, which keeps each of them simple to judge. What a
//! server says is foreign: an answer that does not fit its request ends the
//! connection.

mod answer;
mod connection;
mod handshake;
mod known;
#[cfg(test)]
mod tests;
mod wire;

use std::fs::File;
use std::io::{Read, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::device::{Extent, Extents, ReadAt, Shareable, Size};
use crate::error::{Error, ErrorKind, Result, corrupt, invalid};
use connection::Connection;
use known::Known;

/// An export, over connections that somebody else has made.
#[derive(Debug)]
pub struct Export<S> {
    name: String,
    size: u64,
    connections: Mutex<Connections<S>>,
    one_is_idle: Condvar,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Connections<S> {
    idle: Vec<Connection<S>>,
    /// Idle or at work; one that has failed is neither.
    alive: usize,
}

/// The most that is read by one request.
const MOST_AT_ONCE: usize = 1 << 20;

/// Of how much is asked at once where its zeroes are. Some servers look it up
/// block by block, and shall not look longer than somebody waits.
const MOST_ASKED: u64 = 64 << 20;

impl<S: Read + Write> Export<S> {
    /// Agrees with the server on each of the connections. `name` is what errors
    /// call it.
    pub fn open(
        streams: impl IntoIterator<Item = S>,
        export: &str,
        name: impl Into<String>,
    ) -> Result<Self> {
        let name = name.into();
        let opened = |stream| Connection::open(stream, export).map_err(|error| error.of(&name));
        let opened: Vec<_> = streams.into_iter().map(opened).collect::<Result<_>>()?;
        let Some(size) = opened.first().map(|(_, size)| *size) else {
            return Err(invalid("no connection to read by").of(name));
        };
        if opened.iter().any(|(_, other)| *other != size) {
            return Err(corrupt("the server says of one export that it has two sizes").of(name));
        }
        let idle: Vec<_> = opened
            .into_iter()
            .map(|(connection, _)| connection)
            .collect();
        Ok(Self {
            name,
            size,
            connections: Mutex::new(Connections {
                alive: idle.len(),
                idle,
            }),
            one_is_idle: Condvar::new(),
            known: Mutex::new(Known::default()),
        })
    }

    /// Has a connection do something, as soon as one is idle. One that fails is
    /// not used again: who knows what it would say next.
    fn ask<T>(&self, question: impl FnOnce(&mut Connection<S>) -> Result<T>) -> Result<T> {
        let mut connections = locked(&self.connections);
        let mut connection = loop {
            match connections.idle.pop() {
                Some(connection) => break connection,
                None if connections.alive == 0 => {
                    let lost = "no connection to its server is left";
                    return Err(Error::new(ErrorKind::Io, lost).of(&self.name));
                }
                None => {
                    let waited = self.one_is_idle.wait(connections);
                    connections = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        drop(connections);
        let answer = question(&mut connection);
        let mut connections = locked(&self.connections);
        match answer.is_ok() {
            true => connections.idle.push(connection),
            false => connections.alive -= 1,
        }
        drop(connections);
        // All: the last that fails tells everybody who waits.
        self.one_is_idle.notify_all();
        answer.map_err(|error| error.of(&self.name))
    }

    fn demand_within(&self, offset: u64, length: u64) -> Result<()> {
        let end = offset.checked_add(length);
        match end.is_some_and(|end| end <= self.size) {
            true => Ok(()),
            false => Err(invalid("read beyond the end of the export").of(&self.name)),
        }
    }
}

/// What is kept under these locks is whole at every moment.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Read + Write> Size for Export<S> {
    fn size(&self) -> Result<u64> {
        Ok(self.size)
    }
}

impl<S: Read + Write> ReadAt for Export<S> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.demand_within(offset, buffer.len() as u64)?;
        let mut at = offset;
        for piece in buffer.chunks_mut(MOST_AT_ONCE) {
            let length = piece.len() as u64;
            self.ask(|connection| connection.read(piece, at))?;
            at += length;
        }
        Ok(())
    }
}

impl<S: Read + Write> Extents for Export<S> {
    fn extent_at(&self, offset: u64) -> Result<Extent> {
        self.demand_within(offset, 1)?;
        if let Some(extent) = locked(&self.known).at(offset) {
            return Ok(extent);
        }
        let length = MOST_ASKED.min(self.size - offset);
        let said = self.ask(|connection| connection.zeroes(offset, length))?;
        let rest = Extent {
            length: self.size - offset,
            zero: false,
        };
        let Some(said) = said else { return Ok(rest) };
        let mut known = locked(&self.known);
        known.learn(offset, &said, self.size);
        Ok(known.at(offset).unwrap_or(rest))
    }
}

impl<S> Shareable for Export<S> {
    fn shareable_file(&self) -> Option<&File> {
        None
    }
}
