//! The disks of a domain, as its document has them.

use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use uuid::Uuid;

use super::Libvirt;
use crate::failure::{Failure, Result};

/// A disk of a domain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DomainDisk {
    /// Such as `sda`.
    pub(crate) target: String,
    /// The file or device that QEMU opens; nothing if it is at a server.
    pub(crate) path: Option<String>,
    pub(crate) read_only: bool,
    /// libvirt's name of the device, while the domain runs.
    pub(crate) alias: Option<String>,
}

impl Libvirt {
    /// The disks of a domain as it runs, or would run; none if it is not
    /// defined.
    pub(crate) fn disks(&self, uuid: Uuid) -> Result<Vec<DomainDisk>> {
        let Some(domain) = self.find(uuid)? else {
            return Ok(Vec::new());
        };
        let xml = domain.xml_desc(0).map_err(|error| {
            Failure::new(format!("domain {uuid} cannot be looked at")).because(error)
        })?;
        Ok(disks_in(&xml))
    }
}

/// The disks of a document; of one that is damaged, those before the damage.
pub(crate) fn disks_in(xml: &str) -> Vec<DomainDisk> {
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut within: Vec<String> = Vec::new();
    let mut disks = Vec::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(element)) => {
                within.push(element.name().as_ref().to_owned());
                hear(&within, &element, &mut disks);
            }
            Ok(Event::Empty(element)) => {
                within.push(element.name().as_ref().to_owned());
                hear(&within, &element, &mut disks);
                within.pop();
            }
            Ok(Event::End(_)) => drop(within.pop()),
            Ok(Event::Eof) | Err(_) => return disks,
            Ok(_) => {}
        }
    }
}

/// Only what a disk itself says: below it are the sources of lower layers.
fn hear(within: &[String], element: &BytesStart<'_>, disks: &mut Vec<DomainDisk>) {
    let within: Vec<&str> = within.iter().map(String::as_str).collect();
    let ["domain", "devices", "disk", of_disk @ ..] = within.as_slice() else {
        return;
    };
    if of_disk.is_empty() {
        disks.push(DomainDisk::default());
    }
    let Some(disk) = disks.last_mut() else { return };
    match of_disk {
        ["source"] => disk.path = attribute(element, "file").or(attribute(element, "dev")),
        ["target"] => disk.target = attribute(element, "dev").unwrap_or_default(),
        ["readonly"] => disk.read_only = true,
        ["alias"] => disk.alias = attribute(element, "name"),
        _ => {}
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = element.try_get_attribute(name).ok()??;
    let value = attribute.normalized_value(XmlVersion::Explicit1_0).ok()?;
    Some(value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_what_is_on_top() {
        let xml = "<domain type='qemu'>
          <metadata><x:disk xmlns:x='x'><source file='/no'/></x:disk></metadata>
          <devices>
            <disk type='file' device='disk'>
              <source file='/a &amp; &apos;b&apos;' index='2'><seclabel model='dac'/></source>
              <backingStore type='file'><source file='/below'/><backingStore/></backingStore>
              <target dev='sda' bus='scsi'/>
            </disk>
            <disk type='block'><source dev='/dev/x'/><target dev='sdb'/><readonly/></disk>
            <disk type='network'><source protocol='rbd' name='p/v'/><target dev='sdc'/></disk>
            <interface type='user'><source dev='eth0'/><target dev='tap'/></interface>
          </devices></domain>";
        let disk = |target: &str, path: Option<&str>, read_only| DomainDisk {
            target: target.to_owned(),
            path: path.map(str::to_owned),
            read_only,
            alias: None,
        };
        assert_eq!(
            disks_in(xml),
            [
                disk("sda", Some("/a & 'b'"), false),
                disk("sdb", Some("/dev/x"), true),
                disk("sdc", None, false),
            ]
        );
        assert_eq!(disks_in("<domain><devices><disk"), []);
    }
}
