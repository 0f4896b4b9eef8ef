//! A partition table with one partition over the whole disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use uuid::Uuid;

/// The only partition, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) begin: u64,
    pub(super) length: u64,
}

/// Where it begins: aligned for any disk.
const BEGIN: u64 = 1 << 20;
/// Smaller disks have no megabyte to spare.
const SMALL: u64 = 4 << 20;
/// There it begins behind the table, aligned for the usual disk.
const BEGIN_OF_SMALL: u64 = 4096;

const SECTOR: u64 = 512;
/// Sectors of the table of partitions, without its header.
const ENTRIES: u64 = 32;
const LINUX: Uuid = Uuid::from_u128(0x0fc6_3daf_8483_4772_8e79_3d69_d847_7de4);
/// In which disks and partitions get their UUIDs.
const NAMESPACE: Uuid = Uuid::from_u128(0x4f0b_63de_1c7e_4f7b_9f0a_8f5f_30b7_2d11);

/// Writes a table for a disk of so many bytes. The master boot record does as
/// long as it can tell the size; every guest knows it. `name` makes larger disks'
/// UUIDs: the same disk gets the same.
pub(super) fn write_table(disk: &File, size: u64, name: &str) -> io::Result<Partition> {
    let begin = if size < SMALL { BEGIN_OF_SMALL } else { BEGIN };
    let sectors = size / SECTOR;
    let of_record = |bytes: u64| u32::try_from(bytes / SECTOR);
    match (of_record(begin), of_record(size)) {
        (Ok(first), Ok(sectors)) => {
            let record = boot_record(0x83, first, sectors.saturating_sub(first));
            disk.write_all_at(&record, 0)?;
            let length = size.saturating_sub(begin);
            Ok(Partition { begin, length })
        }
        _ => write_guid_table(disk, sectors, name),
    }
}

fn boot_record(kind: u8, begin: u32, length: u32) -> [u8; 512] {
    let mut sector = [0; 512];
    let entry = &mut sector[446..462];
    // Cylinders, heads and sectors mean nothing any more; this says so.
    entry[1..4].copy_from_slice(&[0xfe, 0xff, 0xff]);
    entry[4] = kind;
    entry[5..8].copy_from_slice(&[0xfe, 0xff, 0xff]);
    entry[8..12].copy_from_slice(&begin.to_le_bytes());
    entry[12..16].copy_from_slice(&length.to_le_bytes());
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

/// The table of UEFI, at the disk's begin and again at its end.
fn write_guid_table(disk: &File, sectors: u64, name: &str) -> io::Result<Partition> {
    let last = sectors - 1;
    let last_usable = last - ENTRIES - 1;
    let begin = BEGIN / SECTOR;
    let mut entries = vec![0; usize::try_from(ENTRIES * SECTOR).unwrap_or(0)];
    entries[..16].copy_from_slice(&LINUX.to_bytes_le());
    let own = Uuid::new_v5(&NAMESPACE, format!("{name} 1").as_bytes());
    entries[16..32].copy_from_slice(&own.to_bytes_le());
    entries[32..40].copy_from_slice(&begin.to_le_bytes());
    entries[40..48].copy_from_slice(&last_usable.to_le_bytes());
    let header = |at: u64, other: u64, entries_at: u64| {
        let mut header = [0; 512];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..12].copy_from_slice(&0x0001_0000_u32.to_le_bytes());
        header[12..16].copy_from_slice(&92_u32.to_le_bytes());
        header[24..32].copy_from_slice(&at.to_le_bytes());
        header[32..40].copy_from_slice(&other.to_le_bytes());
        header[40..48].copy_from_slice(&(ENTRIES + 2).to_le_bytes());
        header[48..56].copy_from_slice(&last_usable.to_le_bytes());
        let disk = Uuid::new_v5(&NAMESPACE, name.as_bytes());
        header[56..72].copy_from_slice(&disk.to_bytes_le());
        header[72..80].copy_from_slice(&entries_at.to_le_bytes());
        header[80..84].copy_from_slice(&128_u32.to_le_bytes());
        header[84..88].copy_from_slice(&128_u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let sum = crc32(&header[..92]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        header
    };
    disk.write_all_at(&boot_record(0xee, 1, u32::MAX), 0)?;
    disk.write_all_at(&header(1, last, 2), SECTOR)?;
    disk.write_all_at(&entries, 2 * SECTOR)?;
    disk.write_all_at(&entries, (last - ENTRIES) * SECTOR)?;
    disk.write_all_at(&header(last, 1, last - ENTRIES), last * SECTOR)?;
    Ok(Partition {
        begin: BEGIN,
        length: (last_usable + 1 - begin) * SECTOR,
    })
}

/// The checksum of Ethernet, gzip and UEFI.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| match sum & 1 {
            1 => sum >> 1 ^ 0xedb8_8320,
            _ => sum >> 1,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use disklet_block::new_file::scratch_file;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn fdisk_finds_one_partition_whatever_the_size() {
        let sizes = [
            (512 << 10, "dos", 8),
            (8_000_000 / 512 * 512, "dos", 2048),
            (3 << 40, "gpt", 2048),
        ];
        for (size, kind, start) in sizes {
            let disk = scratch_file(&std::env::temp_dir()).unwrap();
            disk.set_len(size).unwrap();
            let partition = write_table(&disk, size, "a disk").unwrap();
            let path = format!("/proc/{}/fd/{}", std::process::id(), disk.as_raw_fd());
            let output = Command::new("/sbin/sfdisk").args(["-J", &path]).output();
            let output = output.unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.is_empty(), "{said}");
            let table: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let table = &table["partitiontable"];
            assert_eq!(table["label"], kind);
            assert_eq!(table["partitions"].as_array().unwrap().len(), 1);
            assert_eq!(table["partitions"][0]["start"], start);
            assert_eq!(partition.begin, start * 512);
            assert_eq!(table["partitions"][0]["size"], partition.length / 512);
        }
    }
}
