//! What is inside a wrapping, for whoever reads it as bytes.

use std::io::{self, Read};

use super::{Decoder, Unwrap};
use crate::error::Result;

/// A stream without what is wrapped around it. It ends well only where the
/// wrapping does, and with it the stream.
pub struct Unwrapped<R>(Decoder<'static, R>);

impl<R: Read> Unwrapped<R> {
    /// Unwraps a stream.
    pub fn new(reader: R, unwrap: Unwrap) -> Result<Self> {
        Decoder::new(reader, unwrap).map(Self)
    }

    /// What it has read from.
    pub fn into_reader(self) -> R {
        self.0.into_reader()
    }
}

impl<R: Read> Read for Unwrapped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).map_err(io::Error::other)
    }
}

impl<R> std::fmt::Debug for Unwrapped<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Unwrapped")
    }
}
