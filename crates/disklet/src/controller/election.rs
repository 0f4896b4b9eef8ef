//! Who of several controllers works: the one that holds a Lease.
//!
//! Nobody compares clocks of two machines. The holder renews the Lease and stops
//! when it could not for two thirds of its time; the others take it when they
//! have not seen it change for nearly all of that time, by their own clocks.

use std::fmt;
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
    is_gone: bool,
}

impl Observed {
    fn step(&mut self, lease: Option<&Lease>, me: &str, times: Times, now: Instant) -> Step {
        self.is_gone = lease.is_none();
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

/// Why the holder must not work any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Another controller has taken it.
    Taken(String),
    /// Somebody has deleted it, and it could not be made again for so long, for this reason.
    Gone(Duration, String),
    /// It could not be renewed for so long, at last for this reason.
    NotRenewed(Duration, String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, since, why) = match self {
            Self::Taken(holder) => {
                return write!(f, "the Lease is lost: another controller works, {holder}");
            }
            Self::Gone(since, why) => ("is gone, and could not be made again", since, why),
            Self::NotRenewed(since, why) => ("could not be renewed", since, why),
        };
        let since = since.as_secs_f32();
        write!(
            f,
            "the Lease {what} for {since:.0} s: {why}; another controller may work now"
        )
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

    /// Renews the Lease; returns when it is lost, and why.
    pub(super) async fn keep(&self) -> Lost {
        let mut renewed = Instant::now();
        let mut observed = Observed::default();
        let mut failed = None;
        loop {
            sleep(self.times.beat()).await;
            let began = Instant::now();
            let rest = self.times.give_up().saturating_sub(renewed.elapsed());
            observed.is_gone = false;
            let why = match self.try_once(&mut observed, rest).await {
                Ok(Held::ByUs) => {
                    (renewed, failed) = (began, None);
                    continue;
                }
                Ok(Held::By(holder)) => return Lost::Taken(holder),
                Err(why) => why,
            };
            warn!(error = why, "the Lease {} cannot be renewed", self.place());
            // At the end there is no time for an answer: what was said before tells more.
            let (is_gone, why) = match failed {
                Some(before) if rest < self.times.beat() => before,
                _ => (observed.is_gone, why),
            };
            let since = renewed.elapsed();
            if since >= self.times.give_up() {
                return match is_gone {
                    true => Lost::Gone(since, why),
                    false => Lost::NotRenewed(since, why),
                };
            }
            failed = Some((is_gone, why));
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

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

    /// An API server that says the same to each request of a kind; without words it says
    /// nothing.
    async fn server(answers: Vec<(&'static str, &'static str)>) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 8192];
                let length = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let answer = answers.iter().find(|(kind, _)| request.starts_with(kind));
                let Some((_, answer)) = answer else {
                    silent.push(stream);
                    continue;
                };
                let (status, body) = answer.split_once(' ').unwrap();
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                );
                let _ = stream.write_all((head + body).as_bytes()).await;
            }
        });
        Client::try_from(kube::Config::new(uri.parse().unwrap())).unwrap()
    }

    async fn lost(answers: Vec<(&'static str, &'static str)>) -> Lost {
        let times = Times::of(Duration::from_millis(2400));
        let election = Election::new(
            server(answers).await,
            "disklet",
            "it",
            "me".to_owned(),
            times,
        );
        timeout(times.lease * 4, election.keep()).await.unwrap()
    }

    #[tokio::test]
    async fn it_is_said_why_a_lease_is_lost() {
        let taken = r#"200 {"metadata": {"name": "it", "resourceVersion": "1"}, "spec": {"holderIdentity": "other"}}"#;
        assert_eq!(
            lost(vec![("GET", taken)]).await,
            Lost::Taken("other".to_owned())
        );
        let missing = r#"404 {"kind": "Status", "status": "Failure", "message": "none", "reason": "NotFound", "code": 404}"#;
        let forbidden = r#"403 {"kind": "Status", "status": "Failure", "message": "the namespace goes", "reason": "Forbidden", "code": 403}"#;
        let gone = lost(vec![("GET", missing), ("POST", forbidden)]).await;
        assert!(matches!(gone, Lost::Gone(..)), "{gone}");
        assert!(gone.to_string().contains("the namespace goes"), "{gone}");
        let silent = lost(Vec::new()).await;
        assert!(matches!(silent, Lost::NotRenewed(..)), "{silent}");
        assert!(silent.to_string().contains("does not answer"), "{silent}");
    }

    #[test]
    fn nobody_is_said_to_work_who_may_not() {
        let since = Duration::from_secs(10);
        let why = || "the API server does not answer".to_owned();
        for (lost, wanted) in [
            (
                Lost::Taken("b_1".to_owned()),
                "the Lease is lost: another controller works, b_1",
            ),
            (
                Lost::Gone(since, why()),
                "the Lease is gone, and could not be made again for 10 s: the API server does not answer; another controller may work now",
            ),
            (
                Lost::NotRenewed(since, why()),
                "the Lease could not be renewed for 10 s: the API server does not answer; another controller may work now",
            ),
        ] {
            assert_eq!(lost.to_string(), wanted);
        }
    }
}
