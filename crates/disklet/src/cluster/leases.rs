//! Leases of storage, as objects of the cluster. What may become of one is
//! decided by `disklet_core::lease`; here it is read, and written only over the
//! version that was read.

use std::time::Duration;

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
        let mut patience = Patience::default();
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
            match written {
                Written::Done => return Ok(Outcome::Ours),
                Written::Late(why) => patience.wait(why).await?,
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
        let mut patience = Patience::default();
        while let Some(lease) = self.api.get_opt(object).await? {
            match self.write_without(&lease, &is_off).await? {
                Written::Done => return Ok(()),
                Written::Late(why) => patience.wait(why).await?,
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
        let written = self.write_without(lease, is_off).await?;
        Ok(matches!(written, Written::Done))
    }

    async fn write_without(
        &self,
        lease: &Lease,
        is_off: impl Fn(&Holder) -> bool,
    ) -> kube::Result<Written> {
        let content = content_of(lease).ok();
        match content.and_then(|content| content.without(is_off)) {
            None => Ok(Written::Done),
            Some(content) if content.holders.is_empty() => self.delete(lease).await,
            Some(content) => self.replace(lease, &content).await,
        }
    }

    async fn create(&self, object: &str, content: &Content) -> kube::Result<Written> {
        let mut lease = Lease {
            metadata: ObjectMeta {
                name: Some(object.to_owned()),
                labels: Some([(LABEL.to_owned(), LABELLED.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec::default()),
        };
        say(&mut lease, content);
        match self.api.create(&PostParams::default(), &lease).await {
            // There is no such namespace, and no other try will find it.
            Err(kube::Error::Api(status)) if status.code == 404 => Err(kube::Error::Api(status)),
            answer => unless_changed(answer),
        }
    }

    /// With the version and the UID that were seen. The UID counts: a Lease may be
    /// created by an update, and what was removed meanwhile must not come back.
    async fn replace(&self, seen: &Lease, content: &Content) -> kube::Result<Written> {
        let mut lease = seen.clone();
        lease.meta_mut().managed_fields = None;
        say(&mut lease, content);
        let (name, how) = (seen.name_any(), PostParams::default());
        unless_changed(self.api.replace(&name, &how, &lease).await)
    }

    async fn delete(&self, seen: &Lease) -> kube::Result<Written> {
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

/// What became of a write.
enum Written {
    Done,
    /// Somebody else was faster.
    Late(kube::Error),
}

/// How often somebody else may have been faster. The pauses grow to their longest.
#[derive(Default)]
struct Patience {
    tries: u32,
}

impl Patience {
    const TRIES: u32 = 30;
    const FIRST_PAUSE: Duration = Duration::from_millis(5);
    const LONGEST_PAUSE: Duration = Duration::from_millis(200);

    async fn wait(&mut self, why: kube::Error) -> kube::Result<()> {
        self.tries += 1;
        if self.tries == Self::TRIES {
            return Err(why);
        }
        let pause = Self::FIRST_PAUSE.saturating_mul(self.tries);
        tokio::time::sleep(pause.min(Self::LONGEST_PAUSE)).await;
        Ok(())
    }
}

fn unless_changed<T>(answer: kube::Result<T>) -> kube::Result<Written> {
    match answer {
        Ok(_) => Ok(Written::Done),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            Ok(Written::Late(kube::Error::Api(status)))
        }
        Err(error) => Err(error),
    }
}
