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

#[cfg(test)]
mod tests {
    use super::*;

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
