//! Who uses storage that several nodes reach: what a Lease object of the cluster
//! says, and what becomes of it.
//!
//! ```text
//!   content --taken(wanted)--> Held | Granted(content) | Busy(holder)
//!           --without(whom)--> content
//! ```
//!
//! No time is compared, nor any clock asked: a holder is one until its node's
//! agent says that its domain is off, or an administrator that its node is.
//! docs/formats/lease.md has the format.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::plan::Access;

#[cfg(test)]
mod tests;

/// The annotation of a Lease object that has the content.
pub const ANNOTATION: &str = "disklet.io/lease";
/// The label of these Lease objects.
pub const LABEL: &str = "disklet.io/lease";
/// What it says.
pub const LABELLED: &str = "storage";

const VERSION: u32 = 1;
/// API servers take 256 KiB of annotations, all together.
const MOST_BYTES: usize = 192 << 10;

/// Who uses a storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Content {
    version: u32,
    /// The storage, as people know it; the object's name has only its hash.
    pub storage: String,
    /// Those who use it now.
    pub holders: Vec<Holder>,
}

/// A domain that uses a storage, or is about to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Holder {
    /// The domain's UUID.
    pub uuid: Uuid,
    /// The namespace of its VM.
    pub namespace: String,
    /// The VM.
    pub name: String,
    /// The node that it is on.
    pub node: String,
    /// Which start of that node it is of.
    pub boot: String,
    /// In which way it is used.
    pub access: Access,
    /// Servers that have the storage, where its name does not say which it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// When it was taken by the node's clock, for people: it is never compared.
    pub since: String,
}

/// What becomes of a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is so already: its holders stay as they are.
    Held,
    /// It is so once this is written.
    Granted(Content),
    /// This one does not agree.
    Busy(Holder),
    /// Nobody minds, but a Lease object has no room for more.
    Full,
}

/// Why an object's content is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// It has none, or one that is wrong.
    Damaged(String),
    /// A later version has written it.
    Later(u32),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(why) => write!(f, "its annotation {ANNOTATION} cannot be read: {why}"),
            Self::Later(version) => write!(f, "a later Disklet has written it (version {version})"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// The name of the Lease object of a storage.
#[must_use]
pub fn object_name(storage: &str) -> String {
    format!("storage-{}", hash(storage))
}

/// 40 hexadecimal digits that stand for some words.
#[must_use]
pub fn hash(words: &str) -> String {
    let digest = Sha256::digest(words.as_bytes());
    let digits = digest.iter().take(20);
    digits.map(|byte| format!("{byte:02x}")).collect()
}

impl Holder {
    /// Whether both are the same domain. A UUID may be on two nodes, as when a
    /// node is cut off and its VM is started elsewhere: those are two.
    fn is_same_domain(&self, other: &Self) -> bool {
        (self.uuid, &self.node) == (other.uuid, &other.node)
    }

    /// Whether both stand for the same use by the same domain.
    fn is_same_use(&self, other: &Self) -> bool {
        self.is_same_domain(other) && self.hosts == other.hosts
    }

    /// Whether they cannot use the storage at the same time. Clusters that have
    /// no server in common are two.
    fn excludes(&self, other: &Self) -> bool {
        let apart = !self.hosts.is_empty()
            && !other.hosts.is_empty()
            && !self.hosts.iter().any(|host| other.hosts.contains(host));
        !apart && !self.is_same_domain(other) && !self.access.agrees_with(other.access)
    }

    /// A domain does not outlive its node's power; an overlay does, and whoever has one
    /// reads what is below it. Which readers have none their node's agent finds out.
    fn is_of_earlier_boot(&self, wanted: &Self) -> bool {
        let writes = self.access != Access::ReadShared;
        writes && self.node == wanted.node && self.boot != wanted.boot
    }

    /// As somebody of a namespace may know it. Tenants do not learn of each
    /// other.
    #[must_use]
    pub fn shown_to(&self, namespace: &str) -> String {
        match self.namespace == namespace {
            true => format!("VM {}/{} on node {}", self.namespace, self.name, self.node),
            false => "a VM of another namespace".to_owned(),
        }
    }
}

impl Content {
    /// Of a storage that nobody uses.
    #[must_use]
    pub fn new(storage: &str) -> Self {
        Self {
            version: VERSION,
            storage: storage.to_owned(),
            holders: Vec::new(),
        }
    }

    /// What an object's annotation says.
    ///
    /// # Errors
    ///
    /// It says nothing that this version understands.
    pub fn read(annotation: Option<&str>) -> Result<Self, Unreadable> {
        /// Of any version.
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let damaged = |error: serde_json::Error| Unreadable::Damaged(error.to_string());
        let Some(text) = annotation else {
            return Err(Unreadable::Damaged("it is not there".to_owned()));
        };
        let Versioned { version } = serde_json::from_str(text).map_err(damaged)?;
        match version {
            VERSION => serde_json::from_str(text).map_err(damaged),
            0 => Err(Unreadable::Damaged("there is no version 0".to_owned())),
            later => Err(Unreadable::Later(later)),
        }
    }

    /// What is written.
    #[must_use]
    pub fn written(&self) -> String {
        // Words and numbers only: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What becomes of somebody's wish to use it. To wish it again changes
    /// nothing.
    #[must_use]
    pub fn taken(&self, wanted: &Holder) -> Taken {
        let alive = |holder: &&Holder| !holder.is_of_earlier_boot(wanted);
        if let Some(other) = self
            .holders
            .iter()
            .filter(alive)
            .find(|it| it.excludes(wanted))
        {
            return Taken::Busy(other.clone());
        }
        let is_it = |it: &Holder| {
            let since = it.since.clone();
            *it == Holder {
                since,
                ..wanted.clone()
            }
        };
        if self.holders.iter().any(is_it) {
            return Taken::Held;
        }
        let others = self.holders.iter().filter(alive);
        let others = others.filter(|it| !it.is_same_use(wanted)).cloned();
        let holders = others.chain([wanted.clone()]).collect();
        let content = Self {
            holders,
            ..self.clone()
        };
        match content.written().len() > MOST_BYTES {
            true => Taken::Full,
            false => Taken::Granted(content),
        }
    }

    /// The same without some; nothing if that changes nothing.
    #[must_use]
    pub fn without(&self, is_off: impl Fn(&Holder) -> bool) -> Option<Self> {
        let others = self.holders.iter().filter(|holder| !is_off(holder));
        let holders: Vec<_> = others.cloned().collect();
        let changed = holders.len() != self.holders.len();
        changed.then(|| Self {
            holders,
            ..self.clone()
        })
    }

    /// The holder in a word, for who looks at the object.
    #[must_use]
    pub fn in_a_word(&self) -> Option<String> {
        let of = |holder: &Holder| format!("{}/{}", holder.namespace, holder.name);
        match &self.holders[..] {
            [] => None,
            [one] => Some(of(one)),
            [first, others @ ..] => Some(format!("{} and {} more", of(first), others.len())),
        }
    }
}
