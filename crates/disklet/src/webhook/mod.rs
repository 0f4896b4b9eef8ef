//! The webhooks: VM objects and VM pods that cannot be run are refused when they
//! are written, with the words that a plan would use; a VM pod's launcher takes its
//! place.
//!
//! ```text
//!   API server --HTTPS--> serve --> review (AdmissionReview in, answer out) --> judge (core)
//!                           ^                          \--> pods --> launcher (core)
//!   Secret <--CAS--> certificates --> caBundle of the webhook configuration
//! ```

mod abundance;
mod certificates;
mod claims;
mod judge;
mod pods;
mod review;
mod serve;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use disklet::cluster::health::Health;
use disklet_core::launch::pod::Settings;

use certificates::{Keeper, Place, Served};
pub(crate) use judge::judge;
pub(crate) use pods::{ASKED, ASKS};
pub(crate) use review::THE_CLUSTERS;
use serve::Server;

/// Where VM objects are judged.
const VALIDATE: &str = "/validate";
/// Where launchers take the place of VM pods.
const MUTATE: &str = "/mutate";

/// What the webhook counts.
pub(crate) trait Counts: Send + Sync + 'static {
    /// A request, what became of it, and how long that took.
    fn answered(&self, outcome: &'static str, took: Duration);
    /// Until when the served certificate holds, in seconds since 1970.
    fn serving_until(&self, when: u64);
}

/// Options of the webhook.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct WebhookArgs {
    /// Where VM objects are judged when they are written, by HTTPS; nowhere if
    /// this is absent
    #[arg(long, value_name = "ADDRESS")]
    webhook_listen: Option<SocketAddr>,

    /// How API servers call it; may be given several times
    /// [default: disklet-webhook.NAMESPACE.svc]
    #[arg(long, value_name = "HOST", requires = "webhook_listen")]
    webhook_host: Vec<String>,

    /// The webhook configurations, validating and mutating, that are told the
    /// webhook's authority
    #[arg(long, value_name = "NAME", default_value = NAME)]
    webhook_configuration: String,

    /// How long its certificates hold; they are replaced when a third of that
    /// is left
    #[arg(long, value_name = "SECONDS", default_value_t = 90 * 24 * 3600, value_parser = clap::value_parser!(u64).range(10..=10 * 365 * 24 * 3600))]
    webhook_certificate_life: u64,
}

impl WebhookArgs {
    /// The name of the webhook configurations.
    pub(crate) fn configuration(&self) -> &str {
        &self.webhook_configuration
    }
}

/// The Service's, the Secret's and the configuration's name.
const NAME: &str = "disklet-webhook";

/// A webhook that serves.
pub(crate) struct Webhook {
    ending: watch::Sender<bool>,
    served: JoinHandle<()>,
}

impl Webhook {
    /// Begins to serve, if that is wanted. The program is not ready before it has
    /// a certificate.
    pub(crate) async fn begin<C: Counts>(
        args: &WebhookArgs,
        namespace: &str,
        client: &Client,
        launcher: Settings,
        health: &Arc<Health>,
        counts: &Arc<C>,
    ) -> Result<Option<Self>, String> {
        let Some(address) = args.webhook_listen else {
            return Ok(None);
        };
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| {
            format!("cannot listen at {address}: {error}; use --webhook-listen")
        })?;
        let served = Arc::new(Served::default());
        let tls = certificates::tls(Arc::clone(&served));
        let tls = tls.map_err(|error| format!("no TLS: {error}"))?;
        let keeper = Keeper::new(client, args.place(namespace), served);
        tokio::spawn(keep(keeper, health.hold(), Arc::clone(counts)));
        let (ending, told) = watch::channel(false);
        let server = Server {
            tls: TlsAcceptor::from(Arc::new(tls)),
            counts: Arc::clone(counts),
            launcher,
            client: Some(client.clone()),
        };
        let served = tokio::spawn(server.serve(listener, told));
        Ok(Some(Self { ending, served }))
    }

    /// Lets those that still come be answered.
    pub(crate) async fn end(self) {
        let _ = self.ending.send(true);
        let _ = self.served.await;
    }
}

async fn keep<C: Counts>(keeper: Keeper, hold: disklet::cluster::health::Hold, counts: Arc<C>) {
    let hold = std::sync::Mutex::new(Some(hold));
    let serving = |until| {
        counts.serving_until(until);
        if let Ok(mut hold) = hold.lock() {
            hold.take();
        }
    };
    keeper.forever(serving).await;
}

impl WebhookArgs {
    fn place(&self, namespace: &str) -> Place {
        let hosts = match self.webhook_host.is_empty() {
            true => vec![format!("{NAME}.{namespace}.svc")],
            false => self.webhook_host.clone(),
        };
        Place {
            namespace: namespace.to_owned(),
            secret: NAME.to_owned(),
            configuration: self.webhook_configuration.clone(),
            hosts,
            life: Duration::from_secs(self.webhook_certificate_life),
        }
    }
}
