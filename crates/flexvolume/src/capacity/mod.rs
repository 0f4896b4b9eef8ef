//! The size of a volume that is made for the VM.

use std::fmt;
use std::num::NonZeroU64;

use crate::decimal::Decimal;
use crate::unit;

/// The `capacity` option: a number of bytes, in whole sectors and never zero.
///
/// Sizes are rounded up to sectors when they are read rather than when a disk
/// is made, so that the number in a plan is the number that the guest sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capacity(NonZeroU64);

impl Capacity {
    /// The unit in which disks are counted.
    pub const SECTOR: u64 = 512;

    /// 1024MB: a volume's size if nothing is said.
    pub const DEFAULT: Self = Self::constant(1_024_000_000);

    /// The longest disk that QEMU handles: 2⁶³ bytes less the gibibyte that it
    /// keeps for alignment.
    pub const MAX: Self = Self::constant((1 << 63) - (1 << 30));

    const fn constant(bytes: u64) -> Self {
        match NonZeroU64::new(bytes) {
            Some(bytes) => Self(bytes),
            None => panic!("a capacity is never zero"),
        }
    }

    /// Reads a number with a unit of libvirt's (`1024MB`, `10 GiB`) or of
    /// Kubernetes' (`10Gi`, `1.5Ti`), a number of bytes with an exponent
    /// (`1e9`), or a bare number of MB. Blanks around the parts are allowed.
    pub fn parse(text: &str) -> Result<Self, CapacityError> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Err(CapacityError::Empty);
        }
        let unsigned = text.trim_start_matches('-');
        if unsigned.len() < text.len() && Decimal::split(unsigned).is_some() {
            return Err(CapacityError::Negative);
        }
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        let (number, rest) = Decimal::split(unsigned).ok_or(CapacityError::NotANumber)?;
        let bytes = match Decimal::exponent(rest) {
            Some(exponent) => number.shifted(exponent).times_rounded_up(1),
            None => number.times_rounded_up(bytes_per_unit(rest.trim_ascii_start())?),
        };
        Self::in_whole_sectors(bytes.ok_or(CapacityError::TooLarge)?)
    }

    fn in_whole_sectors(bytes: u64) -> Result<Self, CapacityError> {
        let sectors = bytes.div_ceil(Self::SECTOR);
        let rounded = sectors
            .checked_mul(Self::SECTOR)
            .ok_or(CapacityError::TooLarge)?;
        let capacity = NonZeroU64::new(rounded).ok_or(CapacityError::Zero)?;
        if capacity > Self::MAX.0 {
            return Err(CapacityError::TooLarge);
        }
        Ok(Self(capacity))
    }

    /// In bytes; a multiple of [`Capacity::SECTOR`].
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.0.get()
    }
}

fn bytes_per_unit(unit: &str) -> Result<u64, CapacityError> {
    if unit::is_fraction(unit) {
        return Err(CapacityError::SubByteUnit(unit.to_owned()));
    }
    unit::bytes_of(unit).ok_or_else(|| CapacityError::UnknownUnit(unit.to_owned()))
}

impl Default for Capacity {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Capacity {
    /// Bytes, with the unit without which they would be read as megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B", self.0)
    }
}

/// Why a text is no [`Capacity`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CapacityError {
    /// There is nothing.
    Empty,
    /// It does not begin with a number.
    NotANumber,
    /// It is below zero.
    Negative,
    /// It is zero.
    Zero,
    /// There is no such unit.
    UnknownUnit(String),
    /// The unit is a part of a byte.
    SubByteUnit(String),
    /// It is above [`Capacity::MAX`].
    TooLarge,
}

impl CapacityError {
    /// The unit that was probably meant.
    #[must_use]
    pub fn suggestion(&self) -> Option<&'static str> {
        match self {
            Self::UnknownUnit(unit) | Self::SubByteUnit(unit) => unit::likely_meant(unit),
            Self::Empty | Self::NotANumber | Self::Negative | Self::Zero | Self::TooLarge => None,
        }
    }

    /// What a capacity may be.
    pub(crate) fn allowed() -> String {
        format!("a number above 0 with a unit: {}", unit::IN_WORDS)
    }
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::NotANumber => f.write_str("does not begin with a number"),
            Self::Negative => f.write_str("is below zero"),
            Self::Zero => f.write_str("is zero, and a disk of no size is none"),
            Self::UnknownUnit(unit) => write!(f, "has an unknown unit, {unit:?}"),
            Self::SubByteUnit(unit) => {
                write!(f, "has the unit {unit:?}, which is less than a byte")
            }
            Self::TooLarge => write!(
                f,
                "is larger than the largest disk, {} bytes",
                Capacity::MAX.bytes()
            ),
        }
    }
}

impl std::error::Error for CapacityError {}

#[cfg(test)]
mod tests;
