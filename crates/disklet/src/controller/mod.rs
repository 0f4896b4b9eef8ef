//! `disklet controller`: makes the launcher pods of VM objects.
//!
//! ```text
//!   watches --> caches --> gather --> decide (pure) --> act --> API server
//!                 \-- whom a change concerns --> queue --^
//! ```

mod act;
mod context;
mod decide;
mod election;
mod fresh;
mod gather;
mod index;
mod launcher;
mod leases;
mod mappings;
mod metrics;
mod objects;
mod patience;
mod read;
mod reconcile;
mod seen;
mod slipped;
mod status;
mod strangers;
mod vm_pods;
mod watch;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args as ClapArgs;
use futures::channel::mpsc::unbounded;
use kube::Client;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use disklet::cluster::events::Teller;
use disklet::cluster::health::{self, Health};
use disklet::cluster::{client, logs, names};

use context::Context;
use election::{Election, Times};
use launcher::LauncherArgs;
use metrics::Metrics;
use watch::{Caches, Queues};

use crate::webhook::{Webhook, WebhookArgs};

/// Make the launcher pods of VM objects, in a cluster, and judge these objects
///
/// Watches VM objects and what they refer to, and makes, deletes and replaces
/// the pods that run them. Of several controllers one works at a time. All of
/// them answer the API server, which asks about each VM object that is written
/// (--webhook-listen). The kubeconfig says which cluster (KUBECONFIG, ~/.kube/config); inside a pod its
/// service account does.
#[derive(Debug, ClapArgs)]
pub(crate) struct ControllerArgs {
    #[command(flatten)]
    launcher: LauncherArgs,

    #[command(flatten)]
    webhook: WebhookArgs,

    /// Namespace of the Lease by which one controller is chosen
    #[arg(long, env = "POD_NAMESPACE", default_value = "disklet")]
    namespace: String,

    /// How long a controller that has died keeps others from working
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=600))]
    lease_seconds: u64,

    /// Where /healthz, /readyz and /metrics are served
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,

    /// How to write the log; DISKLET_LOG chooses what
    #[arg(long, value_enum, default_value_t = logs::LogFormat::Json)]
    log_format: logs::LogFormat,
}

/// The Lease's name.
const LEASE: &str = "disklet-controller";

pub(crate) fn run(args: &ControllerArgs) -> ExitCode {
    logs::begin(args.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(control(args)),
        Err(error) => Err(format!("no threads: {error}")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            error!("{why}");
            let _ = writeln!(std::io::stderr(), "error: {why}");
            ExitCode::from(1)
        }
    }
}

/// Works until it is told to end, or until it must not work any more.
async fn control(args: &ControllerArgs) -> Result<(), String> {
    let client = client::connect(names::CONTROLLER).await;
    let client = client.map_err(|trouble| {
        let remedy = trouble.remedy().unwrap_or("set KUBECONFIG");
        format!("cannot reach a cluster: {trouble}; {remedy}")
    })?;
    let vms = Arc::new(OnceLock::new());
    let (metrics, registry) = Metrics::new(Arc::clone(&vms));
    let metrics = Arc::new(metrics);
    let health = Health::new(registry);
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener
        .map_err(|error| format!("cannot listen at {}: {error}; use --listen", args.listen))?;
    tokio::spawn(health::serve(listener, Arc::clone(&health)));
    let webhook = Webhook::begin(
        &args.webhook,
        &args.namespace,
        &client,
        args.launcher.settings(),
        &health,
        &metrics,
    );
    let webhook = webhook.await?;

    let ended = lead(args, client, vms, &metrics, &health).await;
    if let (Ok(()), Some(webhook)) = (&ended, webhook) {
        webhook.end().await;
    }
    ended
}

/// Waits to be the one that works, and works.
async fn lead(
    args: &ControllerArgs,
    client: Client,
    vms: Arc<OnceLock<kube::runtime::reflector::Store<objects::Vm>>>,
    metrics: &Arc<Metrics>,
    health: &Arc<Health>,
) -> Result<(), String> {
    let me = identity();
    let times = Times::of(Duration::from_secs(args.lease_seconds));
    let election = Election::new(client.clone(), &args.namespace, LEASE, me.clone(), times);
    let told_to_end = told_to_end()?;
    tokio::pin!(told_to_end);
    info!(me, "waiting to be the one that works");
    tokio::select! {
        () = election.win(|| health.set_ready(true)) => {}
        () = &mut told_to_end => return Ok(()),
    }
    info!(me, "working");
    metrics.leads(true);
    let (queues, vm_queue, claim_queue) = queues();
    let caches = watch::begin(&client, &queues, metrics);
    let _ = vms.set(caches.vms.clone());
    let context = Arc::new(context(args, client, caches, queues, metrics));
    let ended = tokio::select! {
        () = reconcile::forever(&context, vm_queue, claim_queue, health) => {
            Err("the watches have ended".to_owned())
        }
        () = vm_pods::forever(&context, &args.namespace) => Err("the watches have ended".to_owned()),
        () = slipped::forever(&context, args.webhook.configuration()) => {
            Err("the watch of pods has ended".to_owned())
        }
        () = mappings::forever(&context.client, &args.namespace) => Ok(()),
        () = leases::forever(&context.client, &args.namespace, &context.caches) => {
            Err("the watch of leases has ended".to_owned())
        }
        lost = election.keep() => Err(lost.to_string()),
        () = &mut told_to_end => Ok(()),
    };
    metrics.leads(false);
    if ended.is_ok() {
        election.release().await;
    }
    ended
}

type VmQueue =
    futures::channel::mpsc::UnboundedReceiver<kube::runtime::reflector::ObjectRef<objects::Vm>>;
type ClaimQueue = futures::channel::mpsc::UnboundedReceiver<
    kube::runtime::reflector::ObjectRef<objects::ClaimObject>,
>;

fn queues() -> (Queues, VmQueue, ClaimQueue) {
    let (vms, vm_queue) = unbounded();
    let (claims, claim_queue) = unbounded();
    (Queues { vms, claims }, vm_queue, claim_queue)
}

fn context(
    args: &ControllerArgs,
    client: Client,
    caches: Caches,
    queues: Queues,
    metrics: &Arc<Metrics>,
) -> Context {
    Context {
        teller: Teller::new(client.clone(), names::CONTROLLER, None),
        client,
        caches,
        queues,
        metrics: Arc::clone(metrics),
        launcher: args.launcher.settings(),
        fresh_vms: fresh::Fresh::default(),
        fresh_pods: fresh::Fresh::default(),
        fresh_claims: fresh::Fresh::default(),
        strangers: strangers::Strangers::default(),
        rebuffs: strangers::Rebuffs::default(),
        patience: patience::Patience::default(),
        failures: context::Failures::default(),
    }
}

/// The pod's name, and something that a second life of the pod has not.
fn identity() -> String {
    let name = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
    let name = name.unwrap_or_else(|_| "controller".to_owned());
    let life = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    format!("{name}_{}", life.trim())
}

fn told_to_end() -> Result<impl Future<Output = ()>, String> {
    let listen = |kind| signal(kind).map_err(|error| format!("signals cannot be heard: {error}"));
    let mut terminated = listen(SignalKind::terminate())?;
    let mut interrupted = listen(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = interrupted.recv() => {}
        }
        info!("told to end");
    })
}
