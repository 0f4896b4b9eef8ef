//! How the guest reaches the network: one interface, found by its hardware
//! address, named `eth0`, configured by DHCP.
//!
//! IPv4 only: where nobody answers DHCPv6, asking for it holds up the boot,
//! and an address from router advertisements needs no configuration.

use super::{ImageType, NetworkSpec};
use crate::text::Data;

const INTERFACE: &str = "eth0";

/// The document for an image of that type.
pub(super) fn document(network: &NetworkSpec, image_type: ImageType) -> Data {
    match image_type {
        ImageType::NoCloud => version_1(network),
        ImageType::ConfigDrive => openstack(network),
    }
}

/// Version 1 of cloud-init's own format.
fn version_1(network: &NetworkSpec) -> Data {
    let interface = Data::pairs([
        ("type", Data::text("physical")),
        ("name", Data::text(INTERFACE)),
        ("mac_address", Data::text(&network.mac)),
        (
            "subnets",
            Data::List(vec![Data::pairs([("type", Data::text("dhcp"))])]),
        ),
    ]);
    Data::pairs([
        ("version", Data::Int(1)),
        ("config", Data::List(vec![interface])),
    ])
}

/// OpenStack's `network_data.json`. Its links have no names; cloud-init honours
/// one all the same, and without it refuses a link that it cannot find.
fn openstack(network: &NetworkSpec) -> Data {
    let link = Data::pairs([
        ("id", Data::text(INTERFACE)),
        ("name", Data::text(INTERFACE)),
        ("type", Data::text("phy")),
        ("ethernet_mac_address", Data::text(&network.mac)),
    ]);
    let dhcp = Data::pairs([
        ("id", Data::text("network0")),
        ("network_id", Data::text("network0")),
        ("link", Data::text(INTERFACE)),
        ("type", Data::text("ipv4_dhcp")),
    ]);
    Data::pairs([
        ("links", Data::List(vec![link])),
        ("networks", Data::List(vec![dhcp])),
        ("services", Data::List(Vec::new())),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::testing::spec;
    use super::*;
    use crate::text::Reveal;

    fn text(image_type: ImageType) -> Option<String> {
        let mut spec = spec();
        spec.image_type = image_type;
        spec.network = Some(NetworkSpec {
            mac: "52:54:00:12:34:56".to_owned(),
        });
        spec.build().network_config_text(Reveal::Redact)
    }

    #[test]
    fn nocloud_reads_version_1_as_yaml() {
        let expected = r#"version: 1
config:
- type: physical
  name: eth0
  mac_address: "52:54:00:12:34:56"
  subnets:
  - type: dhcp
"#;
        assert_eq!(text(ImageType::NoCloud).as_deref(), Some(expected));
    }

    #[test]
    fn a_config_drive_reads_openstacks_json() {
        let expected = r#"{
  "links": [
    {
      "id": "eth0",
      "name": "eth0",
      "type": "phy",
      "ethernet_mac_address": "52:54:00:12:34:56"
    }
  ],
  "networks": [
    {
      "id": "network0",
      "network_id": "network0",
      "link": "eth0",
      "type": "ipv4_dhcp"
    }
  ],
  "services": []
}
"#;
        assert_eq!(text(ImageType::ConfigDrive).as_deref(), Some(expected));
    }
}
