//! libvirt, as far as VMs need it.

use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::error::{Error, ErrorNumber};

use crate::failure::{Failure, Result};

/// A connection to a daemon.
pub(crate) struct Libvirt {
    connect: Connect,
}

const SYSTEM: &str = "qemu:///system";

impl Libvirt {
    pub(crate) fn open(uri: Option<&str>) -> Result<Self> {
        // Errors are returned; the library would print them as well.
        virt::error::clear_error_callback();
        let uri = uri.unwrap_or(SYSTEM);
        let connect = Connect::open(Some(uri)).map_err(|error| {
            Failure::new(format!("libvirt at {uri} does not answer"))
                .because(error)
                .help("start libvirtd, or say with --connect where it is")
        })?;
        Ok(Self { connect })
    }

    /// Defines a domain; one of the same UUID takes the new definition.
    pub(crate) fn define(&self, name: &str, xml: &str) -> Result<()> {
        self.connect
            .define_domain_xml(xml)
            .map(drop)
            .map_err(|error| {
                Failure::new(format!("domain {name} cannot be defined")).because(error)
            })
    }

    /// Starts a domain, unless it runs.
    pub(crate) fn start(&self, uuid: Uuid) -> Result<()> {
        let failed = |error| Failure::new("the VM cannot be started").because(error);
        let Some(domain) = self.find(uuid)? else {
            return Err(Failure::new("the VM's domain is gone"));
        };
        if domain.is_active().map_err(failed)? {
            return Ok(());
        }
        domain.create().map_err(failed)
    }

    /// Whether a domain runs; nothing if it is not defined.
    pub(crate) fn is_running(&self, uuid: Uuid) -> Result<Option<bool>> {
        let Some(domain) = self.find(uuid)? else {
            return Ok(None);
        };
        let running = domain.is_active().map_err(|error| {
            Failure::new(format!("domain {uuid} cannot be looked at")).because(error)
        })?;
        Ok(Some(running))
    }

    /// Ends a domain and forgets it. That there is none is as good.
    pub(crate) fn remove(&self, uuid: Uuid) -> Result<()> {
        let failed =
            |error| Failure::new(format!("domain {uuid} cannot be removed")).because(error);
        let Some(domain) = self.find(uuid)? else {
            return Ok(());
        };
        if domain.is_active().map_err(failed)? {
            gone_is_good(domain.destroy()).map_err(failed)?;
        }
        gone_is_good(domain.undefine()).map_err(failed)
    }

    fn find(&self, uuid: Uuid) -> Result<Option<Domain>> {
        match self.connect.lookup_domain_by_uuid_string(&uuid.to_string()) {
            Ok(domain) => Ok(Some(domain)),
            Err(error) if error.code().is(ErrorNumber::NoDomain) => Ok(None),
            Err(error) => {
                Err(Failure::new(format!("domain {uuid} cannot be looked up")).because(error))
            }
        }
    }
}

/// Somebody else, or the guest itself, was faster.
fn gone_is_good(outcome: std::result::Result<(), Error>) -> std::result::Result<(), Error> {
    outcome.or_else(|error| match error.code() {
        code if code.is(ErrorNumber::NoDomain) || code.is(ErrorNumber::OperationInvalid) => Ok(()),
        _ => Err(error),
    })
}
