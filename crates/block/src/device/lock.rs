//! Who uses an image, told in QEMU's way.
//!
//! A user of an image holds a shared lock on one byte of the file for each
//! thing that it does, and on another for each thing that nobody else may do:
//!
//! ```text
//!   100 read   101 write   102 write the same   103 resize     "I do this"
//!   200 read   201 write   202 write the same   203 resize     "nobody else may"
//! ```
//!
//! It takes its own locks first and looks for contrary ones of others then: of
//! two that come at once, one sees the other. The bytes need not exist.

use std::io;

use super::FileDevice;
use crate::error::{Error, ErrorKind, Result};
use crate::sys;

/// What is going to be done with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is read, and nobody may change it meanwhile.
    Read,
    /// It is read even if somebody changes it meanwhile.
    ReadAnyway,
    /// It is changed, and nobody else may change it meanwhile.
    Change,
}

/// Something that is done with an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Read,
    Write,
    Resize,
}

impl Deed {
    /// As QEMU numbers them.
    fn number(self) -> u64 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Resize => 3,
        }
    }

    /// Locked by whoever does it.
    fn doing(self) -> u64 {
        100 + self.number()
    }

    /// Locked by whoever wants nobody else to do it.
    fn forbidding(self) -> u64 {
        200 + self.number()
    }

    fn forbidden(self) -> &'static str {
        match self {
            Self::Read => "another process has it open and lets nobody read it",
            Self::Write => "another process has it open and lets nobody write to it",
            Self::Resize => "another process has it open and lets nobody resize it",
        }
    }

    fn done(self) -> &'static str {
        match self {
            Self::Read => "another process is reading it",
            Self::Write => "another process is writing to it",
            Self::Resize => "another process may resize it",
        }
    }
}

impl Access {
    fn deeds(self) -> &'static [Deed] {
        match self {
            Self::Read | Self::ReadAnyway => &[Deed::Read],
            Self::Change => &[Deed::Read, Deed::Write, Deed::Resize],
        }
    }

    /// What others may not do meanwhile.
    fn forbids(self) -> &'static [Deed] {
        match self {
            Self::ReadAnyway => &[],
            Self::Read | Self::Change => &[Deed::Write, Deed::Resize],
        }
    }

    fn bytes(self) -> impl Iterator<Item = u64> {
        let doing = self.deeds().iter().map(|deed| deed.doing());
        doing.chain(self.forbids().iter().map(|deed| deed.forbidding()))
    }
}

impl FileDevice {
    /// Keeps others, QEMU among them, from doing what would be in the way, for
    /// as long as this device is open; or says what they are doing.
    pub fn lock(&self, access: Access) -> Result<()> {
        // As for QEMU, where a filesystem has no locks there are none.
        if sys::is_byte_locked(self.file(), Deed::Read.doing()).is_err() {
            return Ok(());
        }
        let outcome = self.lock_and_look(access);
        if outcome.is_err() {
            for byte in access.bytes() {
                // There is nothing to be done about a failure here.
                let _ = sys::unlock_byte(self.file(), byte);
            }
        }
        outcome.map_err(|error| error.of(self.name()))
    }

    /// Whether another process has it open to read it and says so, as a VM does.
    /// Where a filesystem has no locks, nobody says anything.
    #[must_use]
    pub fn is_read_elsewhere(&self) -> bool {
        sys::is_byte_locked(self.file(), Deed::Read.doing()).unwrap_or(false)
    }

    fn lock_and_look(&self, access: Access) -> Result<()> {
        let failed = |error: io::Error| Error::io("cannot be locked", error);
        for byte in access.bytes() {
            sys::lock_byte(self.file(), byte).map_err(failed)?;
        }
        for deed in access.deeds() {
            if sys::is_byte_locked(self.file(), deed.forbidding()).map_err(failed)? {
                return Err(Error::new(ErrorKind::Busy, deed.forbidden()));
            }
        }
        for deed in access.forbids() {
            if sys::is_byte_locked(self.file(), deed.doing()).map_err(failed)? {
                return Err(Error::new(ErrorKind::Busy, deed.done()));
            }
        }
        Ok(())
    }
}
