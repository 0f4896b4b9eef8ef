//! Who of several controllers works: the one that holds a Lease.
//!
//! Nobody compares clocks of two machines. The holder renews the Lease and stops
//! when it could not for two thirds of its time; the others take it when they
//! have not seen it change for nearly all of that time, by their own clocks.

use std::time::Duration;

use disklet::cluster::client::ANSWER_WITHIN;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

/// The times of a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    lease: Duration,
}

impl Times {
    pub(super) fn of(lease: Duration) -> Self {
        Self { lease }
    }

    /// How often the holder renews it, and the others look.
    fn beat(self) -> Duration {
        self.lease / 8
    }

    /// The holder gives up when it could not renew it for so long.
    fn give_up(self) -> Duration {
        self.lease * 2 / 3
    }

    /// The others take it when they have not seen it change for so long. It is
    /// later than the holder gives up, and together with the last look it is no
    /// longer than the Lease.
    fn take_over(self) -> Duration {
        self.lease - self.beat()
    }
}

/// What is to be done with a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Create,
    Take,
    Renew,
    Wait,
}

/// What was seen of the Lease, and since when it is so.
#[derive(Debug, Default)]
struct Observed {
    version: Option<String>,
    since: Option<Instant>,
}

impl Observed {
    fn step(&mut self, lease: Option<&Lease>, me: &str, times: Times, now: Instant) -> Step {
        let Some(lease) = lease else {
            return Step::Create;
        };
        if lease.metadata.resource_version != self.version || self.since.is_none() {
            self.version.clone_from(&lease.metadata.resource_version);
            self.since = Some(now);
        }
        let holder = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.holder_identity.as_deref());
        let unchanged = self.since.map_or(Duration::ZERO, |since| now - since);
        match holder.unwrap_or_default() {
            holder if holder == me => Step::Renew,
            "" => Step::Take,
            _ if unchanged >= times.take_over() => Step::Take,
            _ => Step::Wait,
        }
    }
}

/// A candidate.
pub(super) struct Election {
    leases: Api<Lease>,
    name: String,
    namespace: String,
    me: String,
    times: Times,
}

impl Election {
    pub(super) fn new(
        client: Client,
        namespace: &str,
        name: &str,
        me: String,
        times: Times,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            me,
            times,
        }
    }

    /// Returns when the Lease is ours; `seen` is called whenever the API server
    /// has answered.
    pub(super) async fn win(&self, seen: impl Fn()) {
        let mut observed = Observed::default();
        let mut told: Option<String> = None;
        loop {
            match self.try_once(&mut observed, self.times.give_up()).await {
                Ok(Held::ByUs) => return,
                Ok(Held::By(holder)) => {
                    seen();
                    if told.as_ref() != Some(&holder) {
                        info!(holder, "another controller works; waiting");
                        told = Some(holder);
                    }
                }
                Err(error) => warn!(error, "the Lease {} cannot be had", self.place()),
            }
            sleep(self.times.beat()).await;
        }
    }

    /// Renews the Lease; returns when it is lost.
    pub(super) async fn keep(&self) {
        let mut renewed = Instant::now();
        let mut observed = Observed::default();
        loop {
            sleep(self.times.beat()).await;
            let began = Instant::now();
            let rest = self.times.give_up().saturating_sub(renewed.elapsed());
            match self.try_once(&mut observed, rest).await {
                Ok(Held::ByUs) => renewed = began,
                Ok(Held::By(holder)) => {
                    warn!(holder, "another controller has taken the Lease");
                    return;
                }
                Err(error) => warn!(error, "the Lease {} cannot be renewed", self.place()),
            }
            if renewed.elapsed() >= self.times.give_up() {
                return;
            }
        }
    }

    /// Lets another controller begin at once.
    pub(super) async fn release(&self) {
        let freed = async {
            let mut lease = self.leases.get(&self.name).await?;
            let spec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() == Some(self.me.as_str()) {
                spec.holder_identity = None;
                self.replace(&lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        match timeout(self.times.give_up(), freed).await {
            Ok(Ok(())) => info!("the Lease is released"),
            Ok(Err(error)) => warn!(%error, "the Lease was not released; it runs out"),
            Err(_) => warn!("the Lease was not released in time; it runs out"),
        }
    }

    fn place(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    async fn try_once(&self, observed: &mut Observed, patience: Duration) -> Result<Held, String> {
        let patience = patience.min(ANSWER_WITHIN);
        match timeout(patience, self.look_and_act(observed)).await {
            Ok(Ok(held)) => Ok(held),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the API server does not answer".to_owned()),
        }
    }

    async fn look_and_act(&self, observed: &mut Observed) -> Result<Held, kube::Error> {
        let lease = self.leases.get_opt(&self.name).await?;
        let step = observed.step(lease.as_ref(), &self.me, self.times, Instant::now());
        let now = Timestamp::now();
        match (step, lease) {
            (Step::Wait, Some(lease)) => {
                let holder = lease.spec.and_then(|spec| spec.holder_identity);
                return Ok(Held::By(holder.unwrap_or_default()));
            }
            (Step::Take | Step::Renew, Some(mut lease)) => {
                let spec = lease.spec.get_or_insert_default();
                if step == Step::Take {
                    spec.lease_transitions =
                        Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
                    spec.acquire_time = Some(MicroTime(now));
                }
                self.hold(spec, now);
                self.replace(&lease).await?;
            }
            (_, _) => self.create(now).await?,
        }
        Ok(Held::ByUs)
    }

    /// With the version that was seen, so that only one of two succeeds.
    async fn replace(&self, lease: &Lease) -> Result<(), kube::Error> {
        self.leases
            .replace(&self.name, &PostParams::default(), lease)
            .await?;
        Ok(())
    }

    async fn create(&self, now: Timestamp) -> Result<(), kube::Error> {
        let mut spec = LeaseSpec {
            acquire_time: Some(MicroTime(now)),
            lease_transitions: Some(0),
            ..LeaseSpec::default()
        };
        self.hold(&mut spec, now);
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(spec),
        };
        self.leases.create(&PostParams::default(), &lease).await?;
        Ok(())
    }

    fn hold(&self, spec: &mut LeaseSpec, now: Timestamp) {
        spec.holder_identity = Some(self.me.clone());
        spec.renew_time = Some(MicroTime(now));
        spec.lease_duration_seconds = i32::try_from(self.times.lease.as_secs()).ok();
    }
}

enum Held {
    ByUs,
    By(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        lease: Duration::from_secs(15),
    };

    fn lease(version: &str, holder: Option<&str>) -> Lease {
        Lease {
            metadata: ObjectMeta {
                resource_version: Some(version.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: holder.map(str::to_owned),
                ..LeaseSpec::default()
            }),
        }
    }

    #[test]
    fn a_dead_holder_is_followed_within_its_time_and_a_living_one_has_given_up_before() {
        for seconds in [3, 15, 60] {
            let times = Times::of(Duration::from_secs(seconds));
            assert!(times.take_over() + times.beat() <= times.lease);
            // It has noticed at most a beat later that it must.
            assert!(times.give_up() + times.beat() < times.take_over() + times.beat());
        }
    }

    #[test]
    fn a_lease_is_taken_when_it_stands_still() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut observed = Observed::default();
        let mut step =
            |lease: Option<&Lease>, seconds| observed.step(lease, "me", TIMES, after(seconds));
        assert_eq!(step(None, 0), Step::Create);
        let theirs = lease("1", Some("other"));
        assert_eq!(step(Some(&theirs), 0), Step::Wait);
        assert_eq!(step(Some(&theirs), 12), Step::Wait);
        // It was renewed, so the time begins again.
        let renewed = lease("2", Some("other"));
        assert_eq!(step(Some(&renewed), 13), Step::Wait);
        assert_eq!(step(Some(&renewed), 25), Step::Wait);
        assert_eq!(step(Some(&renewed), 27), Step::Take);
    }

    #[test]
    fn a_released_lease_is_taken_at_once_and_our_own_renewed() {
        let mut observed = Observed::default();
        let now = Instant::now();
        for holder in [None, Some("")] {
            let free = lease("1", holder);
            assert_eq!(observed.step(Some(&free), "me", TIMES, now), Step::Take);
        }
        let ours = lease("2", Some("me"));
        assert_eq!(observed.step(Some(&ours), "me", TIMES, now), Step::Renew);
    }
}
