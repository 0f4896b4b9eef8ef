//! Sizes in bytes: as Kubernetes writes them, and as people read them.

mod quantity;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use quantity::{QuantityError, parse_quantity};

/// A number of bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ByteSize(u64);

impl ByteSize {
    /// So many bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// In bytes.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// As a Kubernetes quantity, in the largest binary unit that it is a multiple of.
    #[must_use]
    pub fn as_quantity(self) -> String {
        let whole = |unit: u64| self.0 >= unit && self.0.is_multiple_of(unit);
        let unit = BINARY_UNITS.into_iter().find(|(_, unit)| whole(*unit));
        match unit {
            Some((name, unit)) => format!("{}{}", self.0 / unit, name.trim_end_matches('B')),
            None => self.0.to_string(),
        }
    }

    /// The sum, unless it exceeds 64 bits.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }
}

impl From<u64> for ByteSize {
    fn from(bytes: u64) -> Self {
        Self(bytes)
    }
}

/// Largest first.
const BINARY_UNITS: [(&str, u64); 6] = [
    ("EiB", 1 << 60),
    ("PiB", 1 << 50),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

impl fmt::Display for ByteSize {
    /// The largest binary unit with at most two decimals, `1.5 GiB`. If that
    /// would not tell the size to the byte, the bytes stand beside it, as in
    /// `976.56 MiB (1024000000 B)`: two sizes that differ never look alike.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((name, unit)) = BINARY_UNITS.into_iter().find(|(_, unit)| self.0 >= *unit) else {
            return write!(f, "{} B", self.0);
        };
        let (bytes, unit) = (u128::from(self.0), u128::from(unit));
        let hundredths = bytes * 100 / unit;
        write_decimal(f, hundredths)?;
        write!(f, " {name}")?;
        // Rounded up, as a quantity is when it is read.
        if (hundredths * unit).div_ceil(100) == bytes {
            return Ok(());
        }
        write!(f, " ({bytes} B)")
    }
}

fn write_decimal(f: &mut fmt::Formatter<'_>, hundredths: u128) -> fmt::Result {
    let (whole, decimals) = (hundredths / 100, hundredths % 100);
    match decimals {
        0 => write!(f, "{whole}"),
        _ if decimals.is_multiple_of(10) => write!(f, "{whole}.{}", decimals / 10),
        _ => write!(f, "{whole}.{decimals:02}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(bytes: u64) -> String {
        ByteSize::from_bytes(bytes).to_string()
    }

    #[test]
    fn round_sizes_are_shown_in_their_unit() {
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1 KiB");
        assert_eq!(shown(3 << 29), "1.5 GiB");
        assert_eq!(shown(5 << 28), "1.25 GiB");
        assert_eq!(shown(1 << 40), "1 TiB");
        assert_eq!(shown(1000 << 30), "1000 GiB");
        assert_eq!(shown(1_181_116_007), "1.1 GiB");
    }

    #[test]
    fn other_sizes_are_shown_to_the_byte_as_well() {
        assert_eq!(shown(1_024_000_000), "976.56 MiB (1024000000 B)");
        assert_eq!(shown((1 << 30) - 1), "1023.99 MiB (1073741823 B)");
        assert_eq!(shown((1 << 30) + 1), "1 GiB (1073741825 B)");
        assert_eq!(shown(u64::MAX), "15.99 EiB (18446744073709551615 B)");
    }

    #[test]
    fn quantities_are_short_and_exact() {
        let written = |bytes| ByteSize::from_bytes(bytes).as_quantity();
        assert_eq!(written(0), "0");
        assert_eq!(written(1 << 30), "1Gi");
        assert_eq!(written(3 << 29), "1536Mi");
        assert_eq!(written(1_000_000_000), "1000000000");
        for bytes in [0, 1, 1023, 1 << 10, 5 << 40, u64::MAX] {
            let size = ByteSize::from_bytes(bytes);
            assert_eq!(parse_quantity(&size.as_quantity()), Ok(size));
        }
    }

    #[test]
    fn sums_do_not_wrap() {
        let one = ByteSize::from_bytes(1);
        assert_eq!(one.checked_add(one), Some(ByteSize::from_bytes(2)));
        assert_eq!(ByteSize::from_bytes(u64::MAX).checked_add(one), None);
    }

    #[test]
    fn serializes_as_a_number() {
        assert_eq!(
            serde_json::to_string(&ByteSize::from_bytes(512)).unwrap(),
            "512"
        );
    }

    proptest! {
        #[test]
        fn what_is_shown_tells_the_size_exactly(shift in 0..64_u32, bytes: u64) {
            let size = ByteSize::from_bytes(bytes >> shift);
            let text = size.to_string();
            let exact = match text.split_once('(') {
                Some((_, exact)) => exact.trim_end_matches(')').to_owned(),
                None => text,
            };
            let quantity = exact.replace([' ', 'B'], "");
            prop_assert_eq!(parse_quantity(&quantity), Ok(size));
        }
    }
}
