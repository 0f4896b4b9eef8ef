//! What storage is called at its server.
//!
//! libvirt and QEMU put these names into addresses and take them apart again.
//! A name that could be taken for more than a name is refused, not escaped.

use std::fmt;

use crate::diag::is_unprintable;

macro_rules! checked {
    ($($(#[$doc:meta])* $name:ident: $what:literal, $allowed:literal, $valid:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// What such a name is called.
            pub const WHAT: &str = $what;
            /// The rule in words.
            pub const ALLOWED: &str = $allowed;

            /// Checks a text.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                let valid: fn(&str) -> bool = $valid;
                valid(text).then(|| Self(text.to_owned()))
            }

            /// As text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

checked! {
    /// An NBD export; empty for the default one.
    NbdExport: "an NBD export",
        "at most 4096 bytes without invisible characters and without '?', '#' and '%'",
        |text| text.len() <= 4096 && no_odd(text, "?#%");
    /// A Gluster volume.
    GlusterVolume: "a Gluster volume",
        "letters, digits, '-' and '_'",
        |text| !text.is_empty() && text.len() <= 255
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    /// A file on a Gluster volume, below its root.
    GlusterPath: "a path on a Gluster volume",
        "a path without empty, \".\" and \"..\" parts, and without '?', '#', '%' and invisible characters",
        |text| text.len() <= 4096 && no_odd(text, "?#%")
            && text.split('/').all(|part| !matches!(part, "" | "." | ".."));
    /// A unix socket of the node.
    SocketPath: "a path of a unix socket",
        "an absolute path of at most 107 bytes without empty, \".\" and \"..\" parts, and without invisible characters",
        |text| text.len() <= 107 && no_odd(text, "") && text.strip_prefix('/').is_some_and(
            // One path for one socket, so that two users of it are noticed.
            |rest| rest.split('/').all(|part| !matches!(part, "" | "." | "..")));
}

fn no_odd(text: &str, odd: &str) -> bool {
    !text.chars().any(|c| odd.contains(c) || is_unprintable(c))
}

/// The name of an iSCSI target or initiator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iqn(String);

impl Iqn {
    /// The rule in words.
    pub const ALLOWED: &str = "iqn.YYYY-MM.domain[:name], or eui. or naa. and hexadecimal digits; at most 223 letters, digits, '-', '.', ':' and '_'";

    /// Checks a name. One `/` at its end goes: people write it where the
    /// number of a unit would follow.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_suffix('/').unwrap_or(text);
        let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':' | b'_');
        if name.len() > 223 || !name.bytes().all(fits) {
            return None;
        }
        let lower = name.to_ascii_lowercase();
        let valid = match lower.split_once('.')? {
            ("iqn", rest) => is_qualified(rest),
            ("eui", digits) => digits.len() == 16 && is_hex(digits),
            ("naa", digits) => matches!(digits.len(), 16 | 32) && is_hex(digits),
            _ => false,
        };
        valid.then(|| Self(name.to_owned()))
    }

    /// As written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Equal for names that iSCSI takes for one: case does not count.
    #[must_use]
    pub fn canonical(&self) -> String {
        self.0.to_ascii_lowercase()
    }
}

impl fmt::Display for Iqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A month in which somebody owned a domain, and the domain, reversed.
fn is_qualified(text: &str) -> bool {
    let Some((date, rest)) = text.split_once('.') else {
        return false;
    };
    let domain = rest.split_once(':').map_or(rest, |(domain, _)| domain);
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let is_date = date.split_once('-').is_some_and(|(year, month)| {
        let month_number: u8 = month.parse().unwrap_or(0);
        year.len() == 4 && digits(year) && month.len() == 2 && (1..=12).contains(&month_number)
    });
    is_date && !domain.is_empty() && domain.split('.').all(|label| !label.is_empty())
}

/// The number of a logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct Lun(u16);

impl Lun {
    /// The rule in words.
    pub const ALLOWED: &str = "a whole number from 0 to 16383";

    /// Checks a number.
    #[must_use]
    pub fn new(number: i64) -> Option<Self> {
        let number = u16::try_from(number).ok()?;
        (number <= 16383).then_some(Self(number))
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iscsi_names_are_told_from_others() {
        let kept = |text| Iqn::parse(text).map(|iqn| iqn.to_string());
        for text in [
            "iqn.2017-01.io.kubevirt:sn.42",
            "iqn.2003-01.org.linux-iscsi.HOST.x8664:sn.abc_1",
            "iqn.2001-04.com.example",
            "eui.02004567A425678D",
            "naa.52004567BA64678D",
        ] {
            assert_eq!(kept(text).as_deref(), Some(text));
        }
        assert_eq!(
            kept("iqn.2013-07.com.example:iscsi-nopool/").as_deref(),
            Some("iqn.2013-07.com.example:iscsi-nopool")
        );
        for text in [
            "",
            "iqn",
            "iqn.",
            "iqn.2013-7.com",
            "iqn.2013-13.com",
            "iqn.20-01.com",
            "iqn.2013-01.",
            "iqn.2013-01.a..b",
            "iqn.2013-01.com:a/b",
            "iqn.2013-01.com:a//",
            "iqn.2013-01.com:a b",
            "eui.1",
            "naa.xyz",
            "www.example.com",
            "iqn.2013-01.com:ä",
            "/",
        ] {
            assert_eq!(kept(text), None, "{text:?}");
        }
        assert_eq!(kept(&format!("iqn.2013-01.com:{}", "a".repeat(208))), None);
        let [one, other] = ["iqn.2001-04.com.Example:A", "IQN.2001-04.com.example:a"]
            .map(|text| Iqn::parse(text).unwrap().canonical());
        assert_eq!(one, other);
    }

    #[test]
    fn units_have_a_range() {
        assert_eq!(Lun::new(0).unwrap().to_string(), "0");
        assert_eq!(Lun::new(16383).unwrap().to_string(), "16383");
        for number in [-1, 16384, 65536, i64::MAX] {
            assert_eq!(Lun::new(number), None, "{number}");
        }
    }

    #[test]
    fn names_cannot_be_taken_for_more() {
        for text in ["", "disk", "a/b c"] {
            NbdExport::parse(text).unwrap();
        }
        for text in ["a?b", "a#b", "a%2fb", "a\nb"] {
            assert_eq!(NbdExport::parse(text), None, "{text:?}");
        }
        GlusterPath::parse("images/disk.img").unwrap();
        for text in ["", "/a", "a/", "../a", "a/../b", "a//b", "a?b"] {
            assert_eq!(GlusterPath::parse(text), None, "{text:?}");
        }
        for text in ["", "a/b", "a b", "a.b"] {
            assert_eq!(GlusterVolume::parse(text), None, "{text:?}");
        }
        SocketPath::parse("/run/nbd.sock").unwrap();
        for text in [
            "run/x",
            "/run/../x",
            "/run//x",
            "/run/./x",
            "/run/",
            "/",
            "/a\0",
        ] {
            assert_eq!(SocketPath::parse(text), None, "{text:?}");
        }
        assert_eq!(SocketPath::parse(&format!("/{}", "a".repeat(107))), None);
    }
}
