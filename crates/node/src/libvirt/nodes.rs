//! The nodes of QEMU's block layer, which libvirt numbers as it likes.

use serde_json::Value;
use uuid::Uuid;

use super::Libvirt;

/// A node, and what it opens. libvirt's own names of it begin with
/// `libvirt-NUMBER-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockNode {
    pub(crate) number: u32,
    pub(crate) opens: Storage,
}

/// What a node opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Storage {
    /// A file or a device.
    Path(String),
    /// Storage at a server, by libvirt's words for it.
    Server { protocol: String, name: String },
}

impl Libvirt {
    /// The nodes of a domain that is defined, as libvirt would number them for
    /// QEMU. If it does not tell, there are none: they only serve to explain.
    pub(crate) fn nodes(&self, uuid: Uuid) -> Vec<BlockNode> {
        let Ok(Some(domain)) = self.find(uuid) else {
            return Vec::new();
        };
        let native = domain
            .xml_desc(0)
            .and_then(|xml| self.connect.domain_xml_to_native("qemu-argv", &xml, 0));
        native.map_or_else(|_| Vec::new(), |line| nodes_in(&line))
    }
}

/// The nodes that a command line of QEMU has, as a shell would read it.
fn nodes_in(line: &str) -> Vec<BlockNode> {
    let quoted = line.split("-blockdev '").skip(1);
    let values = quoted.filter_map(|rest| rest.split_once('\'').map(|(value, _)| value));
    values
        .filter_map(|value| node(&serde_json::from_str(value).ok()?))
        .collect()
}

fn node(value: &Value) -> Option<BlockNode> {
    let text = |key: &str| Some(value.get(key)?.as_str()?.to_owned());
    let name = text("node-name")?;
    let number = name.strip_prefix("libvirt-")?.strip_suffix("-storage")?;
    let opens = match text("filename") {
        Some(path) => Storage::Path(path),
        None => {
            let protocol = text("driver")?;
            Storage::Server {
                name: match protocol.as_str() {
                    "rbd" => format!("{}/{}", text("pool")?, text("image")?),
                    "iscsi" => format!("{}/{}", text("target")?, value.get("lun")?),
                    "gluster" => format!("{}/{}", text("volume")?, text("path")?),
                    "nbd" => text("export").unwrap_or_default(),
                    _ => text("url")?,
                },
                protocol,
            }
        }
    };
    Some(BlockNode {
        number: number.parse().ok()?,
        opens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_found_on_a_command_line() {
        let line = r#"PATH=/bin /usr/bin/qemu-system-x86_64 -nodefaults \
-blockdev '{"driver":"file","filename":"/data/base","node-name":"libvirt-2-storage","read-only":true}' \
-blockdev '{"node-name":"libvirt-2-format","driver":"raw","file":"libvirt-2-storage"}' \
-blockdev '{"driver":"rbd","pool":"p","image":"v","node-name":"libvirt-1-storage"}' \
-blockdev '{"driver":"iscsi","target":"iqn.2001-04.com.example:a","lun":7,"node-name":"libvirt-3-storage"}' -device x"#;
        let path = Storage::Path("/data/base".to_owned());
        let server = |protocol: &str, name: &str| Storage::Server {
            protocol: protocol.to_owned(),
            name: name.to_owned(),
        };
        let node = |number, opens| BlockNode { number, opens };
        assert_eq!(
            nodes_in(line),
            [
                node(2, path),
                node(1, server("rbd", "p/v")),
                node(3, server("iscsi", "iqn.2001-04.com.example:a/7"))
            ]
        );
        assert_eq!(nodes_in("qemu -blockdev '{\"driver\":"), []);
    }
}
