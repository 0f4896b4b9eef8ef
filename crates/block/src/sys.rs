//! The calls that need `unsafe`, all of them in one place.

#![expect(unsafe_code, reason = "this file is where it lives")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::NonNull;

use rustix::ioctl::{self, IntegerSetter, Opcode, Setter};
use rustix::process::Signal;

/// What O_DIRECT wants of addresses, offsets and lengths. Devices with larger
/// blocks than this do not exist in practice.
pub const DIRECT_ALIGNMENT: usize = 4096;

/// Memory that O_DIRECT accepts.
#[derive(Debug)]
pub struct AlignedBuffer {
    start: NonNull<u8>,
    length: usize,
}

impl AlignedBuffer {
    /// So many zeroes; the length is rounded up to the alignment.
    #[must_use]
    pub fn zeroed(length: usize) -> Self {
        let length = length.max(1).next_multiple_of(DIRECT_ALIGNMENT);
        let layout = Self::layout(length);
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        Self { start, length }
    }

    fn layout(length: usize) -> Layout {
        // The alignment is a power of two and the length was allocated or is
        // about to be, so this only fails where memory ends anyway.
        Layout::from_size_align(length, DIRECT_ALIGNMENT)
            .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout, and dropped once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.length)) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is ours, initialised (zeroed), and as long.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

// SAFETY: it owns plain memory.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

/// `struct file_clone_range` of the kernel.
#[repr(C)]
struct CloneRange {
    source: i64,
    source_offset: u64,
    length: u64,
    target_offset: u64,
}

const FICLONE: Opcode = ioctl::opcode::write::<libc::c_int>(0x94, 9);
const FICLONERANGE: Opcode = ioctl::opcode::write::<CloneRange>(0x94, 13);
const BLKDISCARD: Opcode = ioctl::opcode::none(0x12, 119);
const BLKZEROOUT: Opcode = ioctl::opcode::none(0x12, 127);

/// Makes a range of `target` share its blocks with one of `source`.
pub(crate) fn clone_range(
    source: &File,
    source_offset: u64,
    length: u64,
    target: &File,
    target_offset: u64,
) -> io::Result<()> {
    let range = CloneRange {
        source: source.as_raw_fd().into(),
        source_offset,
        length,
        target_offset,
    };
    // SAFETY: FICLONERANGE reads one CloneRange, whose layout is the kernel's.
    unsafe {
        let call = Setter::<FICLONERANGE, CloneRange>::new(range);
        ioctl::ioctl(target, call)?;
    }
    Ok(())
}

/// Makes all of an empty `target` share its blocks with `source`.
pub(crate) fn clone_file(source: &File, target: &File) -> io::Result<()> {
    // SAFETY: FICLONE takes a descriptor by value, open for the whole call.
    unsafe {
        let descriptor = usize::try_from(source.as_raw_fd()).unwrap_or(usize::MAX);
        ioctl::ioctl(target, IntegerSetter::<FICLONE>::new_usize(descriptor))?;
    }
    Ok(())
}

/// Tells a block device that a range is not needed.
pub(crate) fn block_discard(device: &File, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, offset and length.
    unsafe {
        let call = Setter::<BLKDISCARD, [u64; 2]>::new([offset, length]);
        ioctl::ioctl(device, call)?;
    }
    Ok(())
}

/// Makes a range of a block device read as zeroes.
pub(crate) fn block_zero(device: &File, offset: u64, length: u64) -> io::Result<()> {
    // SAFETY: BLKZEROOUT reads two u64, offset and length.
    unsafe {
        let call = Setter::<BLKZEROOUT, [u64; 2]>::new([offset, length]);
        ioctl::ioctl(device, call)?;
    }
    Ok(())
}

/// Locks a byte of a file for sharing, as long as the file is open. The lock
/// belongs to the open file, not to the process.
pub(crate) fn lock_byte(file: &File, byte: u64) -> io::Result<()> {
    byte_lock(file, libc::F_OFD_SETLK, libc::F_RDLCK, byte).map(|_| ())
}

/// Takes back a lock of [`lock_byte`].
pub(crate) fn unlock_byte(file: &File, byte: u64) -> io::Result<()> {
    byte_lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte).map(|_| ())
}

/// Whether anybody but this open file has locked a byte.
pub(crate) fn is_byte_locked(file: &File, byte: u64) -> io::Result<bool> {
    let found = byte_lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte)?;
    Ok(libc::c_int::from(found.l_type) != libc::F_UNLCK)
}

fn byte_lock(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    byte: u64,
) -> io::Result<libc::flock> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut lock = libc::flock {
        l_type: kind.try_into().map_err(out_of_range)?,
        l_whence: libc::SEEK_SET.try_into().map_err(out_of_range)?,
        l_start: byte.try_into().map_err(out_of_range)?,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and these commands read and write one
    // flock, which outlives the call.
    let outcome = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if outcome == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(lock)
}

/// Has a program that is about to be started end with the thread that starts
/// it, however that ends: no other way outlasts a kill of its parent.
pub fn end_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let tie = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Who has died before that has told nobody.
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    };
    // SAFETY: between fork and exec it makes two system calls, and neither
    // allocates nor locks.
    unsafe { command.pre_exec(tie) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_writable() {
        let mut buffer = AlignedBuffer::zeroed(5000);
        assert_eq!(buffer.len(), 8192);
        assert_eq!(buffer.as_ptr().addr() % DIRECT_ALIGNMENT, 0);
        assert!(buffer.iter().all(|byte| *byte == 0));
        buffer[8191] = 1;
        assert_eq!(buffer[8191], 1);
    }
}
