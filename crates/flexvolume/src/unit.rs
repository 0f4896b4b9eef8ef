//! The units of a capacity.

/// A unit, and how many bytes it is.
type Unit = (&'static str, u64);

const KB: u64 = 1000;
const KIB: u64 = 1024;

/// Units as libvirt and Kubernetes spell them; case matters. Where both know
/// a spelling, the meaning is libvirt's, because the manifests written for
/// Virtlet rely on it: `1G` is 1024³ bytes here and 1000³ in Kubernetes.
const UNITS: [Unit; 28] = [
    ("B", 1),
    ("bytes", 1),
    ("KB", KB),
    ("k", KB),
    ("K", KIB),
    ("KiB", KIB),
    ("Ki", KIB),
    ("MB", KB.pow(2)),
    ("M", KIB.pow(2)),
    ("MiB", KIB.pow(2)),
    ("Mi", KIB.pow(2)),
    ("GB", KB.pow(3)),
    ("G", KIB.pow(3)),
    ("GiB", KIB.pow(3)),
    ("Gi", KIB.pow(3)),
    ("TB", KB.pow(4)),
    ("T", KIB.pow(4)),
    ("TiB", KIB.pow(4)),
    ("Ti", KIB.pow(4)),
    ("PB", KB.pow(5)),
    ("P", KIB.pow(5)),
    ("PiB", KIB.pow(5)),
    ("Pi", KIB.pow(5)),
    ("EB", KB.pow(6)),
    ("E", KIB.pow(6)),
    ("EiB", KIB.pow(6)),
    ("Ei", KIB.pow(6)),
    // Virtlet's meaning of a number without a unit.
    ("", KB.pow(2)),
];

/// The bytes of a unit.
pub(crate) fn bytes_of(unit: &str) -> Option<u64> {
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .map(|(_, bytes)| *bytes)
}

/// Kubernetes' units for parts of one: it would count thousandths of a byte.
pub(crate) fn is_fraction(unit: &str) -> bool {
    matches!(unit, "m" | "u" | "n")
}

/// The unit that was probably meant: one that differs by case only, or by a
/// missing plural.
pub(crate) fn likely_meant(unit: &str) -> Option<&'static str> {
    if unit.eq_ignore_ascii_case("byte") {
        return Some("bytes");
    }
    UNITS
        .iter()
        .map(|(name, _)| *name)
        .find(|name| name.eq_ignore_ascii_case(unit))
}

/// All units in words.
pub(crate) const IN_WORDS: &str = "B, KB, MB, GB, TB, PB, EB (powers of 1000), \
    K, M, G, T, P, E, KiB, Ki, MiB, Mi and so on (powers of 1024); MB if there is none";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_that_clash_mean_what_libvirt_means() {
        assert_eq!(bytes_of("MB"), Some(1_000_000));
        assert_eq!(bytes_of("M"), Some(1_048_576));
        assert_eq!(bytes_of("Mi"), bytes_of("MiB"));
        assert_eq!(bytes_of("k"), Some(1000));
        assert_eq!(bytes_of("K"), Some(1024));
        assert_eq!(bytes_of("E"), Some(1 << 60));
        assert_eq!(bytes_of("mb"), None);
    }

    #[test]
    fn no_unit_stands_twice() {
        for (position, (name, _)) in UNITS.iter().enumerate() {
            assert!(UNITS[..position].iter().all(|(other, _)| other != name));
        }
    }

    #[test]
    fn wrong_case_is_recognised() {
        assert_eq!(likely_meant("gb"), Some("GB"));
        assert_eq!(likely_meant("Gib"), Some("GiB"));
        assert_eq!(likely_meant("mi"), Some("Mi"));
        assert_eq!(likely_meant("m"), Some("M"));
        assert_eq!(likely_meant("Byte"), Some("bytes"));
        assert_eq!(likely_meant("XB"), None);
    }
}
