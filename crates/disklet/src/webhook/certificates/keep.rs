//! Keeps Secret, webhook configuration and what is served in step.
//!
//! All replicas do the same, and none waits for another: a new generation is
//! written by compare-and-swap, and who comes second takes the first one's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use disklet::cluster::client::ANSWER_WITHIN;
use disklet::cluster::names;
use disklet::report::with_causes;

use super::make::make;
use super::served::Served;
use super::state::{Certificates, Generation};

/// Under which key of the Secret they are.
const KEY: &str = "certificates.json";
/// After a failure it is tried again, but nobody is pressed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The configurations that are told the authorities; both have one name.
const KINDS: [&str; 2] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
];

fn resource(kind: &str) -> ApiResource {
    let plural = kind.to_lowercase() + "s";
    let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    ApiResource::from_gvk_with_plural(&kind, &plural)
}

/// Where certificates are kept and told, and for what they are.
#[derive(Debug, Clone)]
pub(in crate::webhook) struct Place {
    pub(in crate::webhook) namespace: String,
    pub(in crate::webhook) secret: String,
    pub(in crate::webhook) configuration: String,
    pub(in crate::webhook) hosts: Vec<String>,
    pub(in crate::webhook) life: Duration,
}

/// One replica's part.
pub(in crate::webhook) struct Keeper {
    secrets: Api<Secret>,
    configurations: [Api<DynamicObject>; 2],
    place: Place,
    served: Arc<Served>,
    /// What is served, by when it was made, and until when it holds.
    serving: Option<Generation>,
    /// Since when the API server has each authority, by our own clock.
    told: HashMap<String, Instant>,
}

/// Why something was not done.
#[derive(Debug)]
enum Failure {
    /// Somebody else was faster; looking again is enough.
    Outdated,
    Api(&'static str, kube::Error),
    Other(String),
}

impl Keeper {
    pub(in crate::webhook) fn new(client: &Client, place: Place, served: Arc<Served>) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), &place.namespace),
            configurations: KINDS.map(|kind| Api::all_with(client.clone(), &resource(kind))),
            place,
            served,
            serving: None,
            told: HashMap::new(),
        }
    }

    /// Keeps them in step until the program ends; `serving` is told until when the
    /// served certificate holds.
    pub(in crate::webhook) async fn forever(mut self, serving: impl Fn(u64)) {
        loop {
            let wait = match timeout(ANSWER_WITHIN, self.step()).await {
                Ok(Ok(())) => self.interval(),
                Ok(Err(Failure::Outdated)) => Duration::from_millis(100),
                Ok(Err(failure)) => {
                    self.complain(&failure);
                    AFTER_FAILURE.min(self.interval())
                }
                Err(_) => {
                    warn!("the API server does not answer about certificates");
                    AFTER_FAILURE.min(self.interval())
                }
            };
            if let Some(generation) = &self.serving {
                serving(generation.not_after);
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// How often it is looked.
    fn interval(&self) -> Duration {
        (self.place.life / 60).clamp(Duration::from_secs(1), Duration::from_secs(60))
    }

    /// How long API servers may take to learn of a new authority.
    fn settling(&self) -> Duration {
        (self.place.life / 10).min(Duration::from_secs(30))
    }

    fn complain(&self, failure: &Failure) {
        let place = &self.place;
        match failure {
            Failure::Outdated => {}
            Failure::Api(what, why) => {
                let why = with_causes(why);
                error!(
                    why,
                    "webhook certificates: {what} of {}/{}", place.namespace, place.secret
                );
            }
            Failure::Other(why) => error!(why, "webhook certificates"),
        }
    }

    async fn step(&mut self) -> Result<(), Failure> {
        // Looked at before the Secret: whoever tells of newer certificates after this
        // has changed its version, and what follows here is then refused.
        let mut found = Vec::new();
        for (kind, api) in KINDS.into_iter().zip(&self.configurations) {
            let configuration = api.get_opt(&self.place.configuration).await;
            let configuration =
                configuration.map_err(|error| Failure::Api("the configuration", error))?;
            // Nobody calls for one that is not there, so nobody has to believe anything.
            found.extend(configuration.map(|it| (kind, api.clone(), it)));
        }
        let certificates = self.certificates().await?;
        for (kind, api, configuration) in &found {
            self.tell(kind, api, configuration, &certificates).await?;
        }
        if !found.is_empty() {
            self.note_told(&certificates);
        }
        self.serve(&certificates)
    }

    /// Those of the Secret, with a new generation if it is time.
    async fn certificates(&self) -> Result<Certificates, Failure> {
        let secret = self.secrets.get_opt(&self.place.secret).await;
        let secret = secret.map_err(|error| Failure::Api("the Secret", error))?;
        let now = now();
        let found = secret.as_ref().and_then(stored).unwrap_or_default();
        let Some(hosts) = found.wanted(&self.place.hosts, now) else {
            return Ok(found);
        };
        let new = make(&hosts, now, self.place.life);
        let new = new.map_err(|error| Failure::Other(error.to_string()))?;
        let certificates = found.with(new, now);
        self.write(secret, &certificates).await?;
        info!(?hosts, "a new webhook certificate is made");
        Ok(certificates)
    }

    /// Only if nobody has changed it meanwhile.
    async fn write(
        &self,
        secret: Option<Secret>,
        certificates: &Certificates,
    ) -> Result<(), Failure> {
        let how = PostParams::default();
        let data = [(KEY.to_owned(), ByteString(certificates.to_text()))];
        let written = match secret {
            Some(mut secret) => {
                secret.data = Some(data.into());
                self.secrets
                    .replace(&self.place.secret, &how, &secret)
                    .await
            }
            None => {
                let secret = Secret {
                    metadata: ObjectMeta {
                        name: Some(self.place.secret.clone()),
                        labels: Some([("app.kubernetes.io/part-of", "disklet")].map(owned).into()),
                        ..ObjectMeta::default()
                    },
                    data: Some(data.into()),
                    ..Secret::default()
                };
                self.secrets.create(&how, &secret).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => Err(Failure::Outdated),
            Err(error) => Err(Failure::Api("writing the Secret", error)),
        }
    }

    /// Has the API servers believe all that is or will be served.
    async fn tell(
        &self,
        kind: &str,
        api: &Api<DynamicObject>,
        configuration: &DynamicObject,
        certificates: &Certificates,
    ) -> Result<(), Failure> {
        let encoded = BASE64_STANDARD.encode(certificates.bundle());
        let webhooks = configuration.data["webhooks"].as_array();
        let webhooks = webhooks.map(Vec::as_slice).unwrap_or_default();
        let knows = |webhook: &Value| webhook["clientConfig"]["caBundle"] == encoded;
        if webhooks.iter().all(knows) {
            return Ok(());
        }
        let webhooks = webhooks
            .iter()
            .map(|webhook| json!({"name": webhook["name"], "clientConfig": {"caBundle": encoded}}));
        let patch = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {
                "name": self.place.configuration,
                "resourceVersion": configuration.metadata.resource_version,
                "uid": configuration.metadata.uid,
            },
            "webhooks": webhooks.collect::<Vec<_>>(),
        });
        let how = PatchParams::apply(names::CONTROLLER).force();
        let name = &self.place.configuration;
        match api.patch(name, &how, &Patch::Apply(&patch)).await {
            Ok(_) => {
                info!(kind, "the API server is told the webhook's authorities");
                Ok(())
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                Err(Failure::Outdated)
            }
            Err(error) => Err(Failure::Api("telling the authorities", error)),
        }
    }

    /// Since when all of them have been told.
    fn note_told(&mut self, certificates: &Certificates) {
        let known = certificates.generations().iter();
        let known: HashMap<_, _> = known
            .map(|it| {
                let since = self.told.get(&it.authority).copied();
                (it.authority.clone(), since.unwrap_or_else(Instant::now))
            })
            .collect();
        self.told = known;
    }

    fn serve(&mut self, certificates: &Certificates) -> Result<(), Failure> {
        let settling = self.settling();
        let is_settled = |generation: &Generation| {
            let since = self.told.get(&generation.authority);
            since.is_some_and(|since| since.elapsed() >= settling)
        };
        let chosen = certificates.to_serve(now(), is_settled);
        let Some(chosen) = chosen.filter(|it| Some(*it) != self.serving.as_ref()) else {
            return Ok(());
        };
        let unusable = |why| Failure::Other(format!("a certificate cannot be used: {why}"));
        self.served.exchange(chosen).map_err(unusable)?;
        info!(
            made = chosen.made,
            until = chosen.not_after,
            "serving a webhook certificate"
        );
        self.serving = Some(chosen.clone());
        Ok(())
    }
}

/// What cannot be read is as good as nothing: it is replaced.
fn stored(secret: &Secret) -> Option<Certificates> {
    let text = secret.data.as_ref()?.get(KEY)?;
    match Certificates::parse(&text.0) {
        Ok(certificates) => Some(certificates),
        Err(why) => {
            warn!(
                why,
                "the Secret with webhook certificates cannot be used; it is written anew"
            );
            None
        }
    }
}

fn owned((key, value): (&str, &str)) -> (String, String) {
    (key.to_owned(), value.to_owned())
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
