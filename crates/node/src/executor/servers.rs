//! Where the names of servers lead to.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use disklet_core::domain::Domain;
use disklet_core::networks::Networks;
use disklet_core::source::{Endpoint, Network};

use crate::failure::{Failure, Result};

/// The addresses of names; none for one that leads nowhere.
type Found = BTreeMap<String, Vec<IpAddr>>;

/// Of several addresses of a server one is chosen that answers within this time.
const ANSWER: Duration = Duration::from_secs(2);

/// Refuses servers that are in a network closed to VMs. A name that leads
/// nowhere is not missed yet: of several servers one is enough.
pub(super) fn refuse_closed(hosts: &[String], networks: &Networks) -> Result<()> {
    look_up(hosts.iter(), networks).map(drop)
}

/// The domain with the addresses of these names, looked up and judged now: QEMU
/// shall look none of them up again, as a name may lead elsewhere by then.
pub(super) fn pinned<'h>(
    domain: &Domain,
    disks: &[(&str, &Network)],
    told: impl Fn(&str) -> bool,
    hosts: impl Iterator<Item = &'h String>,
    networks: &Networks,
) -> Result<Domain> {
    let found = look_up(hosts, networks)?;
    let same = domain.by_address(&|server| address_of(&found, server));
    same.ok_or_else(|| lost_of(disks, told, &found))
}

/// The same for one storage, which we have read.
pub(super) fn pinned_storage<'h>(
    network: &Network,
    hosts: impl Iterator<Item = &'h String>,
    networks: &Networks,
) -> Result<Network> {
    let found = look_up(hosts, networks)?;
    let same = network.by_address(&|server| address_of(&found, server));
    same.ok_or_else(|| lost(network))
}

fn address_of(found: &Found, server: &Endpoint) -> Option<Vec<IpAddr>> {
    let addresses = found.get(server.host())?;
    Some(answering_first(addresses, server.port()))
}

/// Tells of the first disk that has no server, by its name unless the step tells that.
fn lost_of(disks: &[(&str, &Network)], told: impl Fn(&str) -> bool, found: &Found) -> Failure {
    let is_there = |server: &Endpoint| found.get(server.host()).cloned();
    let mut lost_ones = disks
        .iter()
        .filter(|(_, network)| network.by_address(&is_there).is_none());
    match lost_ones.next() {
        Some((disk, network)) if told(disk) => lost(network),
        Some((disk, network)) => lost(network).of(&format!("disk {disk}")),
        None => Failure::new("a server leads to no address"),
    }
}

/// None of its servers has an address that can be used.
fn lost(network: &Network) -> Failure {
    let servers = network.endpoints().iter();
    let lost: Vec<_> = servers.map(Endpoint::host).collect();
    Failure::new(format!("{} leads to no address", lost.join(", ")))
        .help("check the server's name, and the node's name server; Gluster needs IPv4")
}

fn look_up<'h>(hosts: impl Iterator<Item = &'h String>, networks: &Networks) -> Result<Found> {
    let mut all = Found::new();
    for host in hosts {
        let found = (host.as_str(), 0).to_socket_addrs().into_iter().flatten();
        let mut addresses = Vec::new();
        for address in found.map(|found| found.ip()) {
            if let Some(network) = networks.denied(address) {
                return Err(Failure::new(format!(
                    "{host} leads to {address}, in network {network}, where VMs may not have disks"
                ))
                .help("the administrator says which networks are closed, with networks in the configuration"));
            }
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        all.insert(host.clone(), addresses);
    }
    Ok(all)
}

/// QEMU would try one after the other, and takes one only.
fn answering_first(addresses: &[IpAddr], port: u16) -> Vec<IpAddr> {
    let mut addresses = addresses.to_vec();
    if addresses.len() > 1 {
        let answers = |address: &&IpAddr| {
            TcpStream::connect_timeout(&SocketAddr::new(**address, port), ANSWER).is_ok()
        };
        let first = addresses.iter().find(answers).copied();
        addresses.sort_by_key(|address| Some(*address) != first);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use disklet_core::source::{CephUser, Rbd, RbdName};

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
    fn a_name_that_leads_nowhere_has_no_address() {
        let hosts = ["nowhere.invalid".to_owned()];
        refuse_closed(&hosts, &Networks::of_tenants()).unwrap();
        let found = look_up(hosts.iter(), &Networks::of_tenants()).unwrap();
        assert!(found["nowhere.invalid"].is_empty());
    }

    #[test]
    fn the_disk_without_a_server_is_named() {
        let rbd = |monitors: &[&str]| {
            let monitors = monitors.iter();
            Network::Rbd(Rbd {
                monitors: monitors
                    .map(|host| Endpoint::new(host, 1).unwrap())
                    .collect(),
                pool: RbdName::parse("p").unwrap(),
                image: RbdName::parse("i").unwrap(),
                user: CephUser::parse("u").unwrap(),
            })
        };
        let (good, bad) = (rbd(&["away", "there"]), rbd(&["away", "gone"]));
        let found = Found::from([
            ("away".to_owned(), Vec::new()),
            ("gone".to_owned(), Vec::new()),
            ("there".to_owned(), vec!["192.0.2.1".parse().unwrap()]),
        ]);
        let disks = [("good", &good), ("bad", &bad)];
        let told = lost_of(&disks, |_| false, &found).to_string();
        let words = "disk bad: away, gone leads to no address\n  help: check the server's name";
        assert!(told.starts_with(words), "{told}");
        let told = lost_of(&disks, |disk| disk == "bad", &found).to_string();
        assert!(told.starts_with("away, gone "), "{told}");
    }

    #[test]
    fn an_address_that_answers_comes_first() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let [dead, alive]: [IpAddr; 2] = ["127.0.0.9", "127.0.0.1"].map(|it| it.parse().unwrap());
        assert_eq!(answering_first(&[dead, alive], port), [alive, dead]);
        assert_eq!(answering_first(&[dead], port), [dead]);
    }
}
