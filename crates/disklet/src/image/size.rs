//! Sizes as users of qemu-img write them.

use std::str::FromStr;

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteCount(pub(crate) u64);

impl FromStr for ByteCount {
    type Err = String;

    /// A number of bytes, or with one of k, K, M, G, T, P, E (powers of 1024,
    /// as qemu-img has them) and, as Kubernetes writes the same, Ki, Mi, Gi.
    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let shift = match unit {
            "" | "b" | "B" => 0,
            "k" | "K" | "Ki" | "KiB" => 10,
            "M" | "Mi" | "MiB" => 20,
            "G" | "Gi" | "GiB" => 30,
            "T" | "Ti" | "TiB" => 40,
            "P" | "Pi" | "PiB" => 50,
            "E" | "Ei" | "EiB" => 60,
            _ => {
                return Err(
                    "write a whole number, with K, M, G, T, P or E (powers of 1024)".to_owned(),
                );
            }
        };
        let number: u64 = number
            .parse()
            .map_err(|_| "write a whole number, such as 512 or 10G".to_owned())?;
        let bytes = number
            .checked_mul(1 << shift)
            .filter(|bytes| *bytes <= i64::MAX.unsigned_abs());
        bytes
            .map(Self)
            .ok_or_else(|| "no disk can be that large".to_owned())
    }
}

/// A new size for a disk: itself, or by how much the disk changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewSize {
    To(u64),
    More(u64),
    Less(u64),
}

impl FromStr for NewSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let count = |text: &str| text.parse().map(|ByteCount(bytes)| bytes);
        if let Some(more) = text.strip_prefix('+') {
            count(more).map(Self::More)
        } else if let Some(less) = text.strip_prefix('-') {
            count(less).map(Self::Less)
        } else {
            count(text).map(Self::To)
        }
    }
}

impl NewSize {
    /// For a disk that has so many bytes.
    pub(crate) fn of(self, before: u64) -> Result<u64, String> {
        match self {
            Self::To(size) => Ok(size),
            Self::More(more) => before
                .checked_add(more)
                .filter(|bytes| *bytes <= i64::MAX.unsigned_abs())
                .ok_or_else(|| "no disk can be that large".to_owned()),
            Self::Less(less) => before
                .checked_sub(less)
                .ok_or_else(|| format!("the disk has {before} bytes, less than {less}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_size_may_be_relative() {
        let size = |text: &str, before| text.parse::<NewSize>().and_then(|new| new.of(before));
        assert_eq!(size("1G", 512), Ok(1 << 30));
        assert_eq!(size("+1K", 512), Ok(1536));
        assert_eq!(size("-512", 1536), Ok(1024));
        assert_eq!(size("-512", 512), Ok(0));
        for bad in ["-1K", "+", "-", "--1", "+-1", "+7E", "x"] {
            size(bad, 1 << 62).and_then(|_| size(bad, 512)).unwrap_err();
        }
    }

    #[test]
    fn sizes_are_those_of_qemu_img() {
        let parse = |text: &str| text.parse::<ByteCount>().map(|count| count.0);
        assert_eq!(parse("512"), Ok(512));
        assert_eq!(parse("10G"), Ok(10 << 30));
        assert_eq!(parse("64Ki"), Ok(64 << 10));
        for bad in ["", "G", "-1", "1.5G", "10GB", "9E99", "99999999999E"] {
            parse(bad).unwrap_err();
        }
    }
}
