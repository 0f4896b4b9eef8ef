//! Parts of Disklet and of Kubernetes that are killed, and come back.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::process::Command;
use std::time::{Duration, Instant};

use super::kube::guests::NODE;
use super::kube::{repository, run, until};
use super::world::{kill, pod_of, processes, replace_pod};

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Agent,
    /// It is the webhook, too.
    Controller,
    Libvirt,
    Kubelet,
    Containerd,
    ApiServer,
}

const AGENT: &str = "disklet-node agent ";
const CONTROLLER: &str = "disklet controller ";
const LIBVIRTD: &str = "libvirtd";

fn script_kube(arguments: &[&str]) {
    run(Command::new(repository().join("script/kube")).args(arguments));
}

/// The kubelet starts it again, later and later: if it takes its time, there is another
/// pod instead.
fn come_back(component: &str, program: &str) {
    let end = Instant::now() + Duration::from_secs(8);
    while processes(program).is_empty() {
        if Instant::now() > end {
            return replace_pod(component);
        }
        std::thread::sleep(Duration::from_millis(250));
    }
    pod_of(component);
}

impl Part {
    /// Something is killed: who does not run at the moment is waited for.
    pub(crate) fn kill(self) {
        let ours = |beginning: &str| {
            let found = until(60, &format!("{self:?} runs"), || {
                Some(processes(beginning)).filter(|found| !found.is_empty())
            });
            found.iter().for_each(|it| kill(it));
        };
        match self {
            Self::Agent => ours(AGENT),
            Self::Controller => ours(CONTROLLER),
            Self::Libvirt => ours(LIBVIRTD),
            Self::Kubelet => script_kube(&["kill", NODE, "kubelet"]),
            Self::Containerd => script_kube(&["kill", NODE, "containerd"]),
            Self::ApiServer => script_kube(&["kill", "control-plane", "apiserver"]),
        }
    }

    /// Whoever was killed comes back.
    pub(crate) fn mend(self) {
        match self {
            Self::Agent => come_back("agent", AGENT),
            Self::Controller => come_back("controller", CONTROLLER),
            Self::Libvirt => come_back("libvirt", LIBVIRTD),
            Self::Kubelet | Self::Containerd | Self::ApiServer => script_kube(&["up"]),
        }
    }
}
