//! A pod's volume: as the kubelet tells the driver, and as the driver describes it
//! at its directory. Both are one JSON object of texts, so both are read here.
//! docs/formats/flexvolume.md describes the driver's.

mod error;

pub use error::{SecretError, VolumeError};

use crate::base64;
use crate::ceph::Key;
use crate::json;
use crate::options::Options;

/// A FlexVolume of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the pod, or that of its PersistentVolume.
    pub name: String,
    /// The pod that it is mounted for.
    pub pod: Pod,
    /// The guest may not write.
    pub read_only: bool,
    /// What it is. A Ceph user's key is among them, wherever it came from.
    pub options: Options,
}

/// A pod, as the kubelet names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

const READ_WRITE: &str = "kubernetes.io/readwrite";
const FS_TYPE: &str = "kubernetes.io/fsType";
const NAME: &str = "kubernetes.io/pvOrVolumeName";
const POD_NAMESPACE: &str = "kubernetes.io/pod.namespace";
const POD_NAME: &str = "kubernetes.io/pod.name";
const POD_UID: &str = "kubernetes.io/pod.uid";
const SECRET: &str = "kubernetes.io/secret/";
const FILE_VERSION: &str = "disklet.io/version";

type Entries = Vec<(String, String)>;

impl Volume {
    /// The file in the volume's directory that describes the volume.
    pub const FILE: &str = "disklet-volume.json";

    /// The version of that file.
    pub const VERSION: &str = "1";

    /// Reads what the kubelet says of a volume that is to be mounted.
    pub fn from_call(json: &[u8]) -> Result<Self, VolumeError> {
        let entries = json::read_texts(json)?;
        let mut volume = Self::read(&entries)?;
        if let Some(problem) = volume.options.path_problem() {
            return Err(VolumeError::Options(vec![problem]));
        }
        let fs_type = text_of(&entries, FS_TYPE).unwrap_or_default();
        if let Some(problem) = volume.options.filesystem_problem(fs_type) {
            return Err(VolumeError::Contradiction(problem));
        }
        volume.take_secret(&entries)?;
        Ok(volume)
    }

    /// Reads the file that [`Volume::to_file`] has written. The node agent does not: it
    /// has the pod.
    pub fn from_file(json: &[u8]) -> Result<Self, VolumeError> {
        let mut entries = json::read_texts(json)?;
        let version = entries.iter().position(|(key, _)| key == FILE_VERSION);
        let version = version.map(|index| entries.swap_remove(index).1);
        if version.as_deref() != Some(Self::VERSION) {
            return Err(VolumeError::Version(version));
        }
        Self::read(&entries)
    }

    /// The file that describes the volume. It has the key of a Ceph user in it.
    #[must_use]
    pub fn to_file(&self) -> String {
        let mut entries = self.options.expose();
        entries.extend([
            (FILE_VERSION, Self::VERSION.to_owned()),
            (NAME, self.name.clone()),
            (POD_NAMESPACE, self.pod.namespace.clone()),
            (POD_NAME, self.pod.name.clone()),
            (POD_UID, self.pod.uid.clone()),
            (READ_WRITE, read_write(self.read_only).to_owned()),
        ]);
        json::write_texts(entries) + "\n"
    }

    fn read(entries: &Entries) -> Result<Self, VolumeError> {
        let pairs = entries.iter();
        let options = Options::parse(pairs.map(|(key, value)| (key.as_str(), value.as_str())))?;
        Ok(Self {
            name: required(entries, NAME)?,
            pod: Pod {
                namespace: required(entries, POD_NAMESPACE)?,
                name: required(entries, POD_NAME)?,
                uid: required(entries, POD_UID)?,
            },
            // Whoever asks for a read-only disk in words that we do not know
            // must not get one that can be written to.
            read_only: match required(entries, READ_WRITE)?.as_str() {
                "rw" => false,
                "ro" => true,
                _ => return Err(VolumeError::ReadWrite),
            },
            options,
        })
    }

    /// Puts the key from the Secret that the volume names among its options.
    fn take_secret(&mut self, entries: &Entries) -> Result<(), VolumeError> {
        if !entries.iter().any(|(key, _)| key.starts_with(SECRET)) {
            return Ok(());
        }
        if let Some(problem) = self.options.secret_problem() {
            return Err(VolumeError::Contradiction(problem));
        }
        let key = text_of(entries, &format!("{SECRET}{}", Key::IN_SECRET));
        let key = key.ok_or(VolumeError::Secret(SecretError::NoKey))?;
        let key = base64::decode(key).and_then(|bytes| String::from_utf8(bytes).ok());
        let key = key.and_then(|text| Key::parse(&text).ok());
        let key = key.ok_or(VolumeError::Secret(SecretError::NotAKey))?;
        if let Options::Ceph(ceph) = &mut self.options {
            ceph.secret = Some(key);
        }
        Ok(())
    }
}

const fn read_write(read_only: bool) -> &'static str {
    if read_only { "ro" } else { "rw" }
}

fn text_of<'e>(entries: &'e Entries, key: &str) -> Option<&'e str> {
    let entry = entries.iter().find(|(known, _)| known == key)?;
    Some(&entry.1)
}

fn required(entries: &Entries, key: &'static str) -> Result<String, VolumeError> {
    let text = text_of(entries, key).filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or(VolumeError::Missing(key))
}

#[cfg(test)]
mod tests;
