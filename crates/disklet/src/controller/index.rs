//! Which VMs and launchers use which claims.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use super::objects::Key;

/// Who uses a claim.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum User {
    /// A VM object names it.
    Vm(Key),
    /// A launcher was made with it, whatever its VM says by now.
    Pod(Key),
}

impl User {
    /// The VM; a launcher has its name.
    fn vm(&self) -> &Key {
        match self {
            Self::Vm(key) | Self::Pod(key) => key,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Index(Mutex<Both>);

#[derive(Debug, Default)]
struct Both {
    users: HashMap<Key, BTreeSet<User>>,
    claims: HashMap<User, BTreeSet<Key>>,
}

impl Index {
    /// Says which claims somebody uses from now on; returns those that it used
    /// and uses no more.
    pub(super) fn set(&self, user: &User, claims: &BTreeSet<Key>) -> Vec<Key> {
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match claims.is_empty() {
            true => both.claims.remove(user),
            false => both.claims.insert(user.clone(), claims.clone()),
        };
        for claim in claims {
            let users = both.users.entry(claim.clone()).or_default();
            users.insert(user.clone());
        }
        let dropped: Vec<_> = before
            .unwrap_or_default()
            .difference(claims)
            .cloned()
            .collect();
        for claim in &dropped {
            if let Some(users) = both.users.get_mut(claim) {
                users.remove(user);
                if users.is_empty() {
                    both.users.remove(claim);
                }
            }
        }
        dropped
    }

    pub(super) fn is_used(&self, claim: &Key) -> bool {
        let both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        both.users.contains_key(claim)
    }

    /// The VMs to which a claim matters.
    pub(super) fn vms_of(&self, claim: &Key) -> BTreeSet<Key> {
        let both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let users = both.users.get(claim).into_iter().flatten();
        users.map(|user| user.vm().clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;

    fn claims<const N: usize>(names: [&str; N]) -> BTreeSet<Key> {
        names.map(|name| Key::new("n", name)).into()
    }

    #[test]
    fn a_claim_is_used_as_long_as_anybody_uses_it() {
        let index = Index::default();
        let (vm, pod) = (User::Vm(Key::new("n", "a")), User::Pod(Key::new("n", "a")));
        let other = User::Vm(Key::new("n", "b"));
        assert_eq!(index.set(&vm, &claims(["one", "two"])), []);
        assert_eq!(index.set(&pod, &claims(["one"])), []);
        assert_eq!(index.set(&other, &claims(["one"])), []);
        let (one, two) = (Key::new("n", "one"), Key::new("n", "two"));
        let vms: Vec<_> = index.vms_of(&one).into_iter().collect();
        assert_eq!(vms, [Key::new("n", "a"), Key::new("n", "b")]);

        assert_eq!(index.set(&vm, &claims(["two"])), from_ref(&one));
        assert_eq!(index.set(&other, &claims([])), from_ref(&one));
        assert!(index.is_used(&one), "its launcher still runs");
        assert_eq!(index.set(&pod, &claims([])), from_ref(&one));
        assert!(!index.is_used(&one) && index.is_used(&two));
        assert!(!index.is_used(&Key::new("other", "two")));
    }
}
