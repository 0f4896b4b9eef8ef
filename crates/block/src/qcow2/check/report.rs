//! What a check has found.

use std::fmt;

/// What a check has found, in the terms of `qemu-img check`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// What could not be checked.
    pub check_errors: u64,
    /// What may lose data or has lost it.
    pub corruptions: u64,
    /// Clusters that are counted as used, and are not.
    pub leaks: u64,
    /// Clusters of the disk.
    pub total_clusters: u64,
    /// Those of them that the image has.
    pub allocated_clusters: u64,
    /// Those that are compressed.
    pub compressed_clusters: u64,
    /// Those that do not follow the one before, in the file.
    pub fragmented_clusters: u64,
    /// Where the last cluster in use ends.
    pub image_end_offset: u64,
    /// The first problems in words; the numbers count all of them.
    pub problems: Vec<Problem>,
}

/// A problem in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Whether it is a mere leak.
    pub leak: bool,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// What a check comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Clean,
    /// Space is lost, nothing else.
    Leaks,
    /// The image is corrupt.
    Corrupt,
}

/// How many problems are put in words.
const MOST_PROBLEMS: usize = 100;

impl CheckReport {
    /// What it comes to.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.corruptions > 0 || self.check_errors > 0 {
            Verdict::Corrupt
        } else if self.leaks > 0 {
            Verdict::Leaks
        } else {
            Verdict::Clean
        }
    }

    pub(super) fn corruption(&mut self, what: impl FnOnce() -> String) {
        self.corruptions += 1;
        self.describe(false, what);
    }

    pub(super) fn leak(&mut self, what: impl FnOnce() -> String) {
        self.leaks += 1;
        self.describe(true, what);
    }

    fn describe(&mut self, leak: bool, what: impl FnOnce() -> String) {
        if self.problems.len() < MOST_PROBLEMS {
            self.problems.push(Problem { leak, what: what() });
        }
    }
}
