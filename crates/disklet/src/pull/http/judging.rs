//! Names are looked up and judged at once: what a name leads to is what is
//! connected to, for each redirect as well.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use disklet_core::networks::{Networks, Subnet};
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// Leads nowhere into a closed network.
#[derive(Debug)]
pub(super) struct Judging {
    networks: Networks,
    usual: DefaultResolver,
}

impl Judging {
    pub(super) fn by(networks: Networks) -> Self {
        Self {
            networks,
            usual: DefaultResolver::default(),
        }
    }
}

impl Resolver for Judging {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.usual.resolve(uri, config, timeout)?;
        for address in found.iter().map(SocketAddr::ip) {
            if let Some(network) = self.networks.denied(address) {
                return Err(ureq::Error::Other(Box::new(Closed { address, network })));
            }
        }
        Ok(found)
    }
}

/// An address in a closed network.
#[derive(Debug)]
pub(super) struct Closed {
    address: IpAddr,
    network: Subnet,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, network } = self;
        write!(
            f,
            "leads to {address}, in network {network}, from where no images of VMs may come"
        )
    }
}

impl std::error::Error for Closed {}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use disklet_core::images::{Address, Transport};
    use disklet_core::url::Url;

    use crate::pull::PullErrorKind;
    use crate::pull::http::Client;

    use super::*;

    /// What a client says that shall fetch this.
    fn said(url: &str, networks: Networks) -> (PullErrorKind, String) {
        let address = Address {
            url: Url::parse(url).unwrap(),
            digest: None,
            transport: Transport {
                networks: Some(networks),
                ..Transport::default()
            },
            is_mapped: false,
        };
        let error = Client::new(&address).unwrap().get(None).unwrap_err();
        (error.kind(), error.to_string())
    }

    #[test]
    fn a_closed_network_is_not_connected_to() {
        for host in ["127.0.0.1", "localhost", "[::1]", "2130706433"] {
            let (kind, why) = said(&format!("http://{host}:1/disk.img"), Networks::of_tenants());
            assert_eq!(kind, PullErrorKind::Closed, "{why}");
            assert!(why.contains("leads to "), "{why}");
        }
    }

    #[test]
    fn a_server_that_leads_into_one_is_not_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (mut asked, _) = listener.accept().unwrap();
            let _ = asked.read(&mut [0; 4096]).unwrap();
            let answer = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2:1/secret\r\nContent-Length: 0\r\n\r\n";
            asked.write_all(answer.as_bytes()).unwrap();
        });
        let mut networks = Networks::of_owner();
        networks.deny.push(Subnet::parse("127.0.0.2").unwrap());
        let (kind, why) = said(&format!("http://127.0.0.1:{port}/disk.img"), networks);
        server.join().unwrap();
        assert_eq!(kind, PullErrorKind::Closed, "{why}");
        assert!(why.contains("127.0.0.2/32"), "{why}");
    }
}
