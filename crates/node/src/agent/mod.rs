//! The node agent: runs the VMs of this node's launcher pods.
//!
//! ```text
//!   API server --watch--> pods  --+
//!   libvirt    --events---------- +--> supervisor --> a thread for each launcher pod
//!   launcher   --socket--------------------------------^
//! ```
//!
//! The agent may be replaced at any time: a VM's record says what was made for
//! which pod, and a new agent goes on from there. docs/formats/launcher.md has
//! what it says to launchers.

mod cluster;
mod images;
mod leases;
mod link;
mod machine;
mod mappings;
mod metrics;
mod planning;
mod pod;
mod pools;
mod profile;
mod progress;
mod status;
mod tokens;
mod upkeep;
mod watch;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use clap::Args;
use disklet::cluster::health::{self, Health};
use disklet::cluster::leases::Leases;
use disklet::cluster::logs::{self, LogFormat};
use disklet_core::config::Config;
use disklet_core::names::PodUid;
use k8s_openapi::api::core::v1::Pod;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use self::cluster::Cluster;
pub(crate) use self::leases::{NodeLeases, Whose};

use self::machine::{Machine, Told, Unwanted};
use self::mappings::Mappings;
use self::metrics::Metrics;
use self::pod::{LauncherPod, uid_of};
use self::pools::OwnPod;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::libvirt::{Event, Events, Libvirt};
use crate::record::Records;
use crate::trial;
use crate::vms::configuration;

/// Run the VMs of this node's launcher pods
///
/// Started by the `DaemonSet` that `disklet install` prints. It needs root, the
/// host's process IDs, the kubelet's directory, and libvirt.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// This node's name in the cluster
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node: String,

    /// Configuration of the node (see docs/formats/config.md)
    #[arg(long, value_name = "FILE", env = "DISKLET_CONFIG")]
    config: Option<PathBuf>,

    /// Where the machine's own root directory is seen
    #[arg(long, value_name = "DIR", default_value = "/")]
    host_root: String,

    /// Where the kubelet keeps its pods' volumes [default: /var/lib/kubelet]
    #[arg(long, value_name = "DIR")]
    kubelet_root: Option<String>,

    /// The libvirt daemon, which somebody else starts; memory: runs no VM, and is for
    /// measuring
    #[arg(
        long,
        value_name = "URI",
        env = "LIBVIRT_DEFAULT_URI",
        default_value = "qemu:///system"
    )]
    connect: String,

    /// Disklet's own namespace, whose mappings of images' names count; none if absent
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE")]
    namespace: Option<String>,

    /// The agent's own pod, there: its annotations name pools beside those of the
    /// configuration
    #[arg(long, value_name = "NAME", env = "POD_NAME", requires = "namespace")]
    pod: Option<String>,

    /// How to log; DISKLET_LOG chooses what
    #[arg(long, value_enum, default_value_t = LogFormat::Json, value_name = "FORMAT")]
    log_format: LogFormat,

    /// Where /healthz, /readyz and /metrics are
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9473")]
    listen: SocketAddr,

    /// Where that daemon notes the processes of its VMs
    #[arg(long, value_name = "DIR", default_value = "/run/libvirt/qemu")]
    qemu_run: String,
}

/// What all machines of the node share.
struct Shared {
    config: Config,
    metrics: Metrics,
    cluster: Cluster,
    /// None where nobody has said which namespace is ours.
    leases: Option<NodeLeases>,
    mappings: Mappings,
    node: String,
    uri: String,
}

/// What the supervisor is told.
#[derive(Debug)]
enum News {
    /// A pod of this node, as it is now.
    Pod(Box<Pod>),
    /// A pod is gone.
    Gone(PodUid),
    /// These are all there are.
    Listed(HashSet<PodUid>),
    /// libvirt tells.
    Domain(Event),
    /// Nothing is left of a pod's VM here.
    Freed(PodUid),
}

pub(crate) fn agent(args: &AgentArgs) -> Result<String> {
    logs::begin(args.log_format);
    let mut config = configuration(args.config.as_deref())?;
    config.host_root.clone_from(&args.host_root);
    config.qemu_run.clone_from(&args.qemu_run);
    if let Some(root) = &args.kubelet_root {
        config.kubelet_root.clone_from(root);
    }
    config.networks = config.networks.closed_to_tenants();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("no thread can be started").because(error))?;
    let metrics = Metrics::default();
    let client = runtime.block_on(watch::client())?;
    let own = runtime.block_on(own_pod(args, &client, &mut config))?;
    let health = runtime.block_on(serve_health(args.listen, metrics.registry(&config)))?;
    profile::install(&config)?;
    runtime.block_on(pools::label_node(&client, &args.node, &config))?;
    let uri = &args.connect;
    wait_for_libvirt(uri)?;
    trial::decide(&mut config, Some(uri))?;
    let (news, heard) = channel();
    let mappings = Mappings::default();
    let followed = mappings
        .clone()
        .follow(client.clone(), args.namespace.clone());
    runtime.spawn(followed);
    let cluster = Cluster::new(client.clone(), runtime.handle().clone(), &args.node);
    let leases = node_leases(args, &client, &cluster)?;
    if let Some(leases) = &leases {
        sweep_leases(leases, &config, uri);
    }
    let shared = Shared {
        config,
        metrics: metrics.clone(),
        cluster,
        leases,
        mappings,
        node: args.node.clone(),
        uri: uri.clone(),
    };
    let seen = Seen {
        metrics: metrics.clone(),
        health: health.clone(),
    };
    listen_to_libvirt(shared.uri.clone(), news.clone(), seen)?;
    let until_listed = health.hold();
    let told = watch::pods(
        client.clone(),
        args.node.clone(),
        news.clone(),
        until_listed,
    );
    runtime.spawn(told);
    health.set_ready(true);
    tracing::info!(node = args.node, "the agent is ready");
    let shared = Arc::new(shared);
    images::keep(&shared);
    upkeep::keep(&shared, client);
    Supervisor {
        shared,
        own,
        machines: HashMap::new(),
        news,
    }
    .work(&heard)
}

async fn own_pod(
    args: &AgentArgs,
    client: &kube::Client,
    config: &mut Config,
) -> Result<Option<OwnPod>> {
    match (&args.namespace, &args.pod) {
        (Some(namespace), Some(pod)) => {
            OwnPod::read(client, namespace, pod, config).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// What other nodes have a say in.
fn node_leases(
    args: &AgentArgs,
    client: &kube::Client,
    cluster: &Cluster,
) -> Result<Option<NodeLeases>> {
    let namespace = args.namespace.as_deref();
    let leases = namespace.map(|namespace| Leases::new(client.clone(), namespace));
    let leases = leases.map(|leases| NodeLeases::new(cluster.clone(), leases, &args.node));
    leases.transpose()
}

/// What is not released now keeps others waiting until the next time, and harms nobody.
fn sweep_leases(leases: &NodeLeases, config: &Config, uri: &str) {
    let swept =
        Libvirt::open(Some(uri)).and_then(|libvirt| leases.sweep(&Records::of(config), &libvirt));
    if let Err(failure) = swept {
        tracing::warn!("leases of this node were not looked through: {failure}");
    }
}

/// Answers from the beginning, so that it shows what keeps the agent.
async fn serve_health(address: SocketAddr, metrics: Registry) -> Result<Arc<Health>> {
    let failed = |error| {
        Failure::new(format!("{address}: cannot be listened at"))
            .because(error)
            .help("choose another address with --listen")
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let health = Health::new(metrics);
    tokio::spawn(health::serve(listener, health.clone()));
    Ok(health)
}

/// libvirt may come up after the agent.
fn wait_for_libvirt(uri: &str) -> Result<()> {
    let mut told = false;
    while let Err(failure) = Libvirt::open(Some(uri)) {
        if !told {
            tracing::warn!("waiting for libvirt: {failure}");
            told = true;
        }
        if interrupt::asked() {
            return Err(Failure::cancelled());
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(())
}

/// Where others see how the agent is.
struct Seen {
    metrics: Metrics,
    health: Arc<Health>,
}

/// Passes on what libvirt tells, by whichever connection there is. Without one
/// the agent is not ready.
fn listen_to_libvirt(uri: String, news: Sender<News>, seen: Seen) -> Result<()> {
    let events = Events::new();
    interrupt::tell(events.sender.clone());
    let first = telling(&uri, &events)?;
    let Seen { metrics, health } = seen;
    metrics.libvirt_answers(true);
    std::thread::spawn(move || {
        let mut connection = first;
        while let Ok(event) = events.receiver.recv() {
            if event == Event::Lost {
                tracing::warn!("libvirt has gone away");
                metrics.libvirt_answers(false);
                let without = health.hold();
                connection = connect_again(&uri, &events);
                metrics.libvirt_answers(true);
                drop(without);
                tracing::info!("libvirt is there again");
            }
            if news.send(News::Domain(event)).is_err() {
                break;
            }
        }
        drop(connection);
    });
    Ok(())
}

/// A connection that tells of domains, and of devices that guests let go of.
fn telling(uri: &str, events: &Events) -> Result<Libvirt> {
    let libvirt = Libvirt::open_telling(Some(uri), events)?;
    libvirt.tell_of_devices(events)?;
    Ok(libvirt)
}

fn connect_again(uri: &str, events: &Events) -> Libvirt {
    loop {
        std::thread::sleep(Duration::from_millis(500));
        if let Ok(libvirt) = telling(uri, events) {
            return libvirt;
        }
    }
}

/// Has a machine for every launcher pod, and none for others.
struct Supervisor {
    shared: Arc<Shared>,
    own: Option<OwnPod>,
    machines: HashMap<PodUid, Handle>,
    news: Sender<News>,
}

struct Handle {
    teller: Sender<Told>,
    /// What it was last told of its pod.
    pod: LauncherPod,
    unwanted: Unwanted,
}

impl Handle {
    /// Tells of the pod, if there is something to tell: whatever its tenant writes
    /// into it, and however often, does not pile up.
    fn see(&mut self, pod: &Pod) {
        let now = self.pod.later(pod);
        if now != self.pod {
            self.pod = now.clone();
            let _ = self.teller.send(Told::Pod(Box::new(now)));
        }
    }
}

impl Supervisor {
    fn work(mut self, heard: &Receiver<News>) -> Result<String> {
        while let Ok(news) = heard.recv() {
            match news {
                // VMs run on; the next agent finds them.
                News::Domain(Event::Interrupted) => break,
                News::Domain(Event::Lost) => self.tell_all(|| Told::Look),
                News::Domain(event) => self.tell_all(|| Told::Domain(event)),
                News::Pod(pod) if self.is_to_begin_anew(&pod) => break,
                News::Pod(pod) => self.have(&pod),
                News::Gone(uid) => self.lost(&uid),
                News::Listed(uids) => self.free_others(&uids)?,
                News::Freed(uid) => drop(self.machines.remove(&uid)),
            }
            self.shared.metrics.count_machines(self.machines.len());
        }
        Ok(String::new())
    }

    /// The kubelet starts the next agent, which goes by other pools; VMs run on.
    fn is_to_begin_anew(&self, pod: &Pod) -> bool {
        let otherwise = self.own.as_ref().is_some_and(|own| own.says_otherwise(pod));
        if otherwise {
            tracing::info!("the annotations of this pod name other pools: the agent starts anew");
        }
        otherwise
    }

    fn tell_all(&self, told: impl Fn() -> Told) {
        for machine in self.machines.values() {
            let _ = machine.teller.send(told());
        }
    }

    fn have(&mut self, pod: &Pod) {
        let machine = uid_of(pod).and_then(|uid| self.machines.get_mut(&uid));
        if let Some(machine) = machine {
            return machine.see(pod);
        }
        match LauncherPod::of(pod).or_else(|| LauncherPod::disowned(pod)) {
            Some(pod) if pod.is_done() && !pod.held => self.free(pod),
            Some(pod) => self.begin(pod, false),
            None => {}
        }
    }

    fn lost(&mut self, uid: &PodUid) {
        if let Some(machine) = self.machines.get(uid) {
            machine.unwanted.without_pod();
            let _ = machine.teller.send(Told::PodGone);
        }
    }

    /// Of a pod that is over there may still be something here.
    fn free(&mut self, pod: LauncherPod) {
        let records = Records::of(&self.shared.config).list();
        let uid = pod.uid.as_str();
        if records.is_ok_and(|all| all.iter().any(|it| it.pod.as_deref() == Some(uid))) {
            self.begin(pod, true);
        }
    }

    fn begin(&mut self, pod: LauncherPod, gone: bool) {
        let (teller, told) = channel();
        let unwanted = Unwanted::default();
        let handle = Handle {
            teller: teller.clone(),
            pod: pod.clone(),
            unwanted: unwanted.clone(),
        };
        let uid = pod.uid.clone();
        self.machines.insert(uid.clone(), handle);
        let machine = Machine {
            shared: self.shared.clone(),
            pod,
            gone,
            unwanted,
            told,
            teller,
        };
        let news = self.news.clone();
        std::thread::spawn(move || {
            machine.live();
            let _ = news.send(News::Freed(uid));
        });
    }

    /// What is here for pods that the cluster does not have, or that are no
    /// launchers.
    fn free_others(&mut self, known: &HashSet<PodUid>) -> Result<()> {
        let gone: Vec<_> = self.machines.keys().cloned().collect();
        for uid in gone.iter().filter(|uid| !known.contains(uid)) {
            self.lost(uid);
        }
        for record in Records::of(&self.shared.config).list()? {
            let uid = record.pod.as_deref().map(PodUid::parse);
            let Some(Ok(uid)) = uid else {
                continue;
            };
            if !self.machines.contains_key(&uid) {
                let pod = LauncherPod::vanished(uid, &record.namespace, &record.name);
                pod.into_iter().for_each(|pod| self.begin(pod, true));
            }
        }
        Ok(())
    }
}
