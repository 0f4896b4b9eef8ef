//! Kubernetes' quantities, as far as they are sizes.

use std::fmt;

use disklet_flexvolume::Decimal;

use super::ByteSize;

/// Reads a Kubernetes quantity as a size, rounded up to whole bytes.
///
/// The grammar is that of Kubernetes' documentation: an optional sign, a
/// decimal number with a digit before or after the point, then a suffix or an
/// exponent (`1E3` is a thousand, `1E` an exa). Where Kubernetes is silent
/// about a size that it cannot hold, it is an error here.
pub fn parse_quantity(text: &str) -> Result<ByteSize, QuantityError> {
    if text.is_empty() {
        return Err(QuantityError::Empty);
    }
    let (is_negative, unsigned) = split_sign(text);
    let (number, suffix) = Decimal::split(unsigned).ok_or(QuantityError::NotANumber)?;
    let scale = Scale::of(suffix)?;
    if is_negative && !number.is_zero() {
        return Err(QuantityError::Negative);
    }
    let bytes = match scale {
        Scale::Ten { power } => number.shifted(power).times_rounded_up(1),
        Scale::Two { power } => number.times_rounded_up(1 << power),
    };
    bytes
        .map(ByteSize::from_bytes)
        .ok_or(QuantityError::TooLarge)
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(unsigned) => (true, unsigned),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// What a suffix multiplies by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Ten { power: i64 },
    Two { power: u32 },
}

const SUFFIXES: [(&str, Scale); 16] = [
    ("", Scale::Ten { power: 0 }),
    ("n", Scale::Ten { power: -9 }),
    ("u", Scale::Ten { power: -6 }),
    ("m", Scale::Ten { power: -3 }),
    ("k", Scale::Ten { power: 3 }),
    ("M", Scale::Ten { power: 6 }),
    ("G", Scale::Ten { power: 9 }),
    ("T", Scale::Ten { power: 12 }),
    ("P", Scale::Ten { power: 15 }),
    ("E", Scale::Ten { power: 18 }),
    ("Ki", Scale::Two { power: 10 }),
    ("Mi", Scale::Two { power: 20 }),
    ("Gi", Scale::Two { power: 30 }),
    ("Ti", Scale::Two { power: 40 }),
    ("Pi", Scale::Two { power: 50 }),
    ("Ei", Scale::Two { power: 60 }),
];

impl Scale {
    fn of(suffix: &str) -> Result<Self, QuantityError> {
        let known = SUFFIXES.iter().find(|(name, _)| *name == suffix);
        known
            .map(|(_, scale)| *scale)
            .or_else(|| Decimal::exponent(suffix).map(|power| Self::Ten { power }))
            .ok_or_else(|| QuantityError::UnknownSuffix(suffix.to_owned()))
    }
}

/// Why a text is no size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuantityError {
    /// There is nothing.
    Empty,
    /// It does not begin with a number.
    NotANumber,
    /// What follows the number is neither a suffix nor an exponent.
    UnknownSuffix(String),
    /// It is below zero.
    Negative,
    /// It is 2⁶⁴ bytes or more.
    TooLarge,
}

impl QuantityError {
    /// The suffix that was probably meant: one that differs by case only, or
    /// by the `B` for bytes, which quantities leave out.
    #[must_use]
    pub fn suggestion(&self) -> Option<&'static str> {
        let Self::UnknownSuffix(suffix) = self else {
            return None;
        };
        let without_bytes = suffix.strip_suffix(['B', 'b']).unwrap_or(suffix);
        SUFFIXES
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| !name.is_empty())
            // Nobody has thousandths of a byte in mind.
            .filter(|name| !matches!(*name, "n" | "u" | "m"))
            .find(|name| name.eq_ignore_ascii_case(without_bytes))
    }
}

impl fmt::Display for QuantityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::NotANumber => f.write_str("does not begin with a number"),
            Self::UnknownSuffix(suffix) => {
                write!(f, "has an unknown suffix, {suffix:?}")
            }
            Self::Negative => f.write_str("is below zero"),
            Self::TooLarge => f.write_str("is more than 64 bits can count"),
        }
    }
}

impl std::error::Error for QuantityError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Result<u64, QuantityError> {
        parse_quantity(text).map(ByteSize::as_bytes)
    }

    #[test]
    fn every_form_of_a_size_is_read() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("10M", 10_000_000),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            (".5Gi", 1 << 29),
            ("1.Ki", 1024),
            ("+1Gi", 1 << 30),
            ("100Ti", 100 << 40),
            ("1k", 1000),
            ("1e3", 1000),
            ("1E3", 1000),
            ("1E+3", 1000),
            ("1.5e3", 1500),
            ("5000e-3", 5),
            ("1E", 1_000_000_000_000_000_000),
            ("1Ei", 1 << 60),
            ("15.5Ei", 31 << 59),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn parts_of_a_byte_are_rounded_up() {
        for (text, expected) in [
            ("1m", 1),
            ("1000m", 1),
            ("1001m", 2),
            ("1n", 1),
            ("0.1u", 1),
            ("0n", 0),
            ("1.1", 2),
            ("0.1Ki", 103),
            ("1e-999999999", 1),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn each_fault_has_its_own_error() {
        use QuantityError::*;
        assert_eq!(bytes(""), Err(Empty));
        for text in ["Gi", ".", "+", "-", "--1", "+-1", " 1", "e3", "big", "٣"] {
            assert_eq!(bytes(text), Err(NotANumber), "{text}");
        }
        for suffix in [
            "GB", "gi", "K", "B", "i", "e", "e+", "e1.5", "E3i", " Gi", "_", "Gi ",
        ] {
            let error = UnknownSuffix(suffix.to_owned());
            assert_eq!(bytes(&format!("1{suffix}")), Err(error), "{suffix}");
        }
        for text in ["-1", "-1Gi", "-0.1n", "-1e999999999"] {
            assert_eq!(bytes(text), Err(Negative), "{text}");
        }
        for text in ["16Ei", "18446744073709551616", "19E", "1e20"] {
            assert_eq!(bytes(text), Err(TooLarge), "{text}");
        }
    }

    #[test]
    fn huge_exponents_are_answered_at_once() {
        for text in ["1e999999999", "1E99999999999999999999999", "0.1e2147483648"] {
            assert_eq!(bytes(text), Err(QuantityError::TooLarge), "{text}");
        }
        assert_eq!(bytes("0e999999999999999999999"), Ok(0));
        assert_eq!(bytes("1e-99999999999999999999999"), Ok(1));
    }

    #[test]
    fn misspelt_suffixes_get_a_suggestion() {
        let suggestion = |text| parse_quantity(text).unwrap_err().suggestion();
        assert_eq!(suggestion("1GB"), Some("G"));
        assert_eq!(suggestion("1GiB"), Some("Gi"));
        assert_eq!(suggestion("1gi"), Some("Gi"));
        assert_eq!(suggestion("1MB"), Some("M"));
        assert_eq!(suggestion("1K"), Some("k"));
        assert_eq!(suggestion("1B"), None);
        assert_eq!(suggestion("1X"), None);
    }

    /// A suffix as a fraction, written out by hand.
    const MODEL: [(&str, u128, u128); 12] = [
        ("", 1, 1),
        ("n", 1, 1_000_000_000),
        ("u", 1, 1_000_000),
        ("m", 1, 1_000),
        ("k", 1_000, 1),
        ("G", 1_000_000_000, 1),
        ("E", 1_000_000_000_000_000_000, 1),
        ("Ki", 1_024, 1),
        ("Gi", 1_073_741_824, 1),
        ("Ei", 1_152_921_504_606_846_976, 1),
        ("e7", 10_000_000, 1),
        ("E-2", 1, 100),
    ];

    proptest! {
        #[test]
        fn agrees_with_fractions(
            shift in 0..64_u32,
            thousandths: u64,
            (suffix, numerator, denominator) in prop::sample::select(&MODEL[..]),
        ) {
            let thousandths = thousandths >> shift;
            let text = format!("{}.{:03}{suffix}", thousandths / 1000, thousandths % 1000);
            let exact = (u128::from(thousandths) * numerator).div_ceil(1000 * denominator);
            let expected = u64::try_from(exact).map_err(|_| QuantityError::TooLarge);
            prop_assert_eq!(bytes(&text), expected);
        }

        #[test]
        fn no_text_upsets_the_parser(text in "\\PC*|[+-]?[0-9.]{0,30}[a-zA-Z]{0,3}[+-]?[0-9]{0,25}") {
            let _ = parse_quantity(&text);
        }
    }
}
