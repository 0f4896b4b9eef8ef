//! What is known of pods that have slipped past: who is being attended to, what was written
//! already, and when something is tried again. This remembers and decides; it asks nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::ResourceExt;

use super::course::{Course, chooser, course, has_slipped, is_guarded, is_stopped, maker};
use crate::controller::objects::{AnyPod, Key};

/// How often it is asked in a namespace whether anybody answers now.
const AGAIN: Duration = Duration::from_secs(10);
/// How long to wait after something has failed: so long at first, twice as long each time.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);

/// What was refused, with which code.
pub(super) type Refused = (Course, u16);

/// Something that is to be done about a pod now.
#[derive(Debug)]
pub(super) struct Try {
    pub(super) uid: String,
    pub(super) pod: Arc<AnyPod>,
    pub(super) course: Course,
    /// Whether it is likely to be answered at once.
    pub(super) is_quick: bool,
    /// What was told already.
    pub(super) refused: Option<Refused>,
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is none of ours.
    Left,
    /// Done, and this is the version of the pod since, if that is known.
    Done(Option<u64>),
    Failed(Option<Refused>),
}

/// Whether anybody answers is asked for all pods of a namespace together.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) namespace: String,
    pub(super) account: Option<String>,
}

#[derive(Debug)]
struct Known {
    /// As it was seen last.
    pod: Arc<AnyPod>,
    is_tried: bool,
    /// The version that we have written. The watch may show older ones for a while.
    written: Option<u64>,
    failures: u32,
    not_before: Instant,
    refused: Option<Refused>,
    /// Who had made it when its label was taken off.
    unlabelled_of: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// By UID.
    pods: BTreeMap<String, Known>,
    /// When it was asked in a namespace; nothing while it is being asked.
    asked: BTreeMap<String, Option<Instant>>,
    /// UIDs of those who know their pods by the label: without it they make others.
    by_label: BTreeSet<String>,
    /// What a watch that begins has shown up to now.
    listed: Option<BTreeSet<String>>,
}

impl Memory {
    pub(super) fn begin_list(&mut self) {
        self.listed = Some(BTreeSet::new());
    }

    /// What was not listed is gone.
    pub(super) fn end_list(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.pods.retain(|uid, _| listed.contains(uid));
        }
    }

    pub(super) fn forget(&mut self, pod: &AnyPod) {
        self.pods.remove(&pod.uid().unwrap_or_default());
    }

    /// A pod as the watch shows it.
    pub(super) fn see(&mut self, pod: AnyPod, now: Instant) -> Option<Try> {
        let uid = pod.uid().unwrap_or_default();
        if let Some(listed) = &mut self.listed {
            listed.insert(uid.clone());
        }
        self.note_release(&uid, &pod);
        if !has_slipped(&pod) {
            self.pods.remove(&uid);
            return None;
        }
        let pod = Arc::new(pod);
        let known = self.pods.entry(uid.clone()).or_insert_with(|| Known {
            pod: Arc::clone(&pod),
            is_tried: false,
            written: None,
            failures: 0,
            not_before: now,
            refused: None,
            unlabelled_of: None,
        });
        known.pod = pod;
        self.next(&uid, now)
    }

    /// The API server tells of a release before it tells of the pod that is made instead, so
    /// that no more pods come of this than there were.
    fn note_release(&mut self, uid: &str, pod: &AnyPod) {
        let known = self.pods.get_mut(uid);
        let was_of = known.and_then(|known| {
            let is_free = chooser(pod).is_none();
            known.unlabelled_of.take_if(|_| is_free)
        });
        self.by_label.extend(was_of);
    }

    /// What is to be done about a pod, if anything, and if it is time for it. Stopping it
    /// waits for nobody.
    fn next(&mut self, uid: &str, now: Instant) -> Option<Try> {
        let known = self.pods.get(uid)?;
        let is_behind = known.written.is_some() && version(&*known.pod) < known.written;
        if known.is_tried || is_behind || now < known.not_before {
            return None;
        }
        match course(&known.pod, false) {
            // Of those that are stopped the kubelet keeps telling.
            Course::Leave => {
                if maker(&known.pod).is_none() {
                    self.pods.remove(uid);
                }
                None
            }
            course => self.begin(uid, course),
        }
    }

    fn begin(&mut self, uid: &str, course: Course) -> Option<Try> {
        let known = self.pods.get_mut(uid)?;
        let maker = chooser(&known.pod);
        let keeps_label = maker.is_some_and(|uid| self.by_label.contains(uid));
        let course = match course {
            Course::StopUnlabelled if keeps_label => Course::Stop,
            course => course,
        };
        if course == Course::StopUnlabelled {
            known.unlabelled_of = maker.map(str::to_owned);
        }
        known.is_tried = true;
        Some(Try {
            uid: uid.to_owned(),
            pod: Arc::clone(&known.pod),
            is_quick: known.failures == 0 && !is_guarded(&known.pod, &course),
            course,
            refused: known.refused.clone(),
        })
    }

    /// Something was tried; returns what is to be done next about that pod.
    pub(super) fn ended(&mut self, uid: &str, outcome: Outcome, now: Instant) -> Option<Try> {
        let known = self.pods.get_mut(uid)?;
        known.is_tried = false;
        match outcome {
            Outcome::Left => {
                self.pods.remove(uid);
                return None;
            }
            Outcome::Done(version) => {
                known.failures = 0;
                known.refused = None;
                known.written = version.or(known.written);
                if version.is_none() {
                    known.not_before = now + FIRST;
                }
            }
            Outcome::Failed(refused) => {
                known.not_before = now + pause(known.failures);
                known.failures = known.failures.saturating_add(1);
                known.refused = refused.or(known.refused.take());
            }
        }
        self.next(uid, now)
    }

    /// What is to be tried again by now.
    pub(super) fn due(&mut self, now: Instant) -> Vec<Try> {
        let uids: Vec<_> = self.pods.keys().cloned().collect();
        uids.iter().filter_map(|uid| self.next(uid, now)).collect()
    }

    /// Where it is to be asked now whether anybody answers.
    pub(super) fn questions(&mut self, now: Instant) -> Vec<Question> {
        let is_recent = |at: &Option<Instant>| at.is_none_or(|at| now < at + AGAIN);
        self.asked.retain(|_, at| is_recent(at));
        let mut questions = Vec::new();
        for known in self.pods.values().filter(|known| known.awaits_answers()) {
            let namespace = Key::of(&*known.pod).namespace;
            if !self.asked.contains_key(&namespace) {
                self.asked.insert(namespace.clone(), None);
                let account = known.pod.spec.service_account_name.clone();
                questions.push(Question { namespace, account });
            }
        }
        questions
    }

    /// The answer to a question.
    pub(super) fn answered(&mut self, namespace: &str, answers: bool, now: Instant) -> Vec<Try> {
        self.asked.insert(namespace.to_owned(), Some(now));
        let pods = self.pods.iter().filter(|(_, known)| {
            answers && known.awaits_answers() && Key::of(&*known.pod).namespace == namespace
        });
        let courses: Vec<_> = pods
            .map(|(uid, known)| (uid.clone(), course(&known.pod, true)))
            .collect();
        courses
            .into_iter()
            .filter_map(|(uid, course)| self.begin(&uid, course))
            .collect()
    }
}

impl Known {
    /// It is stopped, or cannot be, and would be made anew.
    fn awaits_answers(&self) -> bool {
        let is_tried_out = is_stopped(&self.pod) || self.failures > 0;
        is_tried_out && !self.is_tried && maker(&self.pod).is_some()
    }
}

/// API servers count versions up.
pub(super) fn version(object: &impl ResourceExt) -> Option<u64> {
    object.resource_version()?.parse().ok()
}

fn pause(failures: u32) -> Duration {
    let pause = FIRST * 2_u32.saturating_pow(failures.min(16));
    pause.min(LONGEST)
}

#[cfg(test)]
#[path = "memory/tests.rs"]
mod tests;
