//! Carries actions out: on the target and on the scratch.

use super::action::Action;
use super::disk::Disk;
use super::unpack::Unpacker;
use super::{Options, Report, Room, Scratch};
use crate::convert::Watch;
use crate::device::Target;
use crate::error::{Result, invalid, limit};
use crate::image::Format;
use crate::qcow2::{ClusterSize, Compression};
use crate::sys::AlignedBuffer;

/// Neighbours on the disk are written together up to this size; it holds the
/// largest cluster.
const BATCH: usize = 2 << 20;
/// Bytes that come in longer runs are written from where they are.
const LONG: usize = 128 << 10;
/// Files grow in steps of this size.
const GROWTH: u64 = 8 << 20;

/// Does what a placer says.
pub(super) struct Carrier<'c> {
    disk: Disk<'c>,
    scratch: &'c dyn Scratch,
    room: Room<'c>,
    most_parked: u64,
    target_size: u64,
    scratch_size: Option<u64>,
    batch: Batch,
    cluster: usize,
    unpacker: Unpacker,
    packed: Vec<u8>,
    report: Report,
}

/// Bytes that wait for their neighbours.
struct Batch {
    bytes: AlignedBuffer,
    guest: u64,
    filled: usize,
}

impl<'c> Carrier<'c> {
    pub(super) fn new(
        options: &Options<'c>,
        target: &'c dyn Target,
        scratch: &'c dyn Scratch,
        watch: &'c dyn Watch,
    ) -> Self {
        Self {
            disk: Disk {
                target,
                watch,
                before: options.before,
                written: 0,
                zeroed: 0,
            },
            scratch,
            room: options.room,
            most_parked: options.limits.parked,
            target_size: 0,
            scratch_size: None,
            batch: Batch {
                bytes: AlignedBuffer::zeroed(BATCH),
                guest: 0,
                filled: 0,
            },
            cluster: ClusterSize::DEFAULT.buffer_len(),
            unpacker: Unpacker::new(Compression::Zlib),
            packed: Vec::new(),
            report: Report {
                format: Format::Raw,
                size: 0,
                file: 0,
                written: 0,
                zero: 0,
                parked: 0,
                marked_corrupt: false,
            },
        }
    }

    /// The stream is qcow2, and packed clusters are of this kind.
    pub(super) fn expect_clusters(&mut self, cluster: ClusterSize, compression: Compression) {
        self.report.format = Format::Qcow2;
        self.cluster = cluster.buffer_len();
        self.unpacker = Unpacker::new(compression);
    }

    /// Whether the image says of itself that it is corrupt.
    pub(super) fn report_mark(&mut self, corrupt: bool) {
        self.report.marked_corrupt = corrupt;
    }

    /// The disk has this size.
    pub(super) fn set_size(&mut self, size: u64) -> Result<()> {
        self.report.size = size;
        match self.room {
            Room::Grows(target) => target.resize(size),
            Room::Fixed => self.grow(size),
        }
    }

    /// The disk has at least this size.
    pub(super) fn grow(&mut self, size: u64) -> Result<()> {
        if size <= self.target_size {
            return Ok(());
        }
        match self.room {
            Room::Grows(target) => {
                self.target_size = size.next_multiple_of(GROWTH);
                target.resize(self.target_size)
            }
            Room::Fixed => {
                self.target_size = self.disk.target.size()?;
                if self.target_size < size {
                    return Err(invalid("the target is smaller than the disk"));
                }
                Ok(())
            }
        }
    }

    pub(super) fn count_file(&mut self, bytes: usize) {
        self.report.file += bytes as u64;
    }

    /// Does one thing; see [`super::Carry`].
    pub(super) fn carry(&mut self, action: Action<'_>) -> Result<u64> {
        match action {
            Action::Write { guest, bytes } => self.write(guest, bytes)?,
            Action::Unpack {
                guest,
                length,
                packed,
            } => return self.unpack(guest, length, packed),
            Action::Zero { guest, length } => self.disk.zero(guest, length)?,
            Action::Park { host, bytes } => self.park(host, bytes)?,
            Action::Fetch {
                guest,
                host,
                length,
            } => self.fetch(guest, host, length)?,
            Action::FetchPacked {
                guest,
                length,
                host,
                packed,
            } => {
                let mut bytes = std::mem::take(&mut self.packed);
                bytes.resize(usize::try_from(packed).unwrap_or(0), 0);
                self.scratch.read_at(&mut bytes, host)?;
                self.unpack(guest, length, &bytes)?;
                self.packed = bytes;
            }
        }
        Ok(0)
    }

    fn write(&mut self, guest: u64, bytes: &[u8]) -> Result<()> {
        if bytes.len() >= LONG {
            return self.disk.put(guest, bytes);
        }
        self.make_room(guest, bytes.len())?;
        let filled = self.batch.filled;
        self.batch.bytes[filled..filled + bytes.len()].copy_from_slice(bytes);
        self.batch.filled += bytes.len();
        Ok(())
    }

    fn unpack(&mut self, guest: u64, length: u64, packed: &[u8]) -> Result<u64> {
        self.make_room(guest, self.cluster)?;
        let filled = self.batch.filled;
        let cluster = &mut self.batch.bytes[filled..filled + self.cluster];
        let used = self.unpacker.unpack(packed, cluster)?;
        self.batch.filled += usize::try_from(length).unwrap_or(0).min(self.cluster);
        Ok(used as u64)
    }

    fn fetch(&mut self, mut guest: u64, mut host: u64, length: u64) -> Result<()> {
        let end = host + length;
        while host < end {
            self.flush_batch()?;
            let step = usize::try_from(end - host).unwrap_or(BATCH).min(BATCH);
            self.scratch.read_at(&mut self.batch.bytes[..step], host)?;
            self.batch.guest = guest;
            self.batch.filled = step;
            guest += step as u64;
            host += step as u64;
        }
        Ok(())
    }

    /// Makes the batch one that so many bytes of the disk can be added to.
    fn make_room(&mut self, guest: u64, length: usize) -> Result<()> {
        let next = self.batch.guest + self.batch.filled as u64;
        if guest != next || self.batch.filled + length > BATCH {
            self.flush_batch()?;
            self.batch.guest = guest;
        }
        Ok(())
    }

    fn flush_batch(&mut self) -> Result<()> {
        let filled = std::mem::take(&mut self.batch.filled);
        if filled == 0 {
            return Ok(());
        }
        self.disk.put(self.batch.guest, &self.batch.bytes[..filled])
    }

    fn park(&mut self, host: u64, bytes: &[u8]) -> Result<()> {
        self.report.parked += bytes.len() as u64;
        if self.report.parked > self.most_parked {
            return Err(limit(format!(
                "the image's tables come so late that more than {} bytes would have to be parked",
                self.most_parked
            )));
        }
        let size = match self.scratch_size {
            Some(size) => size,
            None => self.scratch.size()?,
        };
        let end = host + bytes.len() as u64;
        if end > size {
            let grown = end.next_multiple_of(GROWTH);
            self.scratch.resize(grown)?;
            self.scratch_size = Some(grown);
        } else {
            self.scratch_size = Some(size);
        }
        self.scratch.write_at(bytes, host)
    }

    /// Reads a cluster that was parked.
    pub(super) fn read_parked(&self, buffer: &mut [u8], host: u64) -> Result<()> {
        self.scratch.read_at(buffer, host)
    }

    /// The disk goes on behind so many bytes.
    pub(super) fn begin_at(&mut self, disk: u64) -> Result<()> {
        match self.room {
            // What came behind them may not be what comes now.
            Room::Grows(target) => target.resize(disk),
            Room::Fixed => Ok(()),
        }
    }

    /// Makes what was written until now durable.
    pub(super) fn settle(&mut self) -> Result<()> {
        self.flush_batch()?;
        self.disk.target.flush()
    }

    /// Writes what waits, and makes everything durable.
    pub(super) fn finish(mut self) -> Result<Report> {
        self.settle()?;
        Ok(Report {
            written: self.disk.written,
            zero: self.disk.zeroed,
            ..self.report
        })
    }
}
