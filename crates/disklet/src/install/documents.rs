//! The manifests of an installation.

use disklet_core::launch::pod::SECCOMP_PROFILE;
use sha2::{Digest, Sha256};

use super::LibvirtChoice;
use super::settings::{DEFAULT_METRICS_ADDRESS, Settings};
use super::template::{Fill, block, fill, scalar};
use crate::crd;

const NAMESPACE: &str = include_str!("objects/namespace.yaml");
const CONTROLLER_RIGHTS: &str = include_str!("objects/controller-rights.yaml");
const AGENT_RIGHTS: &str = include_str!("objects/agent-rights.yaml");
const CONFIG: &str = include_str!("objects/config.yaml");
const LIBVIRT_ACCOUNT: &str = include_str!("objects/libvirt-account.yaml");
const LIBVIRT: &str = include_str!("objects/libvirt.yaml");
const AGENT: &str = include_str!("objects/agent.yaml");
const CONTROLLER: &str = include_str!("objects/controller.yaml");
const WEBHOOK: &str = include_str!("objects/webhook.yaml");

impl Settings {
    /// All of them, in the order in which they are to be applied.
    pub(super) fn documents(&self) -> Vec<String> {
        let gaps = self.gaps();
        let filled = |template| fill(template, &gaps);
        let mut documents = vec![filled(NAMESPACE)];
        documents.extend(crd::documents());
        documents.extend([CONTROLLER_RIGHTS, AGENT_RIGHTS, CONFIG].map(filled));
        if self.libvirt == LibvirtChoice::Pod {
            documents.push(filled(LIBVIRT_ACCOUNT));
            documents.extend(self.on_nodes(LIBVIRT, &gaps));
        }
        documents.extend(self.on_nodes(AGENT, &gaps));
        documents.extend([CONTROLLER, WEBHOOK].map(filled));
        documents
    }

    /// One for each node that has pools of its own, and one for all others.
    fn on_nodes(&self, template: &str, gaps: &[(&'static str, Fill)]) -> Vec<String> {
        let of_one = self.per_node.iter().map(|node| self.of_node(node));
        let all = std::iter::once(self.of_other_nodes()).chain(of_one);
        all.map(|more| fill(template, &[gaps, &more].concat()))
            .collect()
    }

    fn gaps(&self) -> Vec<(&'static str, Fill)> {
        let text = |text: &str| Fill::Text(text.to_owned());
        let config = &self.config;
        let below = |dir: &str, name: &str| Fill::Text(format!("{dir}/libvirt{name}"));
        let [libvirt_uri, qemu_run, libvirt_mounts, libvirt_volumes] = self.libvirt_of_agent();
        vec![
            ("namespace", text(self.namespace.as_str())),
            ("seccomp-profile", text(SECCOMP_PROFILE)),
            ("image", text(&self.image)),
            ("node-image", text(&self.node_image)),
            ("default-memory", text(&config.default_memory.as_quantity())),
            ("low-ports", Fill::Yaml(self.low_ports())),
            ("replicas", Fill::Yaml(self.replicas.to_string())),
            ("node-selector", Fill::Yaml(self.selector())),
            ("agent-listen", Fill::Yaml(self.agent_listen())),
            ("agent-host", text(&self.agent_host())),
            (
                "agent-port",
                Fill::Yaml(self.metrics_address.port().to_string()),
            ),
            ("raw-devices", text(&self.raw_devices)),
            ("config", Fill::Yaml(block(&self.config_text, 2))),
            ("config-digest", Fill::Text(self.config_digest())),
            ("data-dir", text(&config.data_dir)),
            ("run-dir", text(&config.run_dir)),
            ("kubelet-root", text(&config.kubelet_root)),
            ("nbd-certificates", text(&config.nbd_certificates)),
            ("flexvolume-dir", text(&self.flexvolume_dir)),
            ("libvirt-run", below(&config.run_dir, "")),
            ("libvirt-lib", below(&config.data_dir, "/lib")),
            ("libvirt-etc", below(&config.data_dir, "/etc")),
            ("libvirt-cache", below(&config.data_dir, "/cache")),
            ("libvirt-log", below(&config.data_dir, "/log")),
            ("libvirt-uri", libvirt_uri),
            ("qemu-run", qemu_run),
            ("libvirt-mounts", libvirt_mounts),
            ("libvirt-volumes", libvirt_volumes),
        ]
    }

    /// Where the agent finds libvirt, and what it must see for that.
    fn libvirt_of_agent(&self) -> [Fill; 4] {
        let lines = |line: &str| Fill::Lines(vec![line.to_owned()]);
        match self.libvirt {
            LibvirtChoice::Pod => [
                Fill::Text(format!(
                    "qemu+unix:///system?socket={}/libvirt/libvirt-sock",
                    self.config.run_dir
                )),
                Fill::Text(format!("{}/libvirt/qemu", self.config.run_dir)),
                Fill::Lines(Vec::new()),
                Fill::Lines(Vec::new()),
            ],
            LibvirtChoice::Host => [
                Fill::Text("qemu:///system".to_owned()),
                Fill::Text("/run/libvirt/qemu".to_owned()),
                lines(
                    "- {name: libvirt, mountPath: /run/libvirt, mountPropagation: HostToContainer}",
                ),
                lines("- {name: libvirt, hostPath: {path: /run/libvirt, type: Directory}}"),
            ],
        }
    }

    /// Volumes and mounts of the pools, and of what maps images' names, unless they
    /// are in directories that are shown anyway.
    pub(super) fn other_directories(&self) -> (Vec<String>, Vec<String>) {
        let config = &self.config;
        let pools = config.pools.values().map(|pool| pool.path.as_str());
        let paths = pools.chain(config.image_translations.as_deref());
        let mut all = vec![&*config.data_dir, &*config.run_dir, &*config.kubelet_root];
        let known = all.len();
        for path in paths {
            let is_below = |dir: &&str| std::path::Path::new(path).starts_with(dir);
            if !all.iter().any(is_below) {
                all.push(path);
            }
        }
        let others = all.into_iter().skip(known).enumerate();
        let lines = others.map(|(i, path)| {
            let path = scalar(path);
            (
                format!("- {{name: directory-{i}, hostPath: {{path: {path}}}}}"),
                format!("- {{name: directory-{i}, mountPath: {path}, mountPropagation: HostToContainer}}"),
            )
        });
        lines.unzip()
    }

    /// One more argument of the controller.
    fn low_ports(&self) -> String {
        let argument = self.low_ports.then_some(", --launcher-low-ports");
        argument.unwrap_or_default().to_owned()
    }

    /// One more argument of the agents.
    fn agent_listen(&self) -> String {
        let address = self.metrics_address.to_string();
        match address == DEFAULT_METRICS_ADDRESS {
            true => String::new(),
            false => format!(", --listen, {}", scalar(&address)),
        }
    }

    /// Where the kubelet, on the same node, asks an agent how it is.
    fn agent_host(&self) -> String {
        let ip = self.metrics_address.ip();
        match ip.is_unspecified() {
            true => "127.0.0.1".to_owned(),
            false => ip.to_string(),
        }
    }

    fn selector(&self) -> String {
        let labels = self.node_selector.iter();
        let labels = labels.map(|(key, value)| format!("{}: {}", scalar(key), scalar(value)));
        format!("{{{}}}", labels.collect::<Vec<_>>().join(", "))
    }

    fn config_digest(&self) -> String {
        let digest = Sha256::new()
            .chain_update(&self.config_text)
            .chain_update([0])
            .chain_update(&self.raw_devices)
            .finalize();
        digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}
