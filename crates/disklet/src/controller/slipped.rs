//! VM pods that slipped past the webhook: it did not answer when they were created, so no
//! launcher took their place. They must not run as something else. And launchers that have
//! lost the label by which they are protected.
//!
//! ```text
//!   all pods --watch--> memory --> course (pure) --> an image that nobody can run, or a label;
//!                       ^   \                                                    and an event
//!                       |    whose makers would make them anew --> does anybody answer now?
//!                       \-- what came of it                                    |
//!                                                          deletion <-- yes <--/
//! ```
//!
//! Nobody waits for anybody: a change that others think about for long, and the question
//! whether anybody answers, which nobody may answer, are beside the watch and each other.

mod asked;
mod course;
mod memory;

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use disklet_core::launch::pod::VM_LABEL;

use self::course::{Course, NOTHING, is_older};
use self::memory::{Memory, Outcome, Refused, Try, version};
use super::act::{self, Failure};
use super::context::Context;
use super::objects::{AnyPod, Key, SeenContainer};

/// How often it is looked whether it is time to try or to ask something again.
const LOOK: Duration = Duration::from_secs(1);
/// How many changes are made at a time that are likely to be answered at once, how many
/// others, and how many questions are asked.
const QUICK: usize = 16;
const SLOW: usize = 4;
const QUESTIONS: usize = 4;

/// Looks at every pod, until the watch ends: anybody can write a launcher's label on a pod.
pub(super) async fn forever(context: &Arc<Context>, configuration: &str) {
    let config = watcher::Config::default().fields("status.phase!=Succeeded,status.phase!=Failed");
    let pods = watch(Api::<AnyPod>::all(context.client.clone()), config).default_backoff();
    let mut pods = pin!(pods);
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let slips = Slips {
        context,
        configuration,
        quick: Semaphore::new(QUICK),
        slow: Semaphore::new(SLOW),
        questions: Semaphore::new(QUESTIONS),
    };
    let mut memory = Memory::default();
    let mut trying = FuturesUnordered::new();
    let mut asking = FuturesUnordered::new();
    loop {
        let tries: Vec<Try> = tokio::select! {
            event = pods.next() => match event {
                Some(Ok(event)) => follow(&mut memory, event).into_iter().collect(),
                Some(Err(error)) => {
                    context.metrics.watch_failed("pods");
                    warn!(%error, "the watch of all pods is begun again");
                    Vec::new()
                }
                None => return,
            },
            Some(tried) = trying.next() => {
                let (uid, outcome): (String, Outcome) = tried;
                memory.ended(&uid, outcome, Instant::now()).into_iter().collect()
            }
            Some(asked) = asking.next() => {
                let (namespace, answers): (String, bool) = asked;
                memory.answered(&namespace, answers, Instant::now())
            }
            _ = ticks.tick() => {
                let questions = memory.questions(Instant::now());
                asking.extend(questions.into_iter().map(|question| slips.ask(question)));
                memory.due(Instant::now())
            }
        };
        trying.extend(tries.into_iter().map(|it| slips.attend(it)));
    }
}

fn follow(memory: &mut Memory, event: Event<AnyPod>) -> Option<Try> {
    match event {
        Event::Apply(pod) | Event::InitApply(pod) => return memory.see(pod, Instant::now()),
        Event::Delete(pod) => memory.forget(&pod),
        Event::Init => memory.begin_list(),
        Event::InitDone => memory.end_list(),
    }
    None
}

struct Slips<'s> {
    context: &'s Context,
    configuration: &'s str,
    quick: Semaphore,
    slow: Semaphore,
    questions: Semaphore,
}

impl Slips<'_> {
    async fn attend(&self, it: Try) -> (String, Outcome) {
        let places = match it.is_quick {
            true => &self.quick,
            false => &self.slow,
        };
        // They are never closed.
        let _place = places.acquire().await;
        let outcome = match self.try_to_attend(&it).await {
            Ok(outcome) => outcome,
            Err(failure) => {
                warn!(pod = %Key::of(&*it.pod), %failure, "tried again later");
                Outcome::Failed(self.tell_refusal(&it, &failure).await)
            }
        };
        (it.uid, outcome)
    }

    async fn try_to_attend(&self, it: &Try) -> Result<Outcome, Failure> {
        let (pod, course) = (&*it.pod, &it.course);
        let Some(installed) = self.asked_since(pod).await? else {
            return Ok(Outcome::Left);
        };
        if is_older(pod, installed) {
            return Ok(Outcome::Left);
        }
        let version = self.take(course, pod).await?;
        info!(pod = %Key::of(pod), ?course, "a VM pod has slipped past the webhook");
        if let Some(words) = course.in_words() {
            self.tell(pod, &words).await;
        }
        Ok(Outcome::Done(version))
    }

    /// Returns the version of the pod since.
    async fn take(&self, course: &Course, pod: &AnyPod) -> Result<Option<u64>, Failure> {
        let (key, uid) = (Key::of(pod), pod.uid().unwrap_or_default());
        match course {
            Course::Leave => Ok(None),
            Course::Stop => self.patch(pod, &stopping(pod)).await,
            Course::StopUnlabelled => {
                act::take_label_off(self.context, &key, &uid).await?;
                self.patch(pod, &stopping(pod)).await
            }
            Course::Replace(_) => {
                let left = act::delete_by_uid(self.context, &key, &uid).await?;
                Ok(left.and_then(|left| version(&*left)))
            }
            Course::Label(label) => {
                let labels = json!({"metadata": {"labels": {VM_LABEL: label}}});
                self.patch(pod, &labels).await
            }
        }
    }

    /// Once, whatever is tried again: the pod runs as something else meanwhile. Returns
    /// what was told.
    async fn tell_refusal(&self, it: &Try, failure: &Failure) -> Option<Refused> {
        let Failure::Api(error) = failure else {
            return None;
        };
        let kube::Error::Api(status) = &**error else {
            return None;
        };
        let refused = Some((it.course.clone(), status.code));
        if it.refused != refused
            && let Some(words) = it.course.refused_in_words(&status.message)
        {
            self.tell(&it.pod, &words).await;
        }
        refused
    }

    async fn patch(&self, pod: &AnyPod, patch: &Value) -> Result<Option<u64>, Failure> {
        let mut patch = patch.clone();
        // Not of another pod that has come under the name since.
        patch["metadata"]["uid"] = json!(pod.uid());
        let patched = act::patch_pod(self.context, &Key::of(pod), &patch).await?;
        Ok(patched.and_then(|pod| version(&pod)))
    }

    /// That an event could not be told is no reason to do anything again.
    async fn tell(&self, pod: &AnyPod, words: &str) {
        let about = pod.object_ref(&());
        let telling = self.context.teller.tell(about, true, "NotLaunched", words);
        if let Err(error) = act::in_time(telling).await {
            warn!(pod = %Key::of(pod), %error, "an event was not told");
        }
    }
}

/// No container of it can run any more.
fn stopping(pod: &AnyPod) -> Value {
    let images = |containers: &[SeenContainer]| {
        let containers = containers.iter();
        let images = containers.map(|it| json!({"name": it.name, "image": NOTHING}));
        json!(images.collect::<Vec<_>>())
    };
    json!({
        "spec": {
            "containers": images(&pod.spec.containers),
            "initContainers": images(&pod.spec.init_containers),
        },
    })
}
