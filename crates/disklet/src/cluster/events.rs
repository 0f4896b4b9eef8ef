//! Events: what `kubectl describe` shows below an object.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::json;

use super::words::shortened;

/// Tells events in the name of a program. The core kind is used, since all
/// versions of kubectl show how old such events are.
#[derive(Clone)]
pub struct Teller {
    client: Client,
    /// Such as `disklet-controller`.
    program: &'static str,
    /// Which of several, such as the name of a node.
    host: Option<String>,
    recent: Arc<Mutex<Recent>>,
}

impl std::fmt::Debug for Teller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Teller")
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// The API server takes no more.
const LONGEST: usize = 1024;
/// Nor longer names.
const LONGEST_NAME: usize = 253;

impl Teller {
    /// Tells in the name of `program`.
    #[must_use]
    pub fn new(client: Client, program: &'static str, host: Option<String>) -> Self {
        Self {
            client,
            program,
            host,
            recent: Arc::default(),
        }
    }

    /// Tells one event about an object. What was told of it before is not told
    /// again: it is counted.
    ///
    /// # Errors
    /// The API server does not take it.
    pub async fn tell(
        &self,
        about: ObjectReference,
        is_warning: bool,
        reason: &str,
        message: &str,
    ) -> Result<(), Error> {
        let now = Timestamp::now();
        let namespace = about.namespace.clone().unwrap_or_default();
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        let key = Key {
            uid: about.uid.clone().unwrap_or_default(),
            reason: reason.to_owned(),
            message: message.to_owned(),
        };
        let before = self.recent().again(&key);
        if let Some((name, count)) = before {
            let patch = json!({"count": count, "lastTimestamp": Time(now)});
            let patch = Patch::Merge(&patch);
            match events.patch(&name, &PatchParams::default(), &patch).await {
                // Events do not live long.
                Err(Error::Api(status)) if status.code == 404 => {}
                other => return other.map(drop),
            }
        }
        let name = about.name.clone().unwrap_or_default();
        let name = event_name(&name, now);
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            involved_object: about,
            type_: Some(if is_warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(reason.to_owned()),
            message: Some(shortened(message, LONGEST)),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            source: Some(EventSource {
                component: Some(self.program.to_owned()),
                host: self.host.clone(),
            }),
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await?;
        self.recent().begin(key, name);
        Ok(())
    }

    fn recent(&self) -> std::sync::MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What makes two events one that happens twice.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    uid: String,
    reason: String,
    message: String,
}

/// The events that were told last, by what they say.
#[derive(Debug, Default)]
struct Recent(VecDeque<(Key, String, i32)>);

impl Recent {
    /// Older ones are told as if they were new.
    const MOST: usize = 256;

    /// The name of the event that says the same, and how often it has happened
    /// now.
    fn again(&mut self, key: &Key) -> Option<(String, i32)> {
        let (_, name, count) = self.0.iter_mut().find(|(it, ..)| it == key)?;
        *count = count.saturating_add(1);
        Some((name.clone(), *count))
    }

    fn begin(&mut self, key: Key, name: String) {
        self.0.retain(|(it, ..)| *it != key);
        self.0.push_back((key, name, 1));
        if self.0.len() > Self::MOST {
            self.0.pop_front();
        }
    }
}

/// The object's name, as far as there is room for it, and when.
fn event_name(about: &str, now: Timestamp) -> String {
    let when = format!(".{:x}", now.as_nanosecond());
    let name: String = about.chars().take(LONGEST_NAME - when.len()).collect();
    // What comes before a dot ends with a letter or a digit.
    format!("{}{when}", name.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uid: &str, message: &str) -> Key {
        Key {
            uid: uid.to_owned(),
            reason: "PullFailed".to_owned(),
            message: message.to_owned(),
        }
    }

    #[test]
    fn what_happens_again_is_counted() {
        let mut recent = Recent::default();
        let first = key("vm-1", "not found");
        assert_eq!(recent.again(&first), None);
        recent.begin(first.clone(), "vm.1".to_owned());
        assert_eq!(recent.again(&first), Some(("vm.1".to_owned(), 2)));
        assert_eq!(recent.again(&first), Some(("vm.1".to_owned(), 3)));
        assert_eq!(recent.again(&key("vm-2", "not found")), None);
        assert_eq!(recent.again(&key("vm-1", "denied")), None);
        // The API server has forgotten it.
        recent.begin(first.clone(), "vm.2".to_owned());
        assert_eq!(recent.again(&first), Some(("vm.2".to_owned(), 2)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut recent = Recent::default();
        for number in 0..=Recent::MOST {
            recent.begin(key("vm", &number.to_string()), "vm.1".to_owned());
        }
        assert_eq!(recent.0.len(), Recent::MOST);
        assert_eq!(recent.again(&key("vm", "0")), None);
    }

    #[test]
    fn an_event_of_whatever_has_a_long_name_has_a_name() {
        let now = Timestamp::from_nanosecond(0x1234_5678_9abc_def0).unwrap();
        assert_eq!(event_name("vm", now), "vm.123456789abcdef0");
        let long = format!("{}-.{}", "a".repeat(235), "b".repeat(16));
        assert_eq!(long.len(), 253);
        let name = event_name(&long, now);
        assert_eq!(name, format!("{}.123456789abcdef0", "a".repeat(235)));
        assert_eq!(event_name(&"a".repeat(253), now).len(), 253);
    }
}
