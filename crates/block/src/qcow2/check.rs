//! Whether the tables of an image agree with each other.
//!
//! ```text
//!   header, L1, snapshots, bitmaps, refcount table --> tables that they name --+
//!   each L2 table, weighted by how many L1 entries name it --------------------+--> census
//!   refcount blocks, compared with the census --> leaks, corruptions <---------+
//! ```
//!
//! Nothing is repaired. Memory is three bytes for each cluster of the file that
//! is near anything in use, within a limit. If that does not do, the file is
//! looked at in parts that fit, and the L2 tables are read once for each part.
//!
//! The work is linear in what the file really holds: a table is read once,
//! however often it is named, and holes are passed over.

mod bitmaps;
mod census;
mod compare;
mod entries;
mod holes;
mod report;
mod tables;
mod walk;

use std::ops::RangeInclusive;

pub use report::{CheckReport, Problem, Verdict};

use super::header::Header;
use super::image::Qcow2;
use super::listing;
use crate::device::Source;
use crate::error::{Error, ErrorKind, Result, limit};
use census::{Census, Kind};
use holes::Holes;
use tables::TableCensus;

/// What a check may take unless told otherwise: enough for 1 TiB in clusters
/// of the usual size at once.
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
    holes: Holes,
    file_size: u64,
    /// Clusters looked at: those of the file, and perhaps one that begins
    /// at its end.
    clusters: u64,
    tables: TableCensus,
    census: Census,
    /// What both may take.
    memory: usize,
    report: CheckReport,
}

impl<'c> Checker<'c> {
    fn new(file: &'c dyn Source, header: &'c Header, memory: usize) -> Result<Self> {
        let file_size = file.size()?;
        let clusters = header.cluster.count_for(file_size);
        if clusters > MAX_CLUSTERS {
            return Err(limit("the file has too many clusters to be checked"));
        }
        Ok(Self {
            file,
            header,
            holes: Holes::of(file)?,
            file_size,
            clusters,
            tables: TableCensus::within(memory / 2),
            census: Census::of(0..u64::MAX, memory)?,
            memory,
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
        let table = u64::from(header.refcount_clusters) * cluster;
        self.count(header.refcount_offset.0, table, Kind::RefcountTable)?;
        self.walk_bitmaps()?;
        let blocks = self.walk_refcount_table()?;
        // All tables are known by now.
        let memory = self.memory - self.tables.memory();
        self.census = Census::of(0..u64::MAX, memory)?;
        self.walk_l2_tables()?;
        if !self.census.is_too_large() {
            self.compare(&blocks, 0..self.clusters)?;
            return Ok(self.report);
        }
        for part in self.census.parts(self.clusters) {
            self.census = Census::of(part.clone(), memory)?;
            // What the tables say is known by now; only the counts are not.
            let known = std::mem::take(&mut self.report);
            self.walk_l2_tables()?;
            self.report = known;
            self.compare(&blocks, part)?;
        }
        Ok(self.report)
    }

    /// The clusters that a range touches, if the file reaches that far. Its
    /// last cluster may be cut short, but not missing.
    fn inside(&mut self, offset: u64, length: u64) -> Option<RangeInclusive<u64>> {
        let end = offset.checked_add(length)?;
        let beyond = end.saturating_sub(self.file_size);
        let cluster = self.header.cluster;
        if beyond >= cluster.bytes() {
            return None;
        }
        let last = (end - 1) >> cluster.bits();
        self.clusters = self.clusters.max(last + 1);
        Some(offset >> cluster.bits()..=last)
    }

    /// Counts a table in each cluster of a range. Says whether all of them are
    /// in the file and were free of other tables.
    fn count(&mut self, offset: u64, length: u64, kind: Kind) -> Result<bool> {
        if length == 0 {
            return Ok(true);
        }
        let Some(clusters) = self.inside(offset, length) else {
            self.is_outside(offset, kind);
            return Ok(false);
        };
        let mut free = true;
        for cluster in clusters {
            free &= !self.tables.add(cluster, kind)?;
        }
        Ok(free)
    }

    /// Counts data, as often as it is named.
    fn count_data(&mut self, offset: u64, length: u64, times: u16) {
        match self.inside(offset, length) {
            Some(clusters) => {
                clusters.for_each(|cluster| self.census.add(cluster, Kind::Data, times));
            }
            None => self.is_outside(offset, Kind::Data),
        }
    }

    fn is_outside(&mut self, offset: u64, kind: Kind) {
        self.report
            .corruption(|| format!("{kind} at offset {offset} reaches beyond the end of the file"));
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
