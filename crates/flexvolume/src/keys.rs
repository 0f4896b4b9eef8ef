//! The names of the options, and to which types of volume they belong.

use crate::capacity::CapacityError;
use crate::options::Kind;
use crate::partition::Partition;

/// An option that we know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Type,
    Part,
    Capacity,
    Path,
    Monitor,
    Pool,
    Volume,
    User,
    Secret,
    Protocol,
}

impl Name {
    const ALL: [Self; 10] = [
        Self::Type,
        Self::Part,
        Self::Capacity,
        Self::Path,
        Self::Monitor,
        Self::Pool,
        Self::Volume,
        Self::User,
        Self::Secret,
        Self::Protocol,
    ];

    /// The option that a key names. Case does not matter: Virtlet's Ceph
    /// example writes `Monitor`, its others `monitor`.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str().eq_ignore_ascii_case(key))
    }

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Part => "part",
            Self::Capacity => "capacity",
            Self::Path => "path",
            Self::Monitor => "monitor",
            Self::Pool => "pool",
            Self::Volume => "volume",
            Self::User => "user",
            Self::Secret => "secret",
            Self::Protocol => "protocol",
        }
    }

    /// The type of volume that alone has this option, if not all have it.
    pub(crate) const fn owner(self) -> Option<Kind> {
        match self {
            Self::Type | Self::Part => None,
            Self::Capacity => Some(Kind::Qcow2),
            Self::Path => Some(Kind::Raw),
            Self::Monitor
            | Self::Pool
            | Self::Volume
            | Self::User
            | Self::Secret
            | Self::Protocol => Some(Kind::Ceph),
        }
    }

    /// The options of a type of volume; all there are if it is not known.
    pub(crate) fn keys_of(kind: Option<Kind>) -> impl Iterator<Item = &'static str> {
        Self::ALL
            .into_iter()
            .filter(move |name| kind.is_none() || name.owner().is_none() || name.owner() == kind)
            .map(Self::as_str)
    }

    /// What its value may be.
    pub(crate) fn allowed(self) -> String {
        match self {
            Self::Type => Kind::ALL.map(Kind::as_str).join(", "),
            Self::Part => format!(
                "\"0\" for the whole disk, or \"1\" to \"{}\"",
                Partition::MAX
            ),
            Self::Capacity => CapacityError::allowed(),
            Self::Path => "the path of a block device, such as /dev/loop0".to_owned(),
            Self::Monitor => {
                "host or host:port, several separated by commas; IPv6 as [address]:port".to_owned()
            }
            Self::Pool | Self::Volume => {
                r"1 to 255 bytes without / @ : = , \ and control or invisible characters, not beginning with -"
                    .to_owned()
            }
            Self::User => "letters, digits, _ . and -".to_owned(),
            Self::Secret => "the user's key in base64, as in a Ceph keyring".to_owned(),
            Self::Protocol => "rbd".to_owned(),
        }
    }
}

/// Whether the kubelet added this key. It puts all of its own under this
/// prefix, which leaves the user's to be checked strictly.
pub(crate) fn is_kubelets(key: &str) -> bool {
    key.starts_with("kubernetes.io/")
}

/// What to do about a key that is known to be no option, though it is to be
/// met with among options.
pub(crate) fn remedy_for(key: &str) -> Option<&'static str> {
    let is_one_of = |keys: &[&str]| keys.iter().any(|known| known.eq_ignore_ascii_case(key));
    if is_one_of(&["driver", "fsType", "readOnly", "secretRef"]) {
        // Ignoring it, as Virtlet did, would hand a writable disk to somebody
        // who asked for a read-only one.
        Some("is a field of the flexVolume itself: write it beside options")
    } else if is_one_of(&["uuid"]) {
        // Virtlet's driver put a new one over the user's at every mount.
        Some("is not for the user to choose: remove it")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_in_any_case() {
        assert_eq!(Name::of_key("type"), Some(Name::Type));
        assert_eq!(Name::of_key("Monitor"), Some(Name::Monitor));
        assert_eq!(Name::of_key("PATH"), Some(Name::Path));
        assert_eq!(Name::of_key("paths"), None);
        assert_eq!(Name::of_key(""), None);
    }

    #[test]
    fn each_type_has_its_own_options_and_the_common_ones() {
        let keys = |kind| Name::keys_of(kind).collect::<Vec<_>>();
        assert_eq!(keys(Some(Kind::Qcow2)), ["type", "part", "capacity"]);
        assert_eq!(keys(Some(Kind::Raw)), ["type", "part", "path"]);
        assert_eq!(keys(Some(Kind::Ceph)).len(), 8);
        assert_eq!(keys(None).len(), Name::ALL.len());
    }

    #[test]
    fn only_the_kubelets_prefix_is_the_kubelets() {
        assert!(is_kubelets("kubernetes.io/readwrite"));
        assert!(is_kubelets("kubernetes.io/pvOrVolumeName"));
        for key in ["readOnly", "uuid", "kubernetes.io", "my.kubernetes.io/x"] {
            assert!(!is_kubelets(key), "{key}");
        }
    }
}
