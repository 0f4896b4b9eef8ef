//! Ports at which a guest is reached.

use std::fmt;

/// A set of ports of one protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ports(Vec<(u16, u16)>);

impl Ports {
    /// TCP, unless the VM says more: what services usually have. All of them
    /// would cost a pod 210 MiB, and passt half a process's descriptors.
    pub const TCP: &str = "1-9999";
    /// UDP, unless the VM says more.
    pub const UDP: &str = "1-1023";

    /// TCP and UDP, of VMs that name none.
    #[must_use]
    pub fn usual() -> (Self, Self) {
        let read = |text| Self::parse(text).unwrap_or_default();
        (read(Self::TCP), read(Self::UDP))
    }

    /// Reads ports and ranges, such as `22,8000-8099`, or `none`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut ports = Self::default();
        if text == "none" {
            return Ok(ports);
        }
        for part in text.split(',') {
            let Some((first, last)) = Self::parse_range(part) else {
                return Err(format!(
                    "{part:?} is neither a port from 1 to 65535 nor a range of them, such as 8000-8099"
                ));
            };
            ports.add(first, last);
        }
        Ok(ports)
    }

    /// Reads a port or a range.
    #[must_use]
    pub fn parse_range(text: &str) -> Option<(u16, u16)> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        port(first).zip(port(last)).filter(|(a, b)| a <= b)
    }

    /// Adds a range. Those that meet become one: passt refuses a port that
    /// stands twice.
    pub fn add(&mut self, first: u16, last: u16) {
        self.0.push((first, last));
        self.0.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (first, last) in self.0.drain(..) {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        self.0 = merged;
    }

    /// The lowest ones, at most so many.
    #[must_use]
    pub fn at_most(&self, mut most: u32) -> Self {
        let mut kept = Vec::new();
        for &(first, last) in &self.0 {
            let Some(more) = most.min(u32::from(last - first) + 1).checked_sub(1) else {
                break;
            };
            kept.push((
                first,
                first.saturating_add(u16::try_from(more).unwrap_or(u16::MAX)),
            ));
            most -= more + 1;
        }
        Self(kept)
    }

    /// Those that are not below a port.
    #[must_use]
    pub fn not_below(&self, lowest: u16) -> Self {
        let kept = self.0.iter().filter(|(_, last)| *last >= lowest);
        Self(
            kept.map(|&(first, last)| (first.max(lowest), last))
                .collect(),
        )
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        let count = |(first, last): &(u16, u16)| u32::from(last - first) + 1;
        self.0.iter().map(count).sum()
    }
}

/// Digits alone: `+80` is a number for Rust and none for passt.
fn port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port > 0)
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        Ports::parse(text).unwrap().to_string()
    }

    #[test]
    fn ports_that_meet_become_one_range() {
        assert_eq!(shown("22"), "22");
        assert_eq!(shown("8000-8099,22,8050-8200"), "22,8000-8200");
        assert_eq!(shown("1,2,3,5"), "1-3,5");
        assert_eq!(shown("65535,1-65535"), "1-65535");
        assert_eq!(shown("none"), "none");
        assert_eq!(shown(Ports::TCP), Ports::TCP);
        assert_eq!(shown(Ports::UDP), Ports::UDP);
    }

    #[test]
    fn low_ports_are_left_out() {
        let kept = |text: &str| Ports::parse(text).unwrap().not_below(1024).to_string();
        assert_eq!(kept("22,80,1000-1030,8080"), "1024-1030,8080");
        assert_eq!(kept("1-1023"), "none");
        assert_eq!(kept("1024"), "1024");
    }

    #[test]
    fn counts() {
        let ports = Ports::parse("8000-8099,22").unwrap();
        assert_eq!(ports.count(), 101);
        let all = Ports::parse("1-65535").unwrap();
        assert_eq!(all.count(), 65535);
    }

    #[test]
    fn the_lowest_are_kept() {
        let kept = |most| {
            Ports::parse("5,10-19,30-65535")
                .unwrap()
                .at_most(most)
                .to_string()
        };
        assert_eq!(kept(0), "none");
        assert_eq!(kept(1), "5");
        assert_eq!(kept(4), "5,10-12");
        assert_eq!(kept(11), "5,10-19");
        assert_eq!(kept(12), "5,10-19,30");
        assert_eq!(kept(u32::MAX), "5,10-19,30-65535");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "", "0", "65536", "9-8", "80,", "+80", "all", "~22", "80:81", " 80", "1-2-3",
        ] {
            assert!(Ports::parse(text).is_err(), "{text}");
        }
    }
}
