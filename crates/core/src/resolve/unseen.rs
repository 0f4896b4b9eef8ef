//! What may be there although the input does not have it.
//!
//! Who has files has everything. Who judges one object of a cluster, or asks a
//! cluster with few rights, does not: what cannot be seen from there is neither
//! missing nor invented. It is known when the VM is launched, and whatever
//! depends on it is decided then.

use std::collections::BTreeSet;

use super::{Reference, Resolver};
use crate::manifest::{DataRef, Key, ObjectKind};
use crate::names::{Namespace, ObjectName};
use crate::resolve::claims::NotBound;

/// What cannot be seen.
#[derive(Debug, Clone, Default)]
pub struct Unseen {
    objects: Hidden,
    /// The configuration of the node is not known; the one that is resolved with
    /// stands in for it.
    pub configuration: bool,
    /// VMs will run in a cluster, also those that are not in it yet.
    pub cluster: bool,
}

#[derive(Debug, Clone, Default)]
enum Hidden {
    #[default]
    Nothing,
    These(BTreeSet<Reference>),
    All,
}

impl Unseen {
    /// Only what is in the input is known: a VM is judged by itself.
    #[must_use]
    pub fn everything() -> Self {
        Self {
            objects: Hidden::All,
            configuration: true,
            cluster: true,
        }
    }

    /// These objects of a cluster may not be read.
    #[must_use]
    pub fn objects(objects: BTreeSet<Reference>) -> Self {
        Self {
            objects: Hidden::These(objects),
            configuration: false,
            cluster: true,
        }
    }

    fn hides(&self, reference: &Reference) -> bool {
        match &self.objects {
            Hidden::Nothing => false,
            Hidden::These(objects) => objects.contains(reference),
            Hidden::All => true,
        }
    }
}

impl Resolver<'_> {
    /// Whether a ConfigMap or Secret is not in the input and may be there.
    pub(super) fn hides_data(&self, namespace: &Namespace, wanted: &DataRef) -> bool {
        let found = self.find_data(namespace, wanted.kind, &wanted.name);
        let key = (namespace.clone(), wanted.name.clone());
        found.is_none() && self.unseen.hides(&Reference::data(wanted.kind, key))
    }

    /// The Secret with a key, if it cannot be seen.
    pub(super) fn hidden_secret(
        &self,
        namespace: &Namespace,
        name: &ObjectName,
    ) -> Option<Reference> {
        let wanted = DataRef {
            kind: ObjectKind::Secret,
            name: name.clone(),
        };
        let secret = || Reference::Secret((namespace.clone(), name.clone()));
        self.hides_data(namespace, &wanted).then(secret)
    }

    /// The servers of a Gluster volume, if they cannot be seen.
    pub(super) fn hidden_endpoints(&self, key: Key) -> Option<Reference> {
        let found = self.objects.endpoints.get(&key);
        let wanted = Reference::Endpoints(key);
        let is_missing = self.missing.note(found, || wanted.clone()).is_none();
        (is_missing && self.unseen.hides(&wanted)).then_some(wanted)
    }

    /// A claim that cannot be seen, or the volume behind it.
    pub(super) fn hidden_claim(
        &self,
        namespace: &Namespace,
        name: &ObjectName,
    ) -> Option<Reference> {
        let key = (namespace.clone(), name.clone());
        let found = self.objects.claims.get(&key);
        let wanted = Reference::Claim(key.clone());
        if self.missing.note(found, || wanted.clone()).is_none() {
            return self.unseen.hides(&wanted).then_some(wanted);
        }
        let Some(Err(NotBound::VolumeMissing(volume))) = self.bindings.volume(&key) else {
            return None;
        };
        let wanted = Reference::Volume(volume.clone());
        self.missing.note(None::<()>, || wanted.clone());
        self.unseen.hides(&wanted).then_some(wanted)
    }
}
