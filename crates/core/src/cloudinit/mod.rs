//! What the guest is told at boot: the files of a cloud-init image.
//!
//! [`CloudInitSpec`] is what resolution found out; [`CloudInitSpec::build`]
//! turns it into the documents of a NoCloud or ConfigDrive image. Nothing here
//! can fail: what could be wrong with user input was refused in validation.
//!
//! ```text
//!   user's data (Source, then inline over it)   mounts, links, files, env
//!                 \                                /
//!               lists join, maps merge, the user's data stays whole
//!                              |
//!     meta-data       user-data        network-config
//! ```

mod disks;
mod environment;
mod image;
mod lists;
mod merge;
mod meta_data;
mod network;
mod scripts;
mod secrets;
mod shell;
mod token;
mod user_data;

use crate::guest::{GuestDevice, GuestPath};
use crate::text::{Content, Data, Text};

pub(crate) use disks::fits_fstab;
pub use image::{CloudInit, UserData};
pub use lists::{ShapeProblem, shape_problems};
pub use merge::merge;
pub(crate) use token::is_template_header;
pub use token::{MOUNT_SCRIPT_TOKEN, TokenProblem, token_problem};

/// The two layouts that guests look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImageType {
    /// Volume label `cidata`; files `meta-data`, `user-data`, `network-config`.
    #[default]
    NoCloud,
    /// Volume label `config-2`; files under `openstack/latest/`.
    ConfigDrive,
}

/// Everything that goes into a VM's cloud-init image.
#[derive(Debug, Clone, PartialEq)]
pub struct CloudInitSpec {
    /// The layout.
    pub image_type: ImageType,
    /// cloud-init runs its per-instance modules once per value of this.
    pub instance_id: String,
    /// The guest's host name.
    pub hostname: String,
    /// SSH public keys, in order.
    pub ssh_keys: Vec<Text>,
    /// The user's meta-data entries; they win over generated ones.
    pub meta_data: Vec<(String, Data)>,
    /// The user's own user-data.
    pub user_data: UserDataSpec,
    /// Disks to mount.
    pub mounts: Vec<Mount>,
    /// Links to raw disks that the pod asked for by `devicePath`.
    pub links: Vec<DeviceLink>,
    /// Files to write.
    pub files: Vec<GuestFile>,
    /// The container's environment.
    pub environment: Vec<(String, Text)>,
    /// How the guest reaches the network; absent leaves it to the guest.
    pub network: Option<NetworkSpec>,
}

impl CloudInitSpec {
    /// What of it is not known yet, each in a sentence.
    pub(crate) fn known_later(&self) -> Vec<String> {
        let files = self.files.iter().filter_map(|file| match &file.content {
            Content::Later(when) => Some(format!("file {}: {when}", file.path)),
            Content::Public(_) | Content::Secret(_) => None,
        });
        let variables = self
            .environment
            .iter()
            .filter_map(|(name, value)| match value {
                Text::Later(when) => Some(format!("variable {name}: {when}")),
                Text::Public(_) | Text::Secret(_) => None,
            });
        let user_data = match &self.user_data {
            UserDataSpec::Script(Text::Later(when)) => Some(format!("user data: {when}")),
            UserDataSpec::Script(_) | UserDataSpec::Config(_) => None,
        };
        files.chain(variables).chain(user_data).collect()
    }
}

/// The user's own user-data.
#[derive(Debug, Clone, PartialEq)]
pub enum UserDataSpec {
    /// A `#cloud-config` mapping (possibly empty), already merged from the
    /// user's sources. Our own parts are merged into it.
    Config(Vec<(String, Data)>),
    /// A script that replaces user-data as a whole. [`MOUNT_SCRIPT_TOKEN`]
    /// in it gives way to the scripts that link and mount the disks.
    Script(Text),
}

/// One mount of a disk in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The disk.
    pub device: GuestDevice,
    /// 0 is the whole disk, n its n-th partition.
    pub part: u32,
    /// Where.
    pub path: GuestPath,
    /// Mounted read-only.
    pub read_only: bool,
}

/// A link in the guest from a path of the user's choice to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLink {
    /// The disk.
    pub device: GuestDevice,
    /// The `devicePath` of the pod.
    pub path: GuestPath,
}

/// A file for the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFile {
    /// Where.
    pub path: GuestPath,
    /// Permission bits.
    pub mode: u32,
    /// Its bytes.
    pub content: Content,
}

/// The guest's one network interface, configured by DHCP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSpec {
    /// Its hardware address, `52:54:00:…`.
    pub mac: String,
}

#[cfg(test)]
mod testing {
    use super::*;

    /// A guest with a name and nothing else.
    pub(super) fn spec() -> CloudInitSpec {
        CloudInitSpec {
            image_type: ImageType::NoCloud,
            instance_id: "6ff0c1d2".to_owned(),
            hostname: "my-vm".to_owned(),
            ssh_keys: Vec::new(),
            meta_data: Vec::new(),
            user_data: UserDataSpec::Config(Vec::new()),
            mounts: Vec::new(),
            links: Vec::new(),
            files: Vec::new(),
            environment: Vec::new(),
            network: None,
        }
    }

    /// A disk with the serial `vol`, mounted whole on `path`.
    pub(super) fn mount(path: &str) -> Mount {
        let path = GuestPath::parse(path).unwrap();
        Mount {
            device: device("vol"),
            part: 0,
            path,
            read_only: false,
        }
    }

    /// A disk with the serial `raw`, linked to `path`.
    pub(super) fn link(path: &str) -> DeviceLink {
        DeviceLink {
            device: device("raw"),
            path: GuestPath::parse(path).unwrap(),
        }
    }

    /// A virtio disk.
    pub(super) fn device(serial: &str) -> GuestDevice {
        GuestDevice {
            by_id: format!("/dev/disk/by-id/virtio-{serial}"),
            by_path: "/dev/disk/by-path/pci-0000:00:05.0".to_owned(),
        }
    }
}
