//! Internal snapshots and bitmaps: listed, not used.

use super::HostOffset;
use super::extension::{BitmapDirectory, be16, be32, be64};
use super::header::Header;
use super::image::Qcow2;
use super::tables::read_table;
use crate::device::{ReadAt, Size};
use crate::error::{Error, Result, corrupt, limit};

/// An internal snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its short id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub seconds: u32,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// Bytes of saved machine state.
    pub state_size: u64,
    /// How long the guest had run, in nanoseconds.
    pub guest_clock: u64,
    /// How many instructions it had run, if they were counted.
    pub instructions: Option<u64>,
    /// The size of the disk then.
    pub disk_size: u64,
    /// Where its L1 table is.
    pub(super) l1_offset: HostOffset,
    /// Entries of it.
    pub(super) l1_entries: u32,
    /// Bytes of its entry that early versions did not have.
    pub(super) extra: u64,
    /// Where its entry ends in the file.
    pub(super) end: u64,
}

/// A dirty bitmap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmapInfo {
    /// Its name.
    pub name: String,
    /// Bytes of the disk for each bit.
    pub granularity: u64,
    /// It was not saved properly.
    pub in_use: bool,
    /// It is kept up to date.
    pub auto: bool,
    /// Where its table is.
    pub(super) table_offset: HostOffset,
    /// Entries of it.
    pub(super) table_entries: u32,
}

/// What all snapshots together may take. QEMU allows 64 MiB, which nobody
/// uses: entries have some hundred bytes.
const MAX_SNAPSHOT_TABLE: u64 = 8 << 20;
/// What a snapshot may have that is not known here; QEMU's limit.
const MAX_EXTRA: u64 = 1024;
const MAX_BITMAPS: u32 = 65535;
const MAX_BITMAP_DIRECTORY: u64 = 8 << 20;

/// What an image says of itself, without what it names.
#[derive(Debug)]
pub struct Overview {
    /// The header.
    pub header: Header,
    /// The internal snapshots.
    pub snapshots: Vec<SnapshotInfo>,
    /// The dirty bitmaps.
    pub bitmaps: Vec<BitmapInfo>,
}

impl Overview {
    /// Reads what a file says; files that it names are not looked at.
    pub fn of(file: &(impl ReadAt + Size + ?Sized), name: &str) -> Result<Self> {
        let header = Qcow2::read_header(file, name)?;
        let read = |header: &Header| {
            header.check_places(file.size()?)?;
            let bitmaps = match header.bitmaps {
                Some(directory) => bitmaps(file, directory)?,
                None => Vec::new(),
            };
            Ok((snapshots(file, header)?, bitmaps))
        };
        let (snapshots, bitmaps) = read(&header).map_err(|error: Error| error.of(name))?;
        Ok(Self {
            header,
            snapshots,
            bitmaps,
        })
    }
}

/// Reads the snapshot table.
pub(super) fn snapshots(
    file: &(impl ReadAt + Size + ?Sized),
    header: &Header,
) -> Result<Vec<SnapshotInfo>> {
    let mut found = Vec::new();
    let start = header.snapshots_offset.0;
    let mut at = start;
    let mut window = Window::default();
    for _ in 0..header.snapshots {
        let fixed = window.read(file, at, 40)?;
        let extra = u64::from(be32(fixed, 36));
        let (id, name) = (u64::from(be16(fixed, 12)), u64::from(be16(fixed, 14)));
        let length = 40 + extra + id + name;
        let next = at.checked_add(length.next_multiple_of(8));
        let next = next.filter(|next| next - start <= MAX_SNAPSHOT_TABLE && extra <= MAX_EXTRA);
        let next = next.ok_or_else(|| limit("the snapshot table is too large"))?;
        let whole = window.read(file, at, length)?;
        found.push(SnapshotInfo {
            end: at + length,
            ..snapshot(whole, extra, id)?
        });
        at = next;
    }
    Ok(found)
}

/// A piece of the snapshot table: its entries are small and many.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn read(
        &mut self,
        file: &(impl ReadAt + Size + ?Sized),
        at: u64,
        length: u64,
    ) -> Result<&[u8]> {
        const PIECE: u64 = 64 << 10;
        let inside = at >= self.start && at + length <= self.start + self.bytes.len() as u64;
        if !inside {
            let there = file.size()?.saturating_sub(at);
            let piece = PIECE.min(there).max(length);
            self.bytes = read_table(file, HostOffset(at), piece, "snapshot table")?;
            self.start = at;
        }
        let from = usize::try_from(at - self.start).unwrap_or(0);
        let to = from + usize::try_from(length).unwrap_or(0);
        Ok(&self.bytes[from..to])
    }
}

fn snapshot(bytes: &[u8], extra: u64, id: u64) -> Result<SnapshotInfo> {
    let start = usize::try_from(40 + extra).map_err(|_| corrupt("a snapshot is too large"))?;
    let split = start + usize::try_from(id).unwrap_or(0);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(SnapshotInfo {
        id: text(&bytes[start..split]),
        name: text(&bytes[split..]),
        seconds: be32(bytes, 16),
        nanoseconds: be32(bytes, 20),
        guest_clock: be64(bytes, 24),
        state_size: if extra >= 8 {
            be64(bytes, 40)
        } else {
            be32(bytes, 32).into()
        },
        // As QEMU does: all ones are none.
        instructions: (extra >= 24)
            .then(|| be64(bytes, 56))
            .filter(|count| *count != u64::MAX),
        disk_size: if extra >= 16 { be64(bytes, 48) } else { 0 },
        l1_offset: HostOffset(be64(bytes, 0)),
        l1_entries: be32(bytes, 8),
        extra,
        end: 0,
    })
}

/// Reads the directory of bitmaps.
pub(super) fn bitmaps(
    file: &(impl ReadAt + Size + ?Sized),
    directory: BitmapDirectory,
) -> Result<Vec<BitmapInfo>> {
    if directory.count > MAX_BITMAPS || directory.size > MAX_BITMAP_DIRECTORY {
        return Err(limit("the directory of bitmaps is too large"));
    }
    let bytes = read_table(
        file,
        HostOffset(directory.offset),
        directory.size,
        "directory of bitmaps",
    )?;
    let mut rest = &bytes[..];
    let mut found = Vec::new();
    for _ in 0..directory.count {
        let short = || corrupt("the directory of bitmaps is cut short");
        let fixed = rest.get(..24).ok_or_else(short)?;
        let (name, extra) = (usize::from(be16(fixed, 18)), be32(fixed, 20) as usize);
        let length = 24 + extra + name;
        let whole = rest.get(..length).ok_or_else(short)?;
        let flags = be32(fixed, 12);
        let granularity_bits = u32::from(fixed[17]);
        if granularity_bits > 63 {
            return Err(corrupt("a bitmap has an impossible granularity"));
        }
        found.push(BitmapInfo {
            name: String::from_utf8_lossy(&whole[24 + extra..]).into_owned(),
            granularity: 1 << granularity_bits,
            in_use: flags & 1 != 0,
            auto: flags & 2 != 0,
            table_offset: HostOffset(be64(fixed, 0)),
            table_entries: be32(fixed, 8),
        });
        rest = rest.get(length.next_multiple_of(8)..).unwrap_or_default();
    }
    Ok(found)
}
