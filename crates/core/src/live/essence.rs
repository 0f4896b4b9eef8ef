//! What makes a disk another.
//!
//! Plans are kept for as long as their VMs run, so one may have been written by another
//! version of the program. What a plan shows beside this (where a disk hangs, how large it
//! is, where libvirt finds it, what its lease is called) follows from it, or makes no other
//! disk. What a version had no word for yet, it did not mean to be otherwise.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::domain::{Bus, DeviceKind};

/// Whether these are two disks rather than one, both as plans show them: as it is kept,
/// and as it would be now. A disk that is not understood is another.
#[must_use]
pub fn is_another(kept: &Value, now: &Value) -> bool {
    let read = |disk| Essence::deserialize(disk).ok();
    match (read(kept), read(now)) {
        (Some(kept), Some(now)) => kept != now,
        _ => kept != now,
    }
}

/// A field that plans always have, once a version knows it.
#[derive(Debug, Clone, Default)]
enum Said<T> {
    #[default]
    Unsaid,
    So(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Said<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Self::So)
    }
}

/// As far as both say it. So three are not alike because two and two of them are: nothing
/// here is compared but one kept disk with the one of now.
impl<T: PartialEq> PartialEq for Said<T> {
    fn eq(&self, now: &Self) -> bool {
        match (self, now) {
            (Self::So(kept), Self::So(now)) => kept == now,
            _ => true,
        }
    }
}

type Text = Said<String>;
type Maybe = Said<Option<String>>;

/// Fields that are no [`Said`] show only if somebody wants them; lacking, nobody did.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Essence {
    bus: Said<Bus>,
    device: Said<DeviceKind>,
    serial: Text,
    boot_order: Option<u32>,
    source: Said<Master>,
    format: Text,
    access: Text,
    copy: Text,
    copied_to: Said<Option<CopiedTo>>,
    pool: Maybe,
    cache: Option<String>,
    io: Option<String>,
    iotune: BTreeMap<String, u64>,
    mount: Said<Vec<Mount>>,
    link: Maybe,
    read_only: Said<bool>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Master {
    claim: Option<Claim>,
    #[serde(flatten)]
    kind: Kind,
}

/// What a source is, by its sort.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Kind {
    Image(Image),
    NewVolume(NewVolume),
    RawDevice(OfNode),
    BlockClaim(OfNode),
    DiskImage(OfNode),
    PersistentRoot(PersistentRoot),
    Iscsi(Iscsi),
    Rbd(Rbd),
    Nbd(Nbd),
    Gluster(Gluster),
    Http(Web),
    Https(Web),
    CloudInit {},
    Container(Container),
    Identity(Identity),
    KnownAtLaunch(AtLaunch),
}

macro_rules! records {
    ($($name:ident { $($field:ident: $type:ty),+ $(,)? })+) => {$(
        #[derive(Debug, Default, PartialEq, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct $name { $($field: $type),+ }
    )+};
}

records! {
    Claim { claim: Text, volume: Text }
    CopiedTo { file: Text, master_format: Text }
    Mount { path: Text, part: Said<u32>, read_only: Said<bool> }
    Image { image: Text, digest: Maybe }
    NewVolume { file: Text, filesystem: Text }
    // The number only if somebody has looked.
    OfNode { path: Text, device: Text }
    PersistentRoot { path: Text, device: Text, image: Text, digest: Maybe }
    Iscsi { portal: Text, target: Text, lun: Said<u32>, initiator: Maybe, user: Maybe }
    Rbd { monitors: Said<Vec<String>>, pool: Text, image: Text, user: Maybe }
    // At one or the other.
    Nbd { server: Option<String>, socket: Option<String>, export: Text, tls: Said<bool> }
    Gluster { hosts: Said<Vec<String>>, volume: Text, path: Text }
    Web { url: Text, user: Maybe }
    Container { image: Text, id: Text, container: Said<Value>, environment: Said<Value> }
    Identity { set: Text, name: Text }
    AtLaunch { storage: Maybe, needs: Text }
}

#[cfg(test)]
mod tests;
