//! Tells a launcher, and by events whoever looks at its VM, what is being done.

mod story;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use disklet::pull::{Beginning, Observer};
use disklet_core::facts::ImageFact;
use disklet_core::launch::protocol::FromAgent;
use disklet_core::names::{ImageName, ObjectName};

use super::cluster::Cluster;
use super::link::Link;
use super::machine::Unwanted;
use super::pod::LauncherPod;
use story::Story;

pub(super) use story::{Missing, missing};

pub(super) struct Told<'t> {
    link: &'t Link,
    unwanted: &'t Unwanted,
    cluster: &'t Cluster,
    pod: &'t LauncherPod,
    story: Mutex<Option<(Story, Instant)>>,
}

impl<'t> Told<'t> {
    pub(super) fn new(
        link: &'t Link,
        unwanted: &'t Unwanted,
        cluster: &'t Cluster,
        pod: &'t LauncherPod,
    ) -> Self {
        Self {
            link,
            unwanted,
            cluster,
            pod,
            story: Mutex::default(),
        }
    }

    fn say(&self, what: String) {
        // One that is gone is noticed where it is heard.
        let _ = self.link.say(&FromAgent::Working { what });
    }

    /// Bytes are not kept waiting for the API server.
    fn publish(&self, told: &story::Told) {
        self.cluster.tell_aside(self.pod, told.reason, &told.note);
    }

    /// An image is there; that is told if it had to come.
    pub(super) fn has(&self, image: &ImageName, fact: &ImageFact) {
        if let Some((_, begun)) = self.story().take() {
            self.publish(&Story::ends(image.name(), fact, begun.elapsed()));
        }
    }

    /// A pull secret that does not help; it may not be needed.
    pub(super) fn unusable_secret(&self, name: &ObjectName, why: &str) {
        let note = format!("Secret {name} of imagePullSecrets is not used: {why}");
        self.cluster.warn(self.pod, "PullSecretUnusable", &note);
    }

    fn story(&self) -> MutexGuard<'_, Option<(Story, Instant)>> {
        self.story.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Told<'_> {
    fn begins(&self, beginning: &Beginning<'_>) {
        let Beginning { image, from, .. } = beginning;
        self.say(format!("fetching image {image} from {from}"));
        let (story, told) = Story::begins(beginning);
        self.publish(&told);
        *self.story() = Some((story, Instant::now()));
    }

    fn advance(&self, bytes: u64) {
        let advanced =
            |(story, begun): &mut (Story, Instant)| story.advances(bytes, begun.elapsed());
        let told = self.story().as_mut().and_then(advanced);
        if let Some(told) = told {
            self.say(told.note.clone());
            self.publish(&told);
        }
    }

    fn waits(&self, image: &str) {
        let told = story::waits(image);
        self.say(told.note.clone());
        self.publish(&told);
    }

    fn stale(&self, image: &str, why: &str) {
        let note = format!(
            "it cannot be found out whether image {image} has changed, and what is here is used: {why}"
        );
        self.say(note.clone());
        self.cluster.warn(self.pod, "PullSkipped", &note);
    }

    fn notice(&self, text: &str) {
        self.say(text.to_owned());
    }

    fn cancelled(&self) -> bool {
        self.unwanted.is_set()
    }
}
