//! Servers by their addresses, once somebody has looked up and judged their names.

use std::net::IpAddr;

use super::{Endpoint, Nbd, NbdServer, Network};

impl Network {
    /// The same storage with addresses in place of names, as they were found: QEMU
    /// does not look names up again, and so meets whom was judged. A name for which
    /// nothing is answered stays, and those that a certificate is for. Nothing if no
    /// server is left.
    #[must_use]
    pub fn by_address(&self, found: &dyn Fn(&Endpoint) -> Option<Vec<IpAddr>>) -> Option<Self> {
        let all = |server: &Endpoint| match found(server) {
            Some(addresses) => addresses.into_iter().map(|it| server.at(it)).collect(),
            None => vec![server.clone()],
        };
        let each = |servers: &[Endpoint]| -> Option<Vec<Endpoint>> {
            let servers: Vec<_> = servers.iter().flat_map(all).collect();
            (!servers.is_empty()).then_some(servers)
        };
        let mut same = self.clone();
        match &mut same {
            Self::Iscsi(unit) => unit.portal = all(&unit.portal).into_iter().next()?,
            Self::Rbd(rbd) => rbd.monitors = each(&rbd.monitors)?,
            Self::Gluster(file) => {
                // Its client has no IPv6.
                let mut hosts = each(&file.hosts)?;
                hosts.retain(|host| !matches!(host.address(), Some(IpAddr::V6(_))));
                file.hosts = (!hosts.is_empty()).then_some(hosts)?;
            }
            Self::Nbd(Nbd {
                server: NbdServer::Tcp(server),
                tls: false,
                ..
            }) => *server = all(server).into_iter().next()?,
            Self::Nbd(_) | Self::Http(_) => {}
        }
        Some(same)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gluster, GlusterPath, GlusterVolume, Iqn, Iscsi, Lun, NbdExport};
    use super::*;

    /// `one` has an address of each family, `two` one; `none` has none.
    fn found(server: &Endpoint) -> Option<Vec<IpAddr>> {
        let addresses: &[&str] = match server.host() {
            "one" => &["2001:db8::1", "192.0.2.1"],
            "two" => &["192.0.2.2"],
            "none" => &[],
            _ => return None,
        };
        Some(addresses.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn servers(of: Option<Network>) -> Option<String> {
        let all = of?;
        let all = all.endpoints().iter().map(Endpoint::to_string);
        Some(all.collect::<Vec<_>>().join(" "))
    }

    fn endpoint(host: &str) -> Endpoint {
        Endpoint::new(host, 7).unwrap()
    }

    fn nbd(host: &str, tls: bool) -> Network {
        Network::Nbd(Nbd {
            server: NbdServer::Tcp(endpoint(host)),
            export: NbdExport::parse("x").unwrap(),
            tls,
        })
    }

    #[test]
    fn one_server_has_its_first_address() {
        let unit = |host: &str| {
            Network::Iscsi(Iscsi {
                portal: endpoint(host),
                target: Iqn::parse("iqn.2026-01.com.example:a").unwrap(),
                lun: Lun::new(1).unwrap(),
                initiator: None,
            })
        };
        for (host, wanted) in [
            ("one", Some("[2001:db8::1]:7")),
            ("two", Some("192.0.2.2:7")),
            ("none", None),
            ("198.51.100.1", Some("198.51.100.1:7")),
            ("unasked", Some("unasked:7")),
        ] {
            let of = |network: Network| servers(network.by_address(&found));
            assert_eq!(of(unit(host)).as_deref(), wanted, "{host}");
            assert_eq!(of(nbd(host, false)).as_deref(), wanted, "{host}");
        }
    }

    #[test]
    fn a_name_that_a_certificate_is_for_stays() {
        let of = servers(nbd("one", true).by_address(&found));
        assert_eq!(of.as_deref(), Some("one:7"));
    }

    #[test]
    fn of_several_servers_all_addresses_are_named() {
        let file = |hosts: &[&str]| {
            Network::Gluster(Gluster {
                hosts: hosts.iter().map(|host| endpoint(host)).collect(),
                volume: GlusterVolume::parse("v").unwrap(),
                path: GlusterPath::parse("p").unwrap(),
            })
        };
        let of = |hosts: &[&str]| servers(file(hosts).by_address(&found));
        let both = of(&["one", "none", "two"]);
        assert_eq!(both.as_deref(), Some("192.0.2.1:7 192.0.2.2:7"));
        assert_eq!(of(&["none"]), None);
    }
}
