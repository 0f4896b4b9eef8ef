//! How often, and as what, each cluster of a part of the file is used.

use std::fmt;
use std::ops::Range;

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

    pub(super) const NONE: Self = Self(0);

    pub(super) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    pub(super) fn is(self, kind: Kind) -> bool {
        self.0 & Self::KIND == kind as u8
    }

    pub(super) fn set(&mut self, flag: Self) {
        self.0 |= flag.0;
    }

    fn is_free(self) -> bool {
        self.0 & Self::KIND == 0
    }
}

/// Adds references to what is known of a cluster. Says whether it was in use
/// as something else, or by something that does not share.
pub(super) fn join(count: &mut u16, uses: &mut Use, kind: Kind, times: u16) -> bool {
    let overlaps = !(uses.is_free() || uses.is(kind) && kind.is_shared());
    uses.0 |= if overlaps { Use::OVERLAP.0 } else { kind as u8 };
    *count = count.saturating_add(times);
    overlaps
}

pub(super) const PAGE: u64 = 8192;
const PAGE_LEN: usize = 8192;

struct Page {
    counts: [u16; PAGE_LEN],
    uses: [Use; PAGE_LEN],
}

/// The count of the clusters of a part of the file, kept where something is in
/// use.
///
/// If that is more than memory has room for, nothing is counted, and only
/// noted where in the file something is in use: then the file can be divided
/// into parts that fit.
pub(super) struct Census {
    pages: Vec<Option<Box<Page>>>,
    /// The clusters that are counted.
    part: Range<u64>,
    /// Which pages have something in use, in this part.
    touched: Vec<bool>,
    most_pages: usize,
    used_pages: usize,
}

impl Census {
    /// Of a part of the file.
    pub(super) fn of(part: Range<u64>, memory: usize) -> Result<Self> {
        let most_pages = memory / size_of::<Page>();
        if most_pages == 0 {
            return Err(limit("there is not enough memory to check an image"));
        }
        Ok(Self {
            pages: Vec::new(),
            part,
            touched: Vec::new(),
            most_pages,
            used_pages: 0,
        })
    }

    /// Whether more is in use than memory has room for.
    pub(super) fn is_too_large(&self) -> bool {
        self.used_pages > self.most_pages
    }

    /// Parts of so many clusters that have room each.
    pub(super) fn parts(&self, clusters: u64) -> Vec<Range<u64>> {
        let mut parts = Vec::new();
        let (mut start, mut used) = (0, 0);
        for number in 0..clusters.div_ceil(PAGE) {
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            if !self.touched.get(index).copied().unwrap_or(false) {
                continue;
            }
            if used == self.most_pages {
                parts.push(start..number * PAGE);
                (start, used) = (number * PAGE, 0);
            }
            used += 1;
        }
        parts.push(start..clusters);
        parts
    }

    /// Adds references to a cluster.
    pub(super) fn add(&mut self, cluster: u64, kind: Kind, times: u16) {
        if let Some((count, uses)) = self.slot(cluster) {
            join(count, uses, kind, times);
        }
    }

    /// Adds what is known of a cluster from elsewhere.
    pub(super) fn merge(&mut self, cluster: u64, more: u16, known: Use) {
        if let Some((count, uses)) = self.slot(cluster) {
            let overlaps = !uses.is_free();
            *count = count.saturating_add(more);
            uses.0 |= known.0;
            if overlaps {
                uses.0 |= Use::OVERLAP.0;
            }
        }
    }

    /// Notes something about a cluster.
    pub(super) fn note(&mut self, cluster: u64, flag: Use) {
        if let Some((_, uses)) = self.slot(cluster) {
            uses.0 |= flag.0;
        }
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

    fn page(&self, number: u64) -> Option<&Page> {
        let index = usize::try_from(number).ok()?;
        self.pages.get(index)?.as_deref()
    }

    fn slot(&mut self, cluster: u64) -> Option<(&mut u16, &mut Use)> {
        if !self.part.contains(&cluster) {
            return None;
        }
        let number = usize::try_from(cluster / PAGE).ok()?;
        if self.touched.len() <= number {
            self.touched.resize(number + 1, false);
        }
        if !self.touched[number] {
            self.touched[number] = true;
            self.used_pages += 1;
        }
        if self.is_too_large() {
            self.pages = Vec::new();
            return None;
        }
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || None);
        }
        let page = self.pages[number].get_or_insert_with(|| {
            Box::new(Page {
                counts: [0; PAGE_LEN],
                uses: [Use(0); PAGE_LEN],
            })
        });
        let index = within_page(cluster);
        Some((&mut page.counts[index], &mut page.uses[index]))
    }
}

fn within_page(cluster: u64) -> usize {
    usize::try_from(cluster % PAGE).unwrap_or(0)
}
