//! Raw devices: which of them a pod may use.
//!
//! A device is allowed if one of the whitelist's globs matches a path of it.
//! What counts is the device's number: a link that points elsewhere gains
//! nothing, and a link into `/dev/mapper` works.

use std::fmt::Display;

use disklet_flexvolume::Raw;

use super::Resolver;
use crate::config::RawDeviceGlob;
use crate::diag::{Diagnostic, Diagnostics, Place, Remedy};
use crate::facts::{DeviceNumber, Fact, PathFact};
use crate::plan::Size;
use crate::units::ByteSize;

/// Nothing stands in the way of a disk without a byte, but nobody wants one: a
/// loop device that has lost its file looks like that.
pub(super) fn tell_empty(
    what: &str,
    path: impl Display,
    size: Option<ByteSize>,
    place: &Place,
    diags: &mut Diagnostics,
) {
    if size.is_none_or(|size| size.as_bytes() > 0) {
        return;
    }
    let path = path.to_string();
    let help = match path.starts_with("/dev/loop") {
        true => "attach a file to it with losetup before the VM starts",
        false => "see that there is something in it before the VM starts",
    };
    let message = format!("the {what} is empty, and so will be the disk");
    diags.push(
        Diagnostic::notice(place, message)
            .found(format!("{path}, 0 B"))
            .help(help),
    );
}

/// A device that may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowed {
    pub(super) number: Option<DeviceNumber>,
    pub(super) size: Size,
}

impl Resolver<'_> {
    pub(super) fn raw_device(
        &self,
        path: &str,
        place: &Place,
        diags: &mut Diagnostics,
    ) -> Option<Allowed> {
        if !Raw::is_device_path(path) {
            diags.push(
                Diagnostic::error(place, "not a path of a device")
                    .found(format!("{path:?}"))
                    .allowed(Raw::PATHS),
            );
            return None;
        }
        match self.facts.path(path) {
            Fact::Unknown => self.unseen_device(path, place, diags),
            Fact::Known(PathFact::Block { number, size }) => {
                if !self.allowed_devices.contains(&number) {
                    diags.push(self.not_whitelisted(place).found(path));
                    return None;
                }
                tell_empty("device", path, size, place, diags);
                Some(Allowed {
                    number: Some(number),
                    size: size.map_or(Size::OnNode, Size::Known),
                })
            }
            Fact::Known(other) => {
                let told = match other {
                    PathFact::Missing => "the device does not exist on the node".to_owned(),
                    PathFact::Forbidden => {
                        "the device may not be looked at by this user".to_owned()
                    }
                    other => format!("not a block device, but {other}"),
                };
                diags.push(
                    Diagnostic::error(place, told)
                        .found(path)
                        .allowed("a block device")
                        .help(match other {
                            PathFact::Forbidden => "look as root, who may",
                            _ => "give the path of a device that the node has",
                        })
                        .remedy(Remedy::OtherNode),
                );
                None
            }
        }
    }

    /// Nobody has looked at the node: the path itself must match, and the
    /// executor compares numbers. Of a node of a cluster, whose list and links nobody
    /// knows, nothing is said.
    fn unseen_device(&self, path: &str, place: &Place, diags: &mut Diagnostics) -> Option<Allowed> {
        let mut globs = self.config.raw_devices.iter();
        if !self.unseen.cluster && !globs.any(|glob| glob.matches(path)) {
            diags.push(self.not_whitelisted(place).found(path));
            return None;
        }
        Some(Allowed {
            number: None,
            size: Size::OnNode,
        })
    }

    fn not_whitelisted(&self, place: &Place) -> Diagnostic {
        let globs: Vec<_> = self
            .config
            .raw_devices
            .iter()
            .map(RawDeviceGlob::as_str)
            .collect();
        Diagnostic::error(place, "the device is not on this node's whitelist")
            .allowed(match globs.as_slice() {
                [] => "no devices are allowed".to_owned(),
                globs => format!("devices that match {}", globs.join(", ")),
            })
            .help("the node's administrator sets it with --raw-devices or VIRTLET_RAW_DEVICES")
    }
}
