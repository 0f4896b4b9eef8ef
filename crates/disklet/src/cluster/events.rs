//! Events: what `kubectl describe` shows below an object.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::{Client, Error};

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
        }
    }

    /// Tells one event about an object.
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
        let name = about.name.clone().unwrap_or_default();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(event_name(&name, now)),
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
        let events: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        events.create(&PostParams::default(), &event).await?;
        Ok(())
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
