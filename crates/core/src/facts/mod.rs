//! What is true of the node, as far as somebody has looked.
//!
//! Core asks for nothing itself: [`Questions::of`] lists what a resolution
//! would like to know, whoever can look answers, and what stays unanswered is
//! [`Fact::Unknown`]. A plan with unknowns says so; it never invents.

mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::config::Config;
use crate::manifest::{DiskSource, Key, Objects, PvSource, Volume, VolumeMode, VolumeSource};
use crate::names::{ImageName, PodUid, Sha256, VolumeName};
use crate::resolve::Bindings;
use crate::root::RootFact;
use crate::text::Secret;
use crate::units::ByteSize;
use crate::yaml::Spanned;

/// Something that may be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact<T> {
    /// Nobody has looked.
    Unknown,
    /// It is so.
    Known(T),
}

/// The facts of a node.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// What paths are.
    pub paths: BTreeMap<String, PathFact>,
    /// What is on devices that are to be persistent roots.
    pub roots: BTreeMap<String, RootFact>,
    /// Images in the store, by name without prefix and digest.
    pub images: BTreeMap<String, ImageFact>,
    /// What containers that make storage have answered, by namespace, VM and
    /// disk: `default/vm1/sda`.
    pub answers: BTreeMap<String, Spanned<DiskSource>>,
    /// The launcher pods of VMs, as far as they are on the node; a VM pod's is the
    /// pod itself.
    pub launchers: BTreeMap<Key, PodUid>,
    /// Tokens that the kubelet has requested for pods.
    pub tokens: BTreeMap<TokenFile, Secret>,
    /// Whether somebody has looked at the node: a path without an answer is
    /// then known to be missing.
    pub looked: bool,
}

/// A file with a token that the kubelet puts into a volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenFile {
    /// The pod's UID.
    pub pod: String,
    /// The projected volume.
    pub volume: VolumeName,
    /// The path within the volume.
    pub path: String,
}

impl TokenFile {
    /// Where the kubelet has the volume.
    #[must_use]
    pub fn directory(&self, config: &Config) -> String {
        let below = format!("volumes/kubernetes.io~projected/{}", self.volume);
        config.in_pod(&self.pod, &below)
    }
}

/// What a path is, symbolic links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathFact {
    /// Nothing is there.
    Missing,
    /// A block device.
    Block {
        /// Which.
        number: DeviceNumber,
        /// How large, if that could be seen.
        size: Option<ByteSize>,
    },
    /// A regular file.
    File {
        /// How large.
        size: ByteSize,
        /// Which, whatever it is called, if that could be seen.
        id: Option<FileId>,
    },
    /// A directory.
    Directory,
    /// A character device, a socket, a pipe.
    Other,
    /// It is there, but may not be looked at.
    Forbidden,
}

impl fmt::Display for PathFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("nothing"),
            Self::Block { number, .. } => write!(f, "block device {number}"),
            Self::File { .. } => f.write_str("a regular file"),
            Self::Directory => f.write_str("a directory"),
            Self::Other => f.write_str("something that is neither a file nor a block device"),
            Self::Forbidden => f.write_str("something that may not be looked at"),
        }
    }
}

/// A device's major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which device of it.
    pub minor: u32,
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

impl serde::Serialize for DeviceNumber {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A file of a node: its paths may be many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The filesystem's.
    pub device: DeviceNumber,
    /// The file's within it.
    pub inode: u64,
}

/// What a device or file of a node is known by, whatever leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeThing {
    /// A block device.
    Device(DeviceNumber),
    /// A regular file.
    File(FileId),
}

impl fmt::Display for NodeThing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(number) => write!(f, "block device {number}"),
            Self::File(FileId { device, inode }) => write!(f, "file {inode} of device {device}"),
        }
    }
}

/// An image in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageFact {
    /// The digest of the file it was made from.
    pub digest: Sha256,
    /// The size a guest sees.
    pub size: ByteSize,
}

impl Facts {
    /// What a path is.
    #[must_use]
    pub fn path(&self, path: &str) -> Fact<PathFact> {
        match self.paths.get(path) {
            Some(fact) => Fact::Known(*fact),
            None if self.looked => Fact::Known(PathFact::Missing),
            None => Fact::Unknown,
        }
    }

    /// What the store has under an image's name. A pinned digest must match.
    #[must_use]
    pub fn image(&self, image: &ImageName) -> Fact<ImageFact> {
        match self.images.get(image.name()) {
            Some(fact) if image.digest().is_none_or(|digest| digest == fact.digest) => {
                Fact::Known(*fact)
            }
            _ => Fact::Unknown,
        }
    }

    /// The devices that the whitelist allows: what its globs match, links
    /// followed.
    #[must_use]
    pub fn allowed_devices(&self, config: &Config) -> BTreeSet<DeviceNumber> {
        self.paths
            .iter()
            .filter(|(path, _)| config.raw_devices.iter().any(|glob| glob.matches(path)))
            .filter_map(|(_, fact)| match fact {
                PathFact::Block { number, .. } => Some(*number),
                _ => None,
            })
            .collect()
    }
}

/// What a resolution would like to know of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Questions {
    /// What is at these paths?
    pub paths: BTreeSet<String>,
    /// What is on these devices, as far as persistent roots go?
    pub roots: BTreeSet<String>,
    /// Which images of these names are in the store?
    pub images: BTreeSet<String>,
    /// Which tokens are in these files? Only who runs the pods may answer.
    pub tokens: BTreeSet<TokenFile>,
    /// Whether any pod names a raw device, so that the whitelist's globs have
    /// to be expanded.
    pub raw_devices: bool,
}

impl Questions {
    /// The questions that these objects raise. Only paths that a whitelist or
    /// an administrator's volume can lead to are asked for: a tenant cannot
    /// use a plan to look around on the node.
    #[must_use]
    pub fn of(objects: &Objects, config: &Config) -> Self {
        let mut questions = Self::default();
        for pod in &objects.vm_pods {
            for volume in &pod.volumes {
                if let VolumeSource::Flex(flex) = &volume.source.value {
                    questions.ask_options(&flex.options);
                }
            }
        }
        let images = objects.images();
        questions.images = images.map(|image| image.name().to_owned()).collect();
        let any_root = objects
            .vm_pods
            .iter()
            .any(|pod| pod.container.root_device().is_some());
        for volume in objects.volumes.values() {
            match &volume.source.value {
                PvSource::Flex(flex) => questions.ask_options(&flex.options),
                PvSource::Local(path) | PvSource::HostPath(path) => {
                    let path = match volume.mode {
                        VolumeMode::Block => path.clone(),
                        VolumeMode::Filesystem => disk_image_in(path),
                    };
                    if any_root && volume.mode == VolumeMode::Block {
                        questions.roots.insert(path.clone());
                    }
                    questions.paths.insert(path);
                }
                _ => {}
            }
        }
        questions.ask_mapped(objects, config);
        questions.ask_tokens(objects);
        questions
    }

    /// Devices that the kubelet maps for pods of a cluster.
    fn ask_mapped(&mut self, objects: &Objects, config: &Config) {
        let bindings = Bindings::of(objects);
        for pod in &objects.vm_pods {
            let Some(uid) = &pod.meta.uid else { continue };
            let root = pod.container.root_device();
            for volume in &pod.volumes {
                let VolumeSource::Claim { name, .. } = &volume.source.value else {
                    continue;
                };
                let key = (pod.meta.namespace.clone(), name.clone());
                let Some(Ok(bound)) = bindings.volume(&key) else {
                    continue;
                };
                let bound = objects.volumes.get(bound);
                let Some(bound) = bound.filter(|bound| bound.mode == VolumeMode::Block) else {
                    continue;
                };
                let path = config.in_pod(uid, &bound.below_pod());
                if root.is_some_and(|root| root.volume.value == volume.name.value) {
                    self.roots.insert(path.clone());
                }
                self.paths.insert(path);
            }
        }
    }

    fn ask_tokens(&mut self, objects: &Objects) {
        for pod in &objects.vm_pods {
            let Some(uid) = &pod.meta.uid else { continue };
            let mounts = |volume: &&Volume| {
                let mut mounts = pod.container.mounts.iter();
                mounts.any(|mount| mount.volume.value == volume.name.value)
            };
            for volume in pod.volumes.iter().filter(mounts) {
                let VolumeSource::Files(files) = &volume.source.value else {
                    continue;
                };
                let paths = files.tokens().map(str::to_owned);
                self.tokens.extend(paths.map(|path| TokenFile {
                    pod: uid.clone(),
                    volume: volume.name.value.clone(),
                    path,
                }));
            }
        }
    }

    fn ask_options(&mut self, options: &disklet_flexvolume::Options) {
        if let disklet_flexvolume::Options::Raw(raw) = options {
            self.raw_devices = true;
            if raw.is_of_device() {
                self.paths.insert(raw.path.clone());
            }
        }
    }
}

/// The name of the one file of a filesystem volume that is a disk.
pub const DISK_IMAGE: &str = "disk.img";

/// The one file of a filesystem volume that is a disk.
#[must_use]
pub fn disk_image_in(directory: &str) -> String {
    format!("{}/{DISK_IMAGE}", directory.trim_end_matches('/'))
}
