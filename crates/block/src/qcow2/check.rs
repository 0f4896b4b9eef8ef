//! Whether the tables of an image agree with each other.
//!
//! ```text
//!   header, L1, snapshots, bitmaps, refcount table --> what they name --+
//!   each L2 table once, weighted by how many L1 entries name it --------+--> census
//!   refcount blocks, compared with the census --> leaks, corruptions <--+
//! ```
//!
//! Nothing is repaired. The work is linear in what the file really holds:
//! every table is read once, however often it is named, and holes are passed
//! over. Memory is three bytes for each cluster of the file that is near
//! anything in use, within a limit.

mod bitmaps;
mod census;
mod compare;
mod entries;
mod report;
mod walk;

use std::ops::Range;

pub use report::{CheckReport, Problem, Verdict};

use super::header::Header;
use super::image::Qcow2;
use super::listing;
use crate::device::Source;
use crate::error::{Error, ErrorKind, Result, limit};
use census::{Census, Kind};

/// What a check may take unless told otherwise: enough for 1 TiB in clusters
/// of the usual size.
const USUAL_MEMORY: usize = 48 << 20;
/// As in QEMU.
const MAX_CLUSTERS: u64 = (1 << 31) - 1;

/// Checks the image in a file. What is below it is not looked at, nor is its
/// data.
pub fn check(file: &dyn Source, name: &str) -> Result<CheckReport> {
    check_within(file, name, USUAL_MEMORY)
}

/// The same with a limit of its own for the memory that counting takes.
pub fn check_within(file: &dyn Source, name: &str, memory: usize) -> Result<CheckReport> {
    let header = Qcow2::read_header(file, name)?;
    let checker = Checker::new(file, &header, memory).map_err(|error| error.of(name))?;
    checker.run().map_err(|error| error.of(name))
}

/// A check under way.
struct Checker<'c> {
    file: &'c dyn Source,
    header: &'c Header,
    census: Census,
    /// A part of the file that has nothing in it.
    hole: Range<u64>,
    report: CheckReport,
}

impl<'c> Checker<'c> {
    fn new(file: &'c dyn Source, header: &'c Header, memory: usize) -> Result<Self> {
        let size = file.size()?;
        let clusters = header.cluster.count_for(size);
        if clusters > MAX_CLUSTERS {
            return Err(limit("the file has too many clusters to be checked"));
        }
        Ok(Self {
            file,
            header,
            census: Census::new(size, header, memory),
            hole: 0..0,
            report: CheckReport {
                total_clusters: header.cluster.count_for(header.size),
                ..CheckReport::default()
            },
        })
    }

    fn run(mut self) -> Result<CheckReport> {
        let header = self.header;
        let cluster = header.cluster.bytes();
        self.count(0, cluster, Kind::Header)?;
        self.walk_l1(header.l1_offset.0, header.l1_entries, true)?;
        self.walk_snapshots()?;
        self.walk_l2_tables()?;
        let table = u64::from(header.refcount_clusters) * cluster;
        self.count(header.refcount_offset.0, table, Kind::RefcountTable)?;
        self.walk_bitmaps()?;
        self.compare()?;
        Ok(self.report)
    }

    /// Counts a reference to each cluster of a range. Says whether all of them
    /// are in the file and were free.
    fn count(&mut self, offset: u64, length: u64, kind: Kind) -> Result<bool> {
        self.count_times(offset, length, kind, 1)
    }

    fn count_times(&mut self, offset: u64, length: u64, kind: Kind, times: u16) -> Result<bool> {
        if length == 0 {
            return Ok(true);
        }
        let Some(clusters) = self.census.inside(offset, length) else {
            self.report.corruption(|| {
                format!("{kind} at offset {offset} reaches beyond the end of the file")
            });
            return Ok(false);
        };
        let mut free = true;
        for cluster in clusters {
            let added = self.census.add(cluster, kind, times)?;
            free &= !added.overlaps;
            for _ in 0..added.overflows {
                self.report.corruption(|| {
                    format!("cluster {cluster} is used more often than can be counted")
                });
            }
        }
        Ok(free)
    }

    fn walk_snapshots(&mut self) -> Result<()> {
        let header = self.header;
        let snapshots = match listing::snapshots(self.file, header) {
            Ok(snapshots) => snapshots,
            Err(error) => return self.cannot_go_on(error),
        };
        let Some(last) = snapshots.last() else {
            return Ok(());
        };
        let length = last.end.saturating_sub(header.snapshots_offset.0);
        self.count(header.snapshots_offset.0, length, Kind::Snapshots)?;
        if header.has_data_file() {
            self.report
                .corruption(|| "an image with a data file has snapshots".into());
        }
        for snapshot in &snapshots {
            let incomplete = header.version >= 3 && snapshot.extra < 16;
            if incomplete {
                self.report
                    .corruption(|| "the entry of a snapshot is incomplete".into());
            }
            if !header.cluster.begins_at(snapshot.l1_offset.0) {
                self.report.corruption(|| {
                    "the L1 table of a snapshot is not at the start of a cluster".into()
                });
            } else if u64::from(snapshot.l1_entries) * 8 > super::header::MAX_L1_BYTES {
                self.report
                    .corruption(|| "the L1 table of a snapshot is too large".into());
            } else {
                self.walk_l1(snapshot.l1_offset.0, snapshot.l1_entries, false)?;
            }
        }
        Ok(())
    }

    /// A list that cannot be read makes the image corrupt; whatever it names
    /// will count as leaked.
    fn cannot_go_on(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Corrupt | ErrorKind::Limit => {
                self.report.check_errors += 1;
                self.report.corruption(|| error.to_string());
                Ok(())
            }
            _ => Err(error),
        }
    }
}
