//! What an administrator decides about an installation.

use std::net::SocketAddr;
use std::path::Path;

use disklet::manifests::{configuration_text, inputs};
use disklet_core::config::{Config, NodePools, RawDeviceGlob, command_line_place, parse_host_path};
use disklet_core::diag::{Diagnostic, Diagnostics};
use disklet_core::launch::pod::{NODE_LABEL, POOL_LABEL};
use disklet_core::names::{ImageName, Namespace};

use super::{InstallArgs, LibvirtChoice};

pub(crate) const DEFAULT_NAMESPACE: &str = "disklet";
/// Built here, and nowhere else: no registry has them.
pub(super) const DEFAULT_IMAGE: &str = concat!("localhost/disklet:", env!("CARGO_PKG_VERSION"));
pub(super) const DEFAULT_NODE_IMAGE: &str =
    concat!("localhost/disklet-node:", env!("CARGO_PKG_VERSION"));
pub(super) const DEFAULT_FLEXVOLUME_DIR: &str =
    "/usr/libexec/kubernetes/kubelet-plugins/volume/exec";
/// As agents have it by themselves.
pub(super) const DEFAULT_METRICS_ADDRESS: &str = "127.0.0.1:9473";

/// All of it, checked.
#[derive(Debug)]
pub(super) struct Settings {
    /// Where agents serve their metrics.
    pub(super) metrics_address: SocketAddr,
    pub(super) image: String,
    pub(super) node_image: String,
    pub(super) namespace: Namespace,
    pub(super) libvirt: LibvirtChoice,
    /// What the nodes' configuration says, and the text that says it.
    pub(super) config: Config,
    pub(super) config_text: String,
    pub(super) raw_devices: String,
    pub(super) flexvolume_dir: String,
    pub(super) node_selector: Vec<(String, String)>,
    pub(super) low_ports: bool,
    pub(super) replicas: u8,
    /// Nodes that have pools of their own.
    pub(super) per_node: Vec<NodePools>,
}

impl Settings {
    /// Nothing if one of the names cannot be used.
    pub(super) fn read(args: &InstallArgs, diags: &mut Diagnostics) -> Option<Self> {
        check_image("--image", &args.image, diags);
        check_image("--node-image", &args.node_image, diags);
        let namespace = read_namespace(&args.namespace, diags);
        let (config, config_text) = read_config(args, diags);
        check_directories(args, &config, diags);
        let flexvolume_dir = host_path("--flexvolume-dir", &args.flexvolume_dir, diags);
        let raw_devices = args.raw_devices.as_deref().unwrap_or_default();
        if args.raw_devices.is_some() {
            check_raw_devices(raw_devices, diags);
        }
        let node_selector = read_labels(&args.node_selector, diags);
        let metrics_address = read_metrics_address(&args.metrics_address, diags);
        let replicas = read_replicas(&args.replicas, diags);
        let per_node = read_per_node(args, &config, diags);
        Some(Self {
            metrics_address: metrics_address?,
            image: args.image.clone(),
            node_image: args.node_image.clone(),
            namespace: namespace?,
            libvirt: args.libvirt,
            config,
            config_text,
            raw_devices: raw_devices.to_owned(),
            flexvolume_dir: flexvolume_dir?,
            node_selector,
            low_ports: !args.no_low_ports,
            replicas: replicas?,
            per_node,
        })
    }
}

fn refuse(option: &str, found: &str, why: &str, allowed: &str, diags: &mut Diagnostics) {
    let problem = Diagnostic::error(&command_line_place(option), why);
    diags.push(problem.found(format!("{found:?}")).allowed(allowed));
}

/// A container's image, which the kubelet pulls: a name, no address.
fn check_image(option: &str, name: &str, diags: &mut Diagnostics) {
    let example = "such as registry.example.com/disklet:1";
    match ImageName::parse(name) {
        Err(error) => refuse(
            option,
            name,
            &format!("the image's name {error}"),
            example,
            diags,
        ),
        Ok(_) if name.contains("://") => {
            refuse(
                option,
                name,
                "an address is no name of an image",
                example,
                diags,
            );
        }
        // A program that is given the name would take it for an option.
        Ok(_) if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) => {
            let why = "a name of an image begins with a letter or a digit";
            refuse(option, name, why, example, diags);
        }
        Ok(_) => {}
    }
}

/// The namespace is removed with us: it must not be one that others live in.
fn read_namespace(name: &str, diags: &mut Diagnostics) -> Option<Namespace> {
    match Namespace::parse(name) {
        Ok(_) if name == "default" || name.starts_with("kube-") => {
            let why = "Disklet needs a namespace of its own";
            refuse(
                "--namespace",
                name,
                why,
                "another one, which may be new",
                diags,
            );
            None
        }
        Ok(namespace) => Some(namespace),
        Err(rule) => {
            refuse("--namespace", name, "not a namespace", rule.allowed, diags);
            None
        }
    }
}

/// The configuration, and the text that the nodes get: the administrator's own,
/// or the directories.
fn read_config(args: &InstallArgs, diags: &mut Diagnostics) -> (Config, String) {
    let root = args.kubelet_root.as_deref();
    let root = root.and_then(|root| host_path("--kubelet-root", root, diags));
    let Some(path) = &args.config else {
        let mut config = Config::default();
        if let Some(root) = root {
            config.kubelet_root = root;
        }
        let text = format!(
            "dataDir: {}\nrunDir: {}\nkubeletRoot: {}\n",
            config.data_dir,
            config.run_dir,
            super::template::scalar(&config.kubelet_root),
        );
        return (config, text);
    };
    let (config, text) = configuration_text(path, diags);
    if let Some(root) = root.filter(|root| *root != config.kubelet_root) {
        let why = "the configuration names another directory";
        let problem = Diagnostic::error(&command_line_place("--kubelet-root"), why)
            .found(format!("{root:?}, and there {:?}", config.kubelet_root))
            .help("write it as kubeletRoot into the configuration, and leave the option out");
        diags.push(problem);
    }
    (config, text)
}

/// Pods see the node's directories where the node has them, and no container can mount
/// two at one place.
fn check_directories(args: &InstallArgs, config: &Config, diags: &mut Diagnostics) {
    let all = [
        ("kubeletRoot", &config.kubelet_root),
        ("dataDir", &config.data_dir),
        ("runDir", &config.run_dir),
        ("nbdCertificates", &config.nbd_certificates),
    ];
    let option = match (&args.config, &args.kubelet_root) {
        (None, Some(_)) => "--kubelet-root",
        _ => "--config",
    };
    for (i, (name, path)) in all.iter().enumerate() {
        let same = |(_, other): &&(_, &String)| Path::new(other) == Path::new(path);
        if let Some((other, _)) = all[..i].iter().find(same) {
            let why = format!("{other} and {name} are one directory");
            refuse(option, path, &why, "a directory of its own for each", diags);
        }
    }
}

/// The names of what a node has for itself end with the node's own.
fn read_per_node(args: &InstallArgs, config: &Config, diags: &mut Diagnostics) -> Vec<NodePools> {
    let Some(path) = &args.per_node else {
        return Vec::new();
    };
    let mut nodes = Vec::new();
    for input in inputs(path, diags) {
        nodes.extend(NodePools::read(&input, config, diags));
    }
    if nodes.is_empty() && diags.errors() == 0 {
        let found = path.display().to_string();
        refuse(
            "--per-node",
            &found,
            "names no node",
            "nodes: {NAME: {pools: {…}}}",
            diags,
        );
    }
    let longest = 253 - "disklet-libvirt-".len();
    for node in nodes.iter().filter(|it| it.node.as_str().len() > longest) {
        let why = "the node's name is too long to name pods for it";
        let allowed = format!("at most {longest} characters");
        refuse("--per-node", node.node.as_str(), why, &allowed, diags);
    }
    if args.libvirt == LibvirtChoice::Host && !nodes.is_empty() {
        let why = "the node's own libvirtd does not see what pods have mounted";
        refuse("--per-node", "--libvirt host", why, "--libvirt pod", diags);
    }
    nodes
}

fn host_path(option: &str, path: &str, diags: &mut Diagnostics) -> Option<String> {
    match parse_host_path(path) {
        Ok(path) => Some(path),
        Err(why) => {
            refuse(option, path, why, "an absolute path of the nodes", diags);
            None
        }
    }
}

fn read_metrics_address(text: &str, diags: &mut Diagnostics) -> Option<SocketAddr> {
    let allowed = "127.0.0.1:PORT, or 0.0.0.0:PORT for all addresses of each node";
    let mut refused = |why: &str| refuse("--metrics-address", text, why, allowed, diags);
    let Ok(address) = text.parse::<SocketAddr>() else {
        refused("not of the form ADDRESS:PORT");
        return None;
    };
    let ip = address.ip();
    if address.port() == 0 || !(ip.is_loopback() || ip.is_unspecified()) {
        refused("not an address that all nodes have");
    }
    Some(address)
}

/// More than a handful only wait.
fn read_replicas(text: &str, diags: &mut Diagnostics) -> Option<u8> {
    let number = text.parse().ok().filter(|it| (1..=9).contains(it));
    if number.is_none() {
        let why = "not a number of controllers";
        refuse("--replicas", text, why, "1 to 9", diags);
    }
    number
}

fn check_raw_devices(globs: &str, diags: &mut Diagnostics) {
    let place = command_line_place("--raw-devices");
    match RawDeviceGlob::parse_list(globs) {
        Err(why) => diags.push(Diagnostic::error(&place, why)),
        Ok(list) if list.is_empty() => diags.push(
            Diagnostic::error(&place, "names no device")
                .help("to allow none, write rawDevices: [] into the configuration (--config)"),
        ),
        Ok(_) => {}
    }
}

/// No node has a label twice.
fn read_labels(texts: &[String], diags: &mut Diagnostics) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = Vec::new();
    for text in texts {
        let Some((key, value)) = read_label(text, diags) else {
            continue;
        };
        match labels.iter().find(|(other, _)| *other == key) {
            Some((_, before)) if *before != value => {
                let why = "another value was given for this label before";
                let allowed = "each label once";
                refuse("--node-selector", text, why, allowed, diags);
            }
            Some(_) => {}
            None => labels.push((key, value)),
        }
    }
    labels
}

fn read_label(text: &str, diags: &mut Diagnostics) -> Option<(String, String)> {
    let word = |text: &str, most: usize| {
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let ends = |c: char| c.is_ascii_alphanumeric();
        text.len() <= most
            && text.chars().all(inner)
            && text.starts_with(ends)
            && text.ends_with(ends)
    };
    let label = text.split_once('=').filter(|(key, value)| {
        let (prefix, name) = key.rsplit_once('/').unwrap_or(("prefix", key));
        word(prefix, 253) && word(name, 63) && (value.is_empty() || word(value, 63))
    });
    let is_ours = |key: &str| key == NODE_LABEL.0 || key.starts_with(POOL_LABEL.0);
    let why = match label {
        None => "not a label with its value",
        Some((key, _)) if is_ours(key) => {
            "this label is set by the agents themselves: without it none would ever be scheduled"
        }
        Some((key, value)) => return Some((key.to_owned(), value.to_owned())),
    };
    let allowed = "a label that you give the nodes, such as vms=yes";
    refuse("--node-selector", text, why, allowed, diags);
    None
}
