//! Servers that users of VMs name, which not all of them may reach.

use super::Resolver;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::source::Endpoint;

impl Resolver<'_> {
    /// The names among servers: where those lead to is seen on the node only.
    /// Nothing if an address is denied.
    pub(super) fn names_to_check(
        &self,
        servers: &[Endpoint],
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<Vec<String>> {
        let mut names = Vec::new();
        let mut denied = false;
        for server in servers {
            let Some(address) = server.address() else {
                names.push(server.host().to_owned());
                continue;
            };
            let networks = (!self.unseen.configuration).then_some(&self.config.networks);
            if let Some(network) = networks.and_then(|networks| networks.denied(address)) {
                denied = true;
                diags.push(
                    Diagnostic::error(place, "VMs may not have disks at this server")
                        .found(format!("{address}, in network {network}"))
                        .help("the node's administrator says which networks are closed, with networks in the configuration"),
                );
            }
        }
        (!denied).then_some(names)
    }

    /// QEMU follows a web server to wherever it leads, at every request: what a
    /// network closes cannot be kept from whoever names one.
    pub(super) fn demand_web(&self, place: &Place, diags: &mut Diagnostics) -> Option<()> {
        if self.unseen.configuration || self.config.networks.allows_web() {
            return Some(());
        }
        diags.push(
            Diagnostic::error(place, "VMs may not have disks at web servers here, which QEMU follows into closed networks")
                .help("have the file copied, with copy: {mode: clone}, or fetched, with source: {image: {name: https://…}}; the node's administrator opens this with networks: {web: true} in the configuration"),
        );
        None
    }
}
