//! Domains of others that have a name or a UUID of ours.

use uuid::Uuid;
use virt::domain::Domain;
use virt::error::{Error, ErrorNumber};

use super::Libvirt;
use crate::failure::{Failure, Result};

/// A domain, by what libvirt tells domains apart by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) uuid: Uuid,
}

impl Libvirt {
    /// The domain that has this UUID, under whatever name.
    pub(crate) fn by_uuid(&self, uuid: Uuid) -> Result<Option<Known>> {
        known(self.connect.lookup_domain_by_uuid_string(&uuid.to_string()))
    }

    /// The domain that has this name, with whatever UUID.
    pub(crate) fn by_name(&self, name: &str) -> Result<Option<Known>> {
        known(self.connect.lookup_domain_by_name(name))
    }
}

fn known(found: std::result::Result<Domain, Error>) -> Result<Option<Known>> {
    let named = found.and_then(|domain| {
        Ok(Known {
            name: domain.name()?,
            uuid: domain.uuid()?,
        })
    });
    match named {
        Ok(known) => Ok(Some(known)),
        Err(error) if error.code().is(ErrorNumber::NoDomain) => Ok(None),
        Err(error) => Err(Failure::new("libvirt's domains cannot be looked up").because(error)),
    }
}
