//! Where the names of servers lead to.

use std::net::ToSocketAddrs;

use disklet_core::networks::Networks;

use crate::failure::{Failure, Result};

/// Refuses servers that are in a network closed to VMs. A name that leads
/// nowhere is left to QEMU, which says so: of several servers one is enough.
pub(super) fn refuse_closed(hosts: &[String], networks: &Networks) -> Result<()> {
    for host in hosts {
        let found = (host.as_str(), 0).to_socket_addrs().into_iter().flatten();
        for address in found.map(|found| found.ip()) {
            if let Some(network) = networks.denied(address) {
                return Err(Failure::new(format!(
                    "{host} leads to {address}, in network {network}, where VMs may not have disks"
                ))
                .help("the administrator says which networks are closed, with networks in the configuration"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_this_machine_leads_to_it() {
        let hosts = ["localhost".to_owned()];
        refuse_closed(&hosts, &Networks::of_owner()).unwrap();
        let failure = refuse_closed(&hosts, &Networks::of_tenants()).unwrap_err();
        assert!(
            failure.to_string().contains("localhost leads to "),
            "{failure}"
        );
    }

    #[test]
    fn a_name_that_leads_nowhere_is_left_to_qemu() {
        let hosts = ["nowhere.invalid".to_owned()];
        refuse_closed(&hosts, &Networks::of_tenants()).unwrap();
    }
}
