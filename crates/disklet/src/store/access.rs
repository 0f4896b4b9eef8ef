//! Who may use what the store has. An image that came with a tenant's credentials is
//! for those who have proved, by their own, that the server gives it to them: its
//! name's record has the UIDs of their pull secrets. An image is everybody's as soon
//! as one record of it has none. Disks without a name are nobody's.

use std::collections::BTreeSet;
use std::fs;

use disklet_core::facts::ImageFact;
use disklet_core::images::Access;
use disklet_core::names::Sha256;

use super::usage::entries;
use super::{Named, Provenance, Store, StoreError, read_named};

impl Named {
    /// Whether somebody with these pull secrets may have what the name stands for.
    pub(crate) fn access(&self, secrets: &BTreeSet<&str>) -> Access {
        let Some(needed) = &self.pull_secrets else {
            return Access::Given;
        };
        match needed.iter().any(|uid| secrets.contains(uid.as_str())) {
            true => Access::Given,
            false => Access::Unproven,
        }
    }
}

impl Store {
    /// An image by its digest alone, for somebody who may have it by what any name
    /// says of it. It gets no name by that: the name that it is asked for under
    /// may be another image to everybody else.
    pub(crate) fn find_digest(
        &self,
        digest: Sha256,
        secrets: &BTreeSet<&str>,
    ) -> Result<Option<ImageFact>, StoreError> {
        if !self.disk(&digest).exists() {
            return Ok(None);
        }
        for path in entries(&self.root.join("names"))? {
            // What cannot be read of others says nothing for this one.
            let named = fs::read(&path).ok();
            let named = named.and_then(|text| read_named(&path, &text).ok());
            if let Some((named, fact)) = named
                && fact.digest == digest
                && named.access(secrets) == Access::Given
            {
                return Ok(Some(fact));
            }
        }
        Ok(None)
    }

    /// The server gives what a name stands for to somebody else as well: with a
    /// pull secret, or without any, which makes it everybody's.
    pub(crate) fn grant(&self, named: &Named, secret: Option<&str>) -> Result<(), StoreError> {
        let _named = self.rely()?;
        let current = self.find_record(&named.name)?;
        let Some((fact, named)) = current.filter(|(_, it)| it.sha256 == named.sha256) else {
            return Ok(());
        };
        let now = secret.map(|uid| BTreeSet::from([uid.to_owned()]));
        let pull_secrets = together(named.pull_secrets.clone(), now);
        if pull_secrets == named.pull_secrets {
            return Ok(());
        }
        let provenance = Provenance {
            source: named.source,
            placed: named.placed,
            validator: named.validator,
            pull_secrets,
        };
        self.give_name(&named.name, fact, provenance)
    }

    /// Who has proved to have the same image under a name stays so.
    pub(super) fn with_earlier(
        &self,
        name: &str,
        digest: &Sha256,
        now: Option<BTreeSet<String>>,
    ) -> Result<Option<BTreeSet<String>>, StoreError> {
        let before = self.find_record(name)?;
        let same = before.filter(|(fact, _)| fact.digest == *digest);
        Ok(match same {
            Some((_, named)) => together(named.pull_secrets, now),
            None => now,
        })
    }
}

fn together(
    one: Option<BTreeSet<String>>,
    other: Option<BTreeSet<String>>,
) -> Option<BTreeSet<String>> {
    let (one, other) = (one?, other?);
    Some(&one | &other)
}
