//! Leases of storage, as objects of the cluster. What may become of one is
//! decided by `disklet_core::lease`; here it is read, and written only over the
//! version that was read.

use disklet_core::lease::{ANNOTATION, Content, Holder, LABEL, LABELLED, Taken, Unreadable};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Client, Resource, ResourceExt};

/// The leases of Disklet's own namespace.
#[derive(Debug, Clone)]
pub struct Leases {
    api: Api<Lease>,
    namespace: String,
}

/// What became of a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The storage is leased to who wished it.
    Ours,
    /// Somebody does not agree.
    Busy(Holder, Version),
    /// The object has no room for one more.
    Full(Version),
    /// Nobody knows who uses it.
    Unreadable(Unreadable, Version),
}

/// An object as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The object.
    pub object: String,
    /// Its resourceVersion.
    pub version: String,
}

/// By which leases of storage are found among all Leases.
#[must_use]
pub fn selector() -> String {
    format!("{LABEL}={LABELLED}")
}

/// What an object says.
///
/// # Errors
/// It says nothing that this version understands.
pub fn content_of(lease: &Lease) -> Result<Content, Unreadable> {
    let annotation = lease.annotations().get(ANNOTATION);
    Content::read(annotation.map(String::as_str))
}

impl Leases {
    /// Those of a namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
        }
    }

    /// The objects themselves.
    #[must_use]
    pub fn api(&self) -> &Api<Lease> {
        &self.api
    }

    /// Where an object is, for people.
    #[must_use]
    pub fn place(&self, object: &str) -> String {
        format!("{}/{object}", self.namespace)
    }

    /// All of them.
    ///
    /// # Errors
    /// The API server does not tell.
    pub async fn list(&self) -> kube::Result<Vec<Lease>> {
        let ours = ListParams::default().labels(&selector());
        Ok(self.api.list(&ours).await?.items)
    }

    /// Leases a storage to somebody, unless others do not agree. Said again, its
    /// holders stay the same, and the object is another version: a release that was sent
    /// before and is still on its way must not take the storage away.
    ///
    /// # Errors
    /// The API server does not answer; then it may be leased or not.
    pub async fn take(&self, object: &str, storage: &str, who: &Holder) -> kube::Result<Outcome> {
        loop {
            let found = self.api.get_opt(object).await?;
            let version = found.as_ref().and_then(ResourceExt::resource_version);
            let seen = Version {
                object: object.to_owned(),
                version: version.unwrap_or_default(),
            };
            let content = match found.as_ref().map(content_of) {
                None => Content::new(storage),
                Some(Ok(content)) => content,
                Some(Err(why)) => return Ok(Outcome::Unreadable(why, seen)),
            };
            let content = match content.taken(who) {
                Taken::Held => content,
                Taken::Granted(content) => content,
                Taken::Busy(holder) => return Ok(Outcome::Busy(holder, seen)),
                Taken::Full => return Ok(Outcome::Full(seen)),
            };
            let written = match &found {
                Some(lease) => self.replace(lease, &content).await?,
                None => self.create(object, &content).await?,
            };
            if written {
                return Ok(Outcome::Ours);
            }
        }
    }

    /// Takes some from an object's holders; the last takes it along. One that
    /// cannot be read is left alone.
    ///
    /// # Errors
    /// The API server does not answer; then they are gone or not.
    pub async fn release(
        &self,
        object: &str,
        is_off: impl Fn(&Holder) -> bool,
    ) -> kube::Result<()> {
        while let Some(lease) = self.api.get_opt(object).await? {
            if self.release_seen(&lease, &is_off).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The same with an object as it was seen: false if it has changed since.
    ///
    /// # Errors
    /// The same.
    pub async fn release_seen(
        &self,
        lease: &Lease,
        is_off: impl Fn(&Holder) -> bool,
    ) -> kube::Result<bool> {
        let content = content_of(lease).ok();
        match content.and_then(|content| content.without(is_off)) {
            None => Ok(true),
            Some(content) if content.holders.is_empty() => self.delete(lease).await,
            Some(content) => self.replace(lease, &content).await,
        }
    }

    async fn create(&self, object: &str, content: &Content) -> kube::Result<bool> {
        let mut lease = Lease {
            metadata: ObjectMeta {
                name: Some(object.to_owned()),
                labels: Some([(LABEL.to_owned(), LABELLED.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec::default()),
        };
        say(&mut lease, content);
        unless_changed(self.api.create(&PostParams::default(), &lease).await)
    }

    /// With the version and the UID that were seen. The UID counts: a Lease may be
    /// created by an update, and what was removed meanwhile must not come back.
    async fn replace(&self, seen: &Lease, content: &Content) -> kube::Result<bool> {
        let mut lease = seen.clone();
        lease.meta_mut().managed_fields = None;
        say(&mut lease, content);
        let (name, how) = (seen.name_any(), PostParams::default());
        unless_changed(self.api.replace(&name, &how, &lease).await)
    }

    async fn delete(&self, seen: &Lease) -> kube::Result<bool> {
        let how = DeleteParams {
            preconditions: Some(Preconditions {
                uid: seen.uid(),
                resource_version: seen.resource_version(),
            }),
            ..DeleteParams::default()
        };
        unless_changed(self.api.delete(&seen.name_any(), &how).await)
    }
}

fn say(lease: &mut Lease, content: &Content) {
    let annotations = lease.annotations_mut();
    annotations.insert(ANNOTATION.to_owned(), content.written());
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = content.in_a_word();
    // What is the same as before would be no new version.
    let writes = spec.lease_transitions.unwrap_or(0);
    spec.lease_transitions = Some(writes.wrapping_add(1).max(0));
}

/// Whether it was done; it was not if somebody else was faster.
fn unless_changed<T>(answer: kube::Result<T>) -> kube::Result<bool> {
    match answer {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}
