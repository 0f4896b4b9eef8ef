//! How often, and as what, each cluster of the file is used.

use std::fmt;
use std::ops::RangeInclusive;

use super::super::cluster::ClusterSize;
use super::super::header::Header;
use super::super::refcount::Width;
use crate::error::{Result, limit};

/// What a cluster is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Header = 1,
    L1,
    L2,
    RefcountTable,
    RefcountBlock,
    Snapshots,
    Bitmaps,
    Data,
}

impl Kind {
    /// Whether several may use the same cluster: snapshots share tables and
    /// data with the disk, compressed clusters share clusters of the file.
    fn is_shared(self) -> bool {
        matches!(self, Self::L2 | Self::Data)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "the header",
            Self::L1 => "an L1 table",
            Self::L2 => "an L2 table",
            Self::RefcountTable => "the refcount table",
            Self::RefcountBlock => "a refcount block",
            Self::Snapshots => "the snapshot table",
            Self::Bitmaps => "a bitmap",
            Self::Data => "a cluster",
        })
    }
}

/// What is known of a cluster besides its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use(u8);

impl Use {
    const KIND: u8 = 0x0f;
    /// It is used as two things of which only one can be.
    pub(super) const OVERLAP: Self = Self(0x10);
    /// The disk's tables say that nobody else uses it.
    pub(super) const COPIED: Self = Self(0x20);
    /// The disk's tables say that somebody else uses it.
    pub(super) const SHARED: Self = Self(0x40);
    /// The disk itself uses it, not only a snapshot.
    pub(super) const ACTIVE: Self = Self(0x80);

    pub(super) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub(super) fn is(self, kind: Kind) -> bool {
        self.0 & Self::KIND == kind as u8
    }

    fn is_free(self) -> bool {
        self.0 & Self::KIND == 0
    }
}

/// What became of an addition.
pub(super) struct Added {
    /// The cluster was in use as something else, or by something that does
    /// not share.
    pub(super) overlaps: bool,
    /// How often the count could not be raised.
    pub(super) overflows: u64,
}

pub(super) const PAGE: u64 = 8192;
const PAGE_LEN: usize = 8192;

struct Page {
    counts: [u16; PAGE_LEN],
    uses: [Use; PAGE_LEN],
}

/// The count of all clusters, kept where something is in use.
pub(super) struct Census {
    pages: Vec<Option<Box<Page>>>,
    cluster: ClusterSize,
    file_size: u64,
    /// Clusters looked at: those of the file, and perhaps one that begins
    /// at its end.
    clusters: u64,
    /// The largest count that the image can have; counts above 65535 are
    /// not told apart.
    most: u16,
    pages_left: usize,
}

impl Census {
    pub(super) fn new(file_size: u64, header: &Header, memory: usize) -> Self {
        Self {
            pages: Vec::new(),
            cluster: header.cluster,
            file_size,
            clusters: header.cluster.count_for(file_size),
            most: u16::try_from(Width::of(header).max()).unwrap_or(u16::MAX),
            pages_left: memory / size_of::<Page>(),
        }
    }

    /// The clusters that a range touches, if the file reaches that far. Its
    /// last cluster may be cut short, but not missing.
    pub(super) fn inside(&self, offset: u64, length: u64) -> Option<RangeInclusive<u64>> {
        let end = offset.checked_add(length)?;
        let beyond = end.saturating_sub(self.file_size);
        let bits = self.cluster.bits();
        (beyond < self.cluster.bytes()).then(|| offset >> bits..=(end - 1) >> bits)
    }

    /// How many clusters there are to be compared.
    pub(super) fn clusters(&self) -> u64 {
        self.clusters
    }

    /// Adds references to a cluster that is inside.
    pub(super) fn add(&mut self, cluster: u64, kind: Kind, times: u16) -> Result<Added> {
        self.clusters = self.clusters.max(cluster + 1);
        let most = self.most;
        let (count, uses) = self.slot(cluster)?;
        let overlaps = !(uses.is_free() || uses.is(kind) && kind.is_shared());
        uses.0 |= if overlaps { Use::OVERLAP.0 } else { kind as u8 };
        let free = most - (*count).min(most);
        *count += times.min(free);
        // Beyond 16 bits the counts are only known to be large.
        let overflows = if most == u16::MAX {
            0
        } else {
            times - times.min(free)
        };
        Ok(Added {
            overlaps,
            overflows: overflows.into(),
        })
    }

    /// Notes something about a cluster that is inside.
    pub(super) fn note(&mut self, cluster: u64, flag: Use) -> Result<()> {
        let (_, uses) = self.slot(cluster)?;
        uses.0 |= flag.0;
        Ok(())
    }

    /// What is known of a cluster.
    pub(super) fn get(&self, cluster: u64) -> (u16, Use) {
        let page = self.page(cluster / PAGE);
        page.map_or((0, Use(0)), |page| {
            let index = within_page(cluster);
            (page.counts[index], page.uses[index])
        })
    }

    /// Whether anything is known of a page's clusters.
    pub(super) fn has_page(&self, number: u64) -> bool {
        self.page(number).is_some()
    }

    /// The next cluster from `from` on that is used as `kind`.
    pub(super) fn next_of(&self, kind: Kind, from: u64) -> Option<u64> {
        let mut number = from / PAGE;
        let mut index = within_page(from);
        while number < self.pages.len() as u64 {
            if let Some(page) = self.page(number) {
                let found = page.uses[index..].iter().position(|uses| uses.is(kind));
                if let Some(found) = found {
                    return Some(number * PAGE + (index + found) as u64);
                }
            }
            number += 1;
            index = 0;
        }
        None
    }

    fn page(&self, number: u64) -> Option<&Page> {
        let index = usize::try_from(number).ok()?;
        self.pages.get(index)?.as_deref()
    }

    fn slot(&mut self, cluster: u64) -> Result<(&mut u16, &mut Use)> {
        let number = usize::try_from(cluster / PAGE).unwrap_or(usize::MAX);
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || None);
        }
        let place = &mut self.pages[number];
        if place.is_none() {
            let left = self.pages_left.checked_sub(1);
            self.pages_left =
                left.ok_or_else(|| limit("the image has too many clusters to be checked"))?;
        }
        let page = place.get_or_insert_with(|| {
            Box::new(Page {
                counts: [0; PAGE_LEN],
                uses: [Use(0); PAGE_LEN],
            })
        });
        let index = within_page(cluster);
        Ok((&mut page.counts[index], &mut page.uses[index]))
    }
}

fn within_page(cluster: u64) -> usize {
    usize::try_from(cluster % PAGE).unwrap_or(0)
}
