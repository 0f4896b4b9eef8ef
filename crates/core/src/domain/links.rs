//! What connects a guest to the world: its network and its serial port.
//!
//! Without a cluster QEMU has a network of its own, and the console is a
//! terminal of the host. In a cluster both are sockets of the launcher, so that
//! the guest has the pod's address and `kubectl logs` its console, whatever
//! becomes of the agent.

use super::element::{Element, element};
use super::target::{NETWORK_SLOT, pci};
use super::xml::no_relabel;
use super::{Domain, Interface};

/// The namespace of arguments for QEMU itself.
const XMLNS_QEMU: &str = "http://libvirt.org/schemas/domain/qemu/1.0";

/// What QEMU connects to instead of a network and a terminal of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sockets {
    /// Takes and gives Ethernet frames.
    pub network: String,
    /// Takes and gives what passes the first serial port.
    pub serial: String,
}

impl Domain {
    /// All of a VM is on the pod's network, so it has one at most.
    pub(super) fn interface_elements(&self) -> Vec<Element> {
        match &self.sockets {
            None => self.interfaces.iter().map(user_network).collect(),
            Some(_) => Vec::new(),
        }
    }

    pub(super) fn serial_elements(&self) -> Vec<Element> {
        let log = || {
            element("log")
                .with("file", &self.serial_log)
                .with("append", "on")
        };
        let port = || element("target").with("port", 0);
        let Some(sockets) = &self.sockets else {
            let console = element("console")
                .with("type", "pty")
                .child(log())
                .child(element("target").with("type", "serial").with("port", 0));
            let serial = element("serial").with("type", "pty");
            return vec![serial.child(log()).child(port()), console];
        };
        // A launcher that is not there yet, or is busy, does not keep the guest
        // from starting.
        let source = element("source")
            .with("mode", "connect")
            .with("path", &sockets.serial)
            .child(
                element("reconnect")
                    .with("enabled", "yes")
                    .with("timeout", 1),
            )
            // It stays the launcher's: the next one in the pod has to remove it.
            .child(no_relabel());
        let serial = element("serial").with("type", "unix");
        vec![serial.child(source).child(log()).child(port())]
    }

    pub(super) fn command_line_namespace(&self) -> Option<&'static str> {
        self.sockets.as_ref().map(|_| XMLNS_QEMU)
    }

    /// libvirt 9 has no element for a network whose other end somebody else has
    /// made, so QEMU is told itself.
    pub(super) fn command_line(&self) -> Option<Element> {
        let sockets = self.sockets.as_ref()?;
        let arguments = self.interfaces.iter().flat_map(|interface| {
            [
                "-netdev".to_owned(),
                format!(
                    "stream,id=pod,server=off,reconnect-ms=1000,addr.type=unix,addr.path={}",
                    comma_twice(&sockets.network)
                ),
                "-device".to_owned(),
                format!(
                    "{},netdev=pod,id=net0,mac={},bus=pci.0,addr={NETWORK_SLOT:#x}",
                    interface.model.device(),
                    interface.mac
                ),
            ]
        });
        let arguments = arguments.map(|value| element("qemu:arg").with("value", value));
        Some(element("qemu:commandline").children(arguments))
    }
}

/// How QEMU has a comma in a value.
fn comma_twice(path: &str) -> String {
    path.replace(',', ",,")
}

fn user_network(interface: &Interface) -> Element {
    element("interface")
        .with("type", "user")
        .child(element("mac").with("address", &interface.mac))
        .child(element("model").with("type", interface.model.name()))
        .child(pci(NETWORK_SLOT))
}
