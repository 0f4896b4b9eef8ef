//! New raw disks.

use crate::device::{FileDevice, Flush, Resize};
use crate::error::{Result, invalid};
use crate::qcow2::{Preallocation, set_aside, write_zeroes};

/// Makes an empty file a disk of zeroes, and makes it durable. If there is not
/// enough room, the file is no good and the caller removes it.
pub fn create_raw(file: &FileDevice, size: u64, preallocation: Preallocation) -> Result<()> {
    let refuse = || invalid("a raw disk has no metadata to set space aside for");
    match preallocation {
        Preallocation::Metadata => return Err(refuse().of(file.name())),
        Preallocation::Off => file.resize(size)?,
        // The system does not set nothing aside.
        Preallocation::Falloc if size > 0 => set_aside(file, size)?,
        Preallocation::Falloc => {}
        Preallocation::Full => {
            // Where space lacks, this says so before anything is written; not
            // every filesystem can.
            if size > 0 && set_aside(file, size).is_err() {
                file.resize(size)?;
            }
            write_zeroes(file, 0..size)?;
        }
    }
    file.flush()
}
