//! Which partition of a disk the guest mounts.

use std::fmt;

/// The `part` option: the partition that the guest mounts, or 0 for the disk
/// itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u32);

impl Partition {
    /// No partition: the disk itself is mounted.
    pub const WHOLE_DISK: Self = Self(0);

    /// The last partition of a partition table of the usual size (GPT).
    pub const MAX: Self = Self(128);

    /// Reads decimal digits: no sign, no blanks.
    pub fn parse(text: &str) -> Result<Self, PartitionError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(PartitionError::NotANumber);
        }
        match text.parse() {
            Ok(number) if number <= Self::MAX.0 => Ok(Self(number)),
            _ => Err(PartitionError::TooLarge),
        }
    }

    /// The number; 0 for the disk itself.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

impl Default for Partition {
    /// The first partition.
    fn default() -> Self {
        Self(1)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is no [`Partition`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartitionError {
    /// It has something other than digits, or nothing.
    NotANumber,
    /// It is above [`Partition::MAX`].
    TooLarge,
}

impl fmt::Display for PartitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber => f.write_str("is not a partition number"),
            Self::TooLarge => write!(f, "is above {}, the last partition", Partition::MAX),
        }
    }
}

impl std::error::Error for PartitionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_plain_numbers_up_to_128() {
        let number = |text| Partition::parse(text).map(Partition::number);
        assert_eq!(number("0"), Ok(0));
        assert_eq!(number("2"), Ok(2));
        assert_eq!(number("007"), Ok(7));
        assert_eq!(number("128"), Ok(128));
        assert_eq!(number("129"), Err(PartitionError::TooLarge));
        assert_eq!(number("99999999999999"), Err(PartitionError::TooLarge));
        for text in ["", "-1", "+1", " 1", "1.0", "one", "٣"] {
            assert_eq!(number(text), Err(PartitionError::NotANumber), "{text}");
        }
    }

    #[test]
    fn the_first_partition_is_the_default() {
        assert_eq!(Partition::default().number(), 1);
        assert_eq!(Partition::WHOLE_DISK.number(), 0);
    }
}
