//! The pod that fills a claim, and the way to it through the API server.
//!
//! ```text
//!   client --TCP, this machine--> relay --API server, kubelet--> pod
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use disklet::cluster::client::client_of;
use disklet::cluster::kubeconfig::{Wanted, find};
use disklet::cluster::trouble::Trouble;
use disklet_core::text::Secret as Hidden;
use k8s_openapi::api::core::v1::{Container, Pod, Secret};
use kube::Client;
use kube::api::{Api, ListParams};
use kube::config::KubeConfigOptions;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::Failure;
use super::client::one_word;

/// An API server that takes longer does not answer any more.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Where uploads are served, unless the pod says something else.
const USUAL_PORT: u16 = 8443;
/// What the image of such pods is called, wherever it is.
const IMAGE: &str = "kubevirt-pvc-upload";
/// What says it of pods with another image.
const LABEL: &str = "disklet.io/fills";

/// Which cluster is asked for the pod that fills a claim.
#[derive(Debug, Clone, Default, ClapArgs)]
#[command(next_help_heading = "Where a claim is")]
pub(super) struct ClusterArgs {
    /// The namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The kubeconfig's context [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// A pod that fills a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Filler {
    pod: String,
    port: u16,
    has_tls: bool,
    /// The Secret with its token, and the key there.
    token: Option<(String, String)>,
}

/// The way to it, open as long as the program runs.
pub(super) struct Way {
    /// What the server is called, and asked by.
    pub(super) url: String,
    /// Where it is reached.
    pub(super) at: SocketAddr,
    /// What uploads must bear, if the cluster tells us.
    pub(super) token: Option<Hidden>,
}

/// Finds the pod that fills a claim, and opens a way to it.
pub(super) fn reach(claim: &str, args: &ClusterArgs, wants_token: bool) -> Result<Way, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("no threads: {error}")))?;
    let way = runtime.block_on(open(claim, args, wants_token));
    // It relays until the program ends.
    std::mem::forget(runtime);
    way
}

async fn open(claim: &str, args: &ClusterArgs, wants_token: bool) -> Result<Way, Failure> {
    let wanted = Wanted {
        kubeconfig: args.kubeconfig.as_deref(),
        server: None,
        options: KubeConfigOptions {
            context: args.context.clone(),
            ..KubeConfigOptions::default()
        },
    };
    let config = find(&wanted)
        .await
        .map_err(|trouble| told("no cluster to ask", &trouble))?;
    let of_context = || config.default_namespace.clone();
    let namespace = args.namespace.clone().unwrap_or_else(of_context);
    let client = client_of(config).map_err(|trouble| told("no cluster to ask", &trouble))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let what = format!("pods of {namespace}");
    let listed = asked(&what, pods.list(&ListParams::default())).await?;
    let filler = filler(&listed.items, claim, &namespace)?;
    let token = match &filler.token {
        Some((secret, key)) if wants_token => Some(token(&client, &namespace, secret, key).await?),
        _ => None,
    };
    let scheme = if filler.has_tls { "https" } else { "http" };
    let url = format!("{scheme}://{}:{}/upload", filler.pod, filler.port);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let unheard = |error| Failure::new(format!("cannot listen on this machine: {error}"));
    let listener = listener.map_err(unheard)?;
    let at = listener.local_addr().map_err(unheard)?;
    tokio::spawn(relay(listener, pods, filler));
    Ok(Way { url, at, token })
}

/// The token that the pod's uploads must bear.
async fn token(
    client: &Client,
    namespace: &str,
    secret: &str,
    key: &str,
) -> Result<Hidden, Failure> {
    const HELP: &str = "say with --token-file where the token of the upload is";
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let what = format!("the Secret {namespace}/{secret}, with the token of the upload");
    let found = asked(&what, secrets.get(secret)).await;
    let found = found.map_err(|failure| failure.help(HELP))?;
    let bytes = found.data.and_then(|mut data| data.remove(key));
    match bytes {
        Some(bytes) => one_word(&bytes.0, &what),
        None => Err(Failure::new(format!("{what}: has no {key}")).help(HELP)),
    }
}

async fn asked<T>(
    what: &str,
    question: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, Failure> {
    match timeout(ANSWER_WITHIN, question).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(told(what, &Trouble::of(&error))),
        Err(_) => Err(Failure::new(format!(
            "{what}: the API server does not answer"
        ))),
    }
}

fn told(what: &str, trouble: &Trouble) -> Failure {
    let failure = Failure::new(format!("{what}: {trouble}"));
    match trouble.remedy() {
        Some(help) => failure.help(help),
        None => failure,
    }
}

/// Hands each connection on to the pod.
async fn relay(listener: TcpListener, pods: Api<Pod>, filler: Filler) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (pods, filler) = (pods.clone(), filler.clone());
        tokio::spawn(async move {
            // Whoever waits for it hears that the connection has ended, and asks again.
            let _ = hand_on(&mut stream, &pods, &filler).await;
        });
    }
}

async fn hand_on(stream: &mut TcpStream, pods: &Api<Pod>, filler: &Filler) -> Option<()> {
    let ports = [filler.port];
    let forwarding = pods.portforward(&filler.pod, &ports);
    let mut forwarder = timeout(ANSWER_WITHIN, forwarding).await.ok()?.ok()?;
    let mut there = forwarder.take_stream(filler.port)?;
    let copied = copy_bidirectional(stream, &mut there).await;
    forwarder.abort();
    copied.ok().map(drop)
}

/// The pod that fills a claim, of all that are there.
fn filler(pods: &[Pod], claim: &str, namespace: &str) -> Result<Filler, Failure> {
    let fillers: Vec<_> = pods
        .iter()
        .filter_map(|pod| Some((pod, container_that_fills(pod, claim)?)))
        .collect();
    let phase = |pod: &Pod| pod.status.as_ref()?.phase.clone();
    let runs = |(pod, _): &&(&Pod, &Container)| {
        phase(pod).as_deref() == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    };
    let running: Vec<_> = fillers.iter().filter(runs).collect();
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    match (running.as_slice(), fillers.as_slice()) {
        ([(pod, container)], _) => Ok(describe(pod, container)),
        ([], []) => Err(Failure::new(format!(
            "claim {namespace}/{claim}: no pod is there that fills it"
        ))
        .help(format!(
            "make one with the image {IMAGE} that mounts the claim, see docs/filling.md"
        ))),
        ([], [(pod, _), ..]) => Err(Failure::new(format!(
            "claim {namespace}/{claim}: the pod {} that fills it does not run: it is {}",
            name(pod),
            phase(pod).unwrap_or_else(|| "new".to_owned()),
        ))
        .help(format!(
            "kubectl describe pod -n {namespace} {} says why",
            name(pod)
        ))),
        ([_, ..], _) => {
            let names: Vec<_> = running.iter().map(|(pod, _)| name(pod)).collect();
            Err(Failure::new(format!(
                "claim {namespace}/{claim}: several pods fill it: {}",
                names.join(", ")
            ))
            .help("delete all but one of them"))
        }
    }
}

/// The container of a pod that takes uploads for a claim.
fn container_that_fills<'p>(pod: &'p Pod, claim: &str) -> Option<&'p Container> {
    let spec = pod.spec.as_ref()?;
    let volumes = spec.volumes.iter().flatten();
    let mut claims = volumes.filter_map(|volume| {
        let named = volume.persistent_volume_claim.as_ref()?;
        (named.claim_name == claim).then_some(&volume.name)
    });
    let volume = claims.next()?;
    let labels = pod.metadata.labels.as_ref();
    let is_labelled = labels.is_some_and(|labels| labels.get(LABEL).is_some_and(|it| it == claim));
    spec.containers.iter().find(|container| {
        let mounts = container.volume_mounts.iter().flatten();
        let devices = container.volume_devices.iter().flatten();
        let has_it = mounts.map(|it| &it.name).any(|name| name == volume)
            || devices.map(|it| &it.name).any(|name| name == volume);
        let is_upload = container.image.as_deref().is_some_and(is_ours);
        has_it && (is_labelled || is_upload)
    })
}

/// Whether an image has the name, whatever registry and tag.
fn is_ours(image: &str) -> bool {
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split(['@', ':']).next() == Some(IMAGE)
}

fn describe(pod: &Pod, container: &Container) -> Filler {
    let words: Vec<_> = container
        .command
        .iter()
        .chain(&container.args)
        .flatten()
        .collect();
    let option = |name: &str| {
        let mut at = words.iter().enumerate();
        at.find_map(|(nth, word)| match word.strip_prefix(name) {
            Some("") => words.get(nth + 1).map(|it| it.as_str()),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        })
    };
    let ports = || container.ports.iter().flatten();
    let named = ports().find(|port| port.name.as_deref() == Some("upload"));
    let port = named.or_else(|| ports().next()).map(|it| it.container_port);
    let token = option("--token-file").and_then(|path| secret_of(pod, container, Path::new(path)));
    Filler {
        pod: pod.metadata.name.clone().unwrap_or_default(),
        port: port
            .and_then(|it| u16::try_from(it).ok())
            .unwrap_or(USUAL_PORT),
        has_tls: option("--tls-dir").is_some(),
        token,
    }
}

/// The Secret that a path in a container leads into, and the key there.
fn secret_of(pod: &Pod, container: &Container, path: &Path) -> Option<(String, String)> {
    let mounts = container.volume_mounts.iter().flatten();
    let (mount, inside) = mounts
        .filter(|mount| mount.sub_path.is_none())
        .filter_map(|mount| Some((mount, path.strip_prefix(&mount.mount_path).ok()?)))
        .min_by_key(|(_, inside)| inside.components().count())?;
    let mut volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == mount.name)?;
    let secret = volume.secret.as_ref()?;
    let inside = inside.to_str()?;
    let key = match &secret.items {
        None => inside.to_owned(),
        Some(items) => items.iter().find(|item| item.path == inside)?.key.clone(),
    };
    Some((secret.secret_name.clone()?, key))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A pod that fills `disk`.
    fn pod(name: &str, phase: &str, image: &str, args: &[&str]) -> Pod {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": "x"}},
            "spec": {
                "containers": [
                    {"name": "beside", "image": "kubevirt-pvc-upload"},
                    {"name": "upload", "image": image, "args": args,
                     "ports": [{"name": "metrics", "containerPort": 1}, {"name": "upload", "containerPort": 9443}],
                     "volumeMounts": [{"name": "claim", "mountPath": "/target"}, {"name": "token", "mountPath": "/upload"}]},
                ],
                "volumes": [
                    {"name": "claim", "persistentVolumeClaim": {"claimName": "disk"}},
                    {"name": "token", "secret": {"secretName": "upload-disk"}},
                ],
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    const OURS: &str = "registry.example:5000/a/kubevirt-pvc-upload:1@sha256:0";

    #[test]
    fn the_pod_that_fills_a_claim_is_found() {
        let with_tls = ["--token-file", "/upload/token", "--tls-dir=/tls"];
        let pods = [
            pod("other", "Running", "debian", &[]),
            pod("ours", "Running", OURS, &with_tls),
            pod("gone", "Succeeded", OURS, &[]),
        ];
        let wanted = Filler {
            pod: "ours".to_owned(),
            port: 9443,
            has_tls: true,
            token: Some(("upload-disk".to_owned(), "token".to_owned())),
        };
        assert_eq!(filler(&pods, "disk", "here").unwrap(), wanted);
        let mut labelled = pod(
            "labelled",
            "Running",
            "debian",
            &["--token-file=/elsewhere"],
        );
        let labels = labelled.metadata.labels.as_mut().unwrap();
        labels.insert(LABEL.to_owned(), "disk".to_owned());
        labelled.spec.as_mut().unwrap().containers[1].ports = None;
        let found = filler(&[labelled], "disk", "here").unwrap();
        assert_eq!(
            (found.port, found.has_tls, found.token),
            (8443, false, None)
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let ours = |name, phase| pod(name, phase, OURS, &[]);
        for (pods, claim, words) in [
            (vec![], "disk", "no pod is there that fills it"),
            (vec![ours("a", "Running")], "other", "no pod is there"),
            (
                vec![pod("a", "Running", "x", &[])],
                "disk",
                "no pod is there",
            ),
            (
                vec![ours("a", "Pending")],
                "disk",
                "the pod a that fills it does not run: it is Pending",
            ),
            (
                vec![ours("a", "Running"), ours("b", "Running")],
                "disk",
                "several pods fill it: a, b",
            ),
        ] {
            let failure = filler(&pods, claim, "here").unwrap_err();
            assert!(failure.what.contains(words), "{failure:?}");
            assert!(failure.help.is_some());
        }
    }

    #[test]
    fn keys_of_secrets_are_found_behind_their_names() {
        let mut pod = pod("a", "Running", OURS, &[]);
        let volumes = pod.spec.as_mut().unwrap().volumes.as_mut().unwrap();
        let items = json!([{"key": "k", "path": "sub/token"}]);
        volumes[1].secret.as_mut().unwrap().items = serde_json::from_value(items).unwrap();
        let container = pod.spec.as_ref().unwrap().containers[1].clone();
        let of = |path: &str| secret_of(&pod, &container, Path::new(path));
        let wanted = Some(("upload-disk".to_owned(), "k".to_owned()));
        assert_eq!(of("/upload/sub/token"), wanted);
        assert_eq!(of("/upload/token"), None);
        assert_eq!(of("/target/token"), None);
        assert_eq!(of("/else/where"), None);
    }
}
