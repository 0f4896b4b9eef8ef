//! What a resolution looked for and did not find.
//!
//! Who reads manifests from files has all there is. Who has a cluster behind
//! them fetches what is missing and resolves again, until nothing new is asked
//! for: so nobody has to know beforehand what a VM refers to.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use crate::manifest::{Key, ObjectKind};
use crate::names::ObjectName;

/// An object of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// A claim.
    Claim(Key),
    /// A PersistentVolume.
    Volume(ObjectName),
    /// A ConfigMap.
    ConfigMap(Key),
    /// A Secret.
    Secret(Key),
    /// Endpoints.
    Endpoints(Key),
    /// A ServiceAccount.
    ServiceAccount(Key),
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, namespace, name) = match self {
            Self::Claim((namespace, name)) => ("claim", Some(namespace), name),
            Self::Volume(name) => ("PersistentVolume", None, name),
            Self::ConfigMap((namespace, name)) => ("ConfigMap", Some(namespace), name),
            Self::Secret((namespace, name)) => ("Secret", Some(namespace), name),
            Self::Endpoints((namespace, name)) => ("Endpoints", Some(namespace), name),
            Self::ServiceAccount((namespace, name)) => ("ServiceAccount", Some(namespace), name),
        };
        write!(f, "{kind} {name}")?;
        match namespace {
            Some(namespace) => write!(f, " of namespace {namespace}"),
            None => Ok(()),
        }
    }
}

impl Reference {
    /// A ConfigMap or a Secret.
    pub(super) fn data(kind: ObjectKind, key: Key) -> Self {
        match kind {
            ObjectKind::ConfigMap => Self::ConfigMap(key),
            ObjectKind::Secret => Self::Secret(key),
        }
    }
}

/// Collects them while a resolution goes its way.
#[derive(Debug, Default)]
pub(super) struct Missing(RefCell<BTreeSet<Reference>>);

impl Missing {
    /// Passes on what was found, and notes what was not.
    pub(super) fn note<T>(&self, found: Option<T>, what: impl FnOnce() -> Reference) -> Option<T> {
        if found.is_none() {
            self.0.borrow_mut().insert(what());
        }
        found
    }

    pub(super) fn into_set(self) -> BTreeSet<Reference> {
        self.0.into_inner()
    }
}
