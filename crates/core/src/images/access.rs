//! What is to be done so that a VM of a tenant has its image: nodes keep images
//! of all tenants, and some of them came with somebody's credentials.

/// When an image is fetched, in the words of Kubernetes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PullPolicy {
    /// Its server is asked each time.
    Always,
    /// If the node does not have it.
    #[default]
    IfNotPresent,
    /// It is there, or the VM is not started.
    Never,
}

impl PullPolicy {
    /// All of them.
    pub const WORDS: [&str; 3] = ["Always", "IfNotPresent", "Never"];

    /// Reads the word of a container.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "Always" => Some(Self::Always),
            "IfNotPresent" => Some(Self::IfNotPresent),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }
}

/// An image that the node has under the wanted name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Here {
    /// Whether whoever asks may use it.
    pub access: Access,
    /// How it came here.
    pub came: Came,
}

/// Whether a tenant may use an image that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nobody needed credentials for it, or the tenant has those that brought it.
    Given,
    /// It came with credentials of others.
    Unproven,
}

/// How an image came to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Came {
    /// An administrator has put it there.
    ByHand,
    /// From where its name leads now, and that server can be asked whether it is
    /// still the same.
    FromThere,
    /// From there, and the server cannot be asked; or from where the name led
    /// before.
    Otherwise,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// What is there is used.
    Use,
    /// The server is asked, as this tenant, whether it still has the same.
    Ask,
    /// It is fetched, as this tenant.
    Fetch,
    /// The VM has no image.
    Refuse,
}

/// What is to be done about an image; `is_pinned` if its name has a digest, which
/// what is there meets.
#[must_use]
pub fn next_step(policy: PullPolicy, is_pinned: bool, here: Option<Here>) -> Step {
    let Some(Here { access, came }) = here else {
        return match policy {
            PullPolicy::Never => Step::Refuse,
            PullPolicy::Always | PullPolicy::IfNotPresent => Step::Fetch,
        };
    };
    let by_asking = match came {
        Came::FromThere => Step::Ask,
        Came::ByHand | Came::Otherwise => Step::Fetch,
    };
    match (access, policy) {
        // That it is there is not even said.
        (Access::Unproven, PullPolicy::Never) => Step::Refuse,
        (Access::Unproven, _) => by_asking,
        // What has the digest does not change.
        (Access::Given, PullPolicy::Always) if !is_pinned && came != Came::ByHand => by_asking,
        (Access::Given, _) => Step::Use,
    }
}

#[cfg(test)]
mod tests {
    use super::Access::{Given, Unproven};
    use super::Came::{ByHand, FromThere, Otherwise};
    use super::PullPolicy::{Always, IfNotPresent, Never};
    use super::*;

    #[test]
    fn what_is_not_there_is_fetched_unless_it_must_not_be() {
        for is_pinned in [false, true] {
            assert_eq!(next_step(Always, is_pinned, None), Step::Fetch);
            assert_eq!(next_step(IfNotPresent, is_pinned, None), Step::Fetch);
            assert_eq!(next_step(Never, is_pinned, None), Step::Refuse);
        }
    }

    #[test]
    fn what_is_there_is_used_as_the_policy_says() {
        for (policy, came, pinned, wanted) in [
            (IfNotPresent, FromThere, false, Step::Use),
            (IfNotPresent, Otherwise, false, Step::Use),
            (Never, FromThere, false, Step::Use),
            (Always, FromThere, false, Step::Ask),
            (Always, Otherwise, false, Step::Fetch),
            (Always, ByHand, false, Step::Use),
            (Always, FromThere, true, Step::Use),
        ] {
            let here = Here {
                access: Given,
                came,
            };
            let step = next_step(policy, pinned, Some(here));
            assert_eq!(step, wanted, "{policy:?} {came:?} {pinned}");
        }
    }

    #[test]
    fn nobody_uses_what_others_have_brought_with_credentials() {
        for came in [ByHand, FromThere, Otherwise] {
            let here = Some(Here {
                access: Unproven,
                came,
            });
            for policy in [Always, IfNotPresent, Never] {
                for is_pinned in [false, true] {
                    let step = next_step(policy, is_pinned, here);
                    assert_ne!(step, Step::Use, "{policy:?} {came:?} {is_pinned}");
                }
            }
        }
    }
}
