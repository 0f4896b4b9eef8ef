//! Endpoints: the servers of a Gluster volume.

use std::net::IpAddr;

use crate::diag::{Diagnostic, Diagnostics};
use crate::names::Namespace;
use crate::yaml::{Spanned, View};

use super::Meta;

/// An Endpoints object.
#[derive(Debug, Clone)]
pub struct Endpoints {
    /// Who it is.
    pub meta: Meta,
    /// The addresses of all its subsets, in order.
    pub addresses: Vec<IpAddr>,
}

impl Endpoints {
    pub(super) fn read(
        view: &View<'_>,
        namespace: &Namespace,
        diags: &mut Diagnostics,
    ) -> Option<Self> {
        let mut object = view.fields(diags)?;
        let meta = Meta::read(view, &mut object, namespace, diags);
        let mut addresses = Vec::new();
        for subset in object.items("subsets", diags) {
            let Some(mut subset) = subset.fields(diags) else {
                continue;
            };
            for address in subset.items("addresses", diags) {
                let fields = address.fields(diags);
                let ip = fields.and_then(|mut fields| fields.required_text("ip", diags));
                addresses.extend(ip.and_then(|ip| read_address(&ip, diags)));
            }
            subset.tell_slips(diags);
        }
        object.tell_slips(diags);
        Some(Self {
            meta: meta?,
            addresses,
        })
    }
}

fn read_address(text: &Spanned<String>, diags: &mut Diagnostics) -> Option<IpAddr> {
    let address = text.value.parse().ok();
    if address.is_none() {
        diags.push(
            Diagnostic::error(&text.place, "not an IP address")
                .found(format!("{:?}", text.value))
                .allowed("an IPv4 or IPv6 address"),
        );
    }
    address
}
