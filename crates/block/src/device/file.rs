//! Raw files and block devices.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::{
    Allocation, Discard, Extent, Extents, Flush, ReadAt, Resize, SetAside, Shareable, Size,
    WriteAt, WriteZeroes,
};
use crate::error::{Error, ErrorKind, Result, invalid};
use crate::sys::{self, DIRECT_ALIGNMENT};

/// Whether the page cache takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// It does.
    Buffered,
    /// Aligned requests pass it by, where the file can do that.
    Direct,
}

/// A regular file or a block device.
#[derive(Debug)]
pub struct FileDevice {
    file: File,
    /// The same file with O_DIRECT.
    direct: Option<File>,
    name: String,
    /// Where it was opened, if it was by a path.
    path: Option<PathBuf>,
    is_block: bool,
    /// The data that was found last. Some filesystems take long to find its end: who
    /// goes through it must not do so at every step.
    data: Mutex<Range<u64>>,
}

impl FileDevice {
    /// Opens for reading.
    pub fn open(path: &Path, caching: Caching) -> Result<Self> {
        Self::open_with(path, OpenOptions::new().read(true), caching)
    }

    /// Opens for reading and writing.
    pub fn open_writable(path: &Path, caching: Caching) -> Result<Self> {
        Self::open_with(path, OpenOptions::new().read(true).write(true), caching)
    }

    /// Opens a block device for reading and writing that nothing else uses: no
    /// filesystem is mounted from it, and neither RAID nor LVM has it.
    pub fn open_exclusive(path: &Path, caching: Caching) -> Result<Self> {
        // Without O_CREAT it means this, and only for block devices.
        let flags = i32::try_from((OFlags::NONBLOCK | OFlags::EXCL).bits()).unwrap_or(0);
        let name = path.display().to_string();
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let file = options.open(path).map_err(|error| {
            if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
                let message = "the device is in use: mounted, or part of something else";
                return Error::new(ErrorKind::Busy, message).of(&name);
            }
            Error::io("cannot be opened", error).of(&name)
        })?;
        Ok(Self::new(file, name, caching)?.opened_at(path))
    }

    fn open_with(path: &Path, options: &mut OpenOptions, caching: Caching) -> Result<Self> {
        let name = path.display().to_string();
        // Opening a FIFO would wait for its other end.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
        let file = options
            .custom_flags(flags)
            .open(path)
            .map_err(|error| Error::io("cannot be opened", error).of(&name))?;
        Ok(Self::new(file, name, caching)?.opened_at(path))
    }

    /// Takes an open file; `name` is for messages.
    pub fn new(file: File, name: impl Into<String>, caching: Caching) -> Result<Self> {
        let name = name.into();
        let kind = file
            .metadata()
            .map_err(|error| Error::io("cannot be looked at", error).of(&name))?
            .file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(invalid("is neither a file nor a block device").of(name));
        }
        let direct = match caching {
            Caching::Buffered => None,
            Caching::Direct => reopen_direct(&file),
        };
        Ok(Self {
            is_block: kind.is_block_device(),
            file,
            direct,
            name,
            path: None,
            data: Mutex::default(),
        })
    }

    /// Remembers the path by which it was opened.
    pub(crate) fn opened_at(self, path: &Path) -> Self {
        Self {
            path: Some(path.to_owned()),
            ..self
        }
    }

    /// The path by which it was opened, if it was by one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The name given at opening.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a block device.
    #[must_use]
    pub fn is_block(&self) -> bool {
        self.is_block
    }

    /// Whether it lies in memory, where no request waits for a disk.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        const TMPFS: u64 = 0x0102_1994;
        const RAMFS: u64 = 0x8584_58f6;
        rustix::fs::fstatfs(&self.file).is_ok_and(|stat| {
            let kind = u64::try_from(stat.f_type).unwrap_or(0);
            !self.is_block && (kind == TMPFS || kind == RAMFS)
        })
    }

    /// The file for a request: past the page cache if that was asked for and
    /// the request is aligned.
    fn file_for(&self, address: *const u8, length: usize, offset: u64) -> &File {
        let aligned = |n: u64| n.is_multiple_of(DIRECT_ALIGNMENT as u64);
        match &self.direct {
            Some(direct)
                if aligned(address.addr() as u64) && aligned(length as u64) && aligned(offset) =>
            {
                direct
            }
            _ => &self.file,
        }
    }

    fn known_data(&self) -> MutexGuard<'_, Range<u64>> {
        self.data.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, doing: &str, offset: u64, error: io::Error) -> Error {
        Error::io(format!("cannot be {doing} at offset {offset}"), error).of(&self.name)
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.file, flags, offset, length)?)
    }

    fn write_plain_zeroes(&self, mut offset: u64, length: u64) -> Result<()> {
        let zeroes = [0; 64 << 10];
        let end = offset + length;
        while offset < end {
            let step = usize::try_from(end - offset)
                .unwrap_or(zeroes.len())
                .min(zeroes.len());
            self.write_at(&zeroes[..step], offset)?;
            offset += step as u64;
        }
        Ok(())
    }
}

/// By its descriptor, so that it is the same file whatever its path became.
/// Filesystems without O_DIRECT refuse, and the page cache is used.
fn reopen_direct(file: &File) -> Option<File> {
    let writable = rustix::fs::fcntl_getfl(file)
        .is_ok_and(|flags| flags.contains(OFlags::RDWR) || flags.contains(OFlags::WRONLY));
    OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags(i32::try_from(OFlags::DIRECT.bits()).ok()?)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .ok()
}

impl Shareable for FileDevice {
    fn shareable_file(&self) -> Option<&File> {
        (!self.is_block).then_some(&self.file)
    }
}

impl Size for FileDevice {
    fn size(&self) -> Result<u64> {
        // A device's metadata has no length; its end has an offset.
        let size = if self.is_block {
            (&self.file).seek(SeekFrom::End(0))
        } else {
            self.file.metadata().map(|meta| meta.len())
        };
        size.map_err(|error| Error::io("cannot be measured", error).of(&self.name))
    }
}

impl ReadAt for FileDevice {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let file = self.file_for(buffer.as_ptr(), buffer.len(), offset);
        file.read_exact_at(buffer, offset)
            .map_err(|error| self.failed("read", offset, error))
    }
}

impl Extents for FileDevice {
    fn extent_at(&self, offset: u64) -> Result<Extent> {
        let size = self.size()?;
        let rest = size
            .checked_sub(offset)
            .filter(|rest| *rest > 0)
            .ok_or_else(|| invalid("an extent beyond the end was asked for").of(&self.name))?;
        let data = Extent {
            length: rest,
            zero: false,
        };
        if self.is_block {
            return Ok(data);
        }
        // What others make a hole of meanwhile can still be read as data.
        let known = self.known_data().clone();
        if known.contains(&offset) {
            return Ok(Extent {
                length: known.end.min(size) - offset,
                zero: false,
            });
        }
        let seek = |whence| rustix::fs::seek(&self.file, whence);
        match seek(rustix::fs::SeekFrom::Data(offset)) {
            Ok(start) if start > offset => Ok(Extent {
                length: start.min(size) - offset,
                zero: true,
            }),
            Ok(_) => Ok(match seek(rustix::fs::SeekFrom::Hole(offset)) {
                Ok(end) if end > offset => {
                    *self.known_data() = offset..end;
                    Extent {
                        length: end.min(size) - offset,
                        zero: false,
                    }
                }
                _ => data,
            }),
            // No data any more up to the end.
            Err(Errno::NXIO) => Ok(Extent {
                length: rest,
                zero: true,
            }),
            // The filesystem does not know.
            Err(_) => Ok(data),
        }
    }
}

impl WriteAt for FileDevice {
    fn write_at(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let file = self.file_for(buffer.as_ptr(), buffer.len(), offset);
        file.write_all_at(buffer, offset)
            .map_err(|error| self.failed("written", offset, error))
    }
}

impl WriteZeroes for FileDevice {
    fn write_zeroes(&self, offset: u64, length: u64, keep: Allocation) -> Result<()> {
        if length == 0 {
            return Ok(());
        }
        *self.known_data() = 0..0;
        let attempts: &[FallocateFlags] = match keep {
            Allocation::Free => &[
                FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE),
                FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE),
            ],
            Allocation::Keep => &[FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE)],
        };
        if attempts
            .iter()
            .any(|flags| self.fallocate(*flags, offset, length).is_ok())
        {
            return Ok(());
        }
        if self.is_block && sys::block_zero(&self.file, offset, length).is_ok() {
            return Ok(());
        }
        self.write_plain_zeroes(offset, length)
    }
}

impl SetAside for FileDevice {
    /// The page cache finds its places later, and all at once.
    fn set_aside(&self, offset: u64, length: u64) -> bool {
        let gains = self.direct.is_some() && !self.is_block && !self.in_memory() && length > 0;
        let keep = FallocateFlags::KEEP_SIZE;
        gains
            && match rustix::fs::fallocate(&self.file, keep, offset, length) {
                // Where space lacks, a part of it may have been found.
                Ok(()) | Err(Errno::NOSPC) => true,
                // Such a filesystem could not take it back either.
                Err(_) => false,
            }
    }
}

impl Discard for FileDevice {
    fn discard(&self, offset: u64, length: u64) -> Result<()> {
        // A hint: what cannot be done is not done.
        if self.is_block {
            let _ = sys::block_discard(&self.file, offset, length);
        } else if length > 0 {
            *self.known_data() = 0..0;
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = self.fallocate(punch, offset, length);
        }
        Ok(())
    }
}

impl Resize for FileDevice {
    fn resize(&self, size: u64) -> Result<()> {
        if self.is_block {
            return Err(invalid("a block device cannot be resized").of(&self.name));
        }
        *self.known_data() = 0..0;
        self.file
            .set_len(size)
            .map_err(|error| Error::io("cannot be resized", error).of(&self.name))
    }
}

impl Flush for FileDevice {
    fn flush(&self) -> Result<()> {
        self.file
            .sync_data()
            .map_err(|error| Error::io("cannot be made durable", error).of(&self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file without a name, beside the program: what is in memory has no holes of its
    /// own.
    fn scratch(name: &str) -> File {
        let program = std::env::current_exe().unwrap();
        let path = program.with_file_name(format!("{name}-{}", std::process::id()));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        std::fs::remove_file(&path).unwrap();
        file.unwrap()
    }

    #[test]
    fn the_end_of_data_is_looked_for_once_and_again_after_a_change() {
        const LENGTH: u64 = 1 << 20;
        let device = FileDevice::new(scratch("extents"), "x", Caching::Buffered).unwrap();
        device.write_at(&vec![1; 1 << 20], 0).unwrap();
        let whole = device.extent_at(0).unwrap();
        assert_eq!((whole.length, whole.zero), (LENGTH, false));
        // Somebody else makes a hole: what was known is still right, if less exact.
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&device.file, punch, LENGTH / 2, LENGTH / 2).unwrap();
        let half = device.extent_at(LENGTH / 2).unwrap();
        assert_eq!((half.length, half.zero), (LENGTH / 2, false));
        // What we do ourselves is known.
        device
            .write_zeroes(LENGTH / 4, LENGTH / 4, Allocation::Free)
            .unwrap();
        let rest = device.extent_at(LENGTH / 4).unwrap();
        assert_eq!((rest.length, rest.zero), (LENGTH / 4 * 3, true));
        device.resize(LENGTH / 8).unwrap();
        assert_eq!(device.extent_at(0).unwrap().length, LENGTH / 8);
    }
}
