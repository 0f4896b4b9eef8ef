//! Numbers of the protocol, and its integers.

use std::io::{self, Read};

use crate::error::{Error, ErrorKind, Result};

pub(super) const GREETING: u64 = 0x4e42_444d_4147_4943;
pub(super) const OPTION: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(super) const CHUNK: u32 = 0x668e_33ef;

/// What we know which parts are zeroes by.
pub(super) const ALLOCATION: &str = "base:allocation";

/// In a status: reads as zeroes.
pub(super) const ZERO: u32 = 1 << 1;

/// What we ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Command {
    Read = 0,
    BlockStatus = 7,
}

/// Reads exactly so many bytes.
pub(super) fn take<const N: usize>(stream: &mut impl Read) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(stream, &mut bytes)?;
    Ok(bytes)
}

pub(super) fn take_u16(stream: &mut impl Read) -> Result<u16> {
    take(stream).map(u16::from_be_bytes)
}

pub(super) fn take_u32(stream: &mut impl Read) -> Result<u32> {
    take(stream).map(u32::from_be_bytes)
}

pub(super) fn take_u64(stream: &mut impl Read) -> Result<u64> {
    take(stream).map(u64::from_be_bytes)
}

/// Reads so many bytes, which the caller has limited.
pub(super) fn take_bytes(stream: &mut impl Read, length: u32) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    fill(stream, &mut bytes)?;
    Ok(bytes)
}

pub(super) fn fill(stream: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    stream.read_exact(bytes).map_err(unheard)
}

fn unheard(error: io::Error) -> Error {
    match error.kind() {
        // A socket with a time-out says so when that is over.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::new(ErrorKind::Io, "its server does not answer")
        }
        io::ErrorKind::UnexpectedEof => {
            Error::new(ErrorKind::Io, "its server has closed the connection")
                .help("see that the server still runs and what its log says, and say it again")
        }
        _ => Error::io("its server cannot be heard", error),
    }
}
