//! The pod that a VM runs for in a cluster.

use uuid::Uuid;

use super::Step;
use crate::domain::{Domain, Sockets};
use crate::launch::protocol::{NET_SOCKET, SERIAL_SOCKET, directory_of_pod};
use crate::names::PodUid;

/// A launcher pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// Its UID.
    pub pod: PodUid,
}

impl Launcher {
    /// The launcher's own directory, a volume of its pod.
    #[must_use]
    pub fn directory(kubelet_root: &str, pod: &PodUid) -> String {
        format!("{kubelet_root}/{}", directory_of_pod(pod.as_str()))
    }

    /// Where QEMU finds the sockets. No volume has a dot in its name.
    pub(super) fn shown(run_dir: &str, uuid: Uuid) -> Sockets {
        let at = |name: &str| format!("{run_dir}/vms/{uuid}/{name}.socket");
        Sockets {
            network: at(NET_SOCKET),
            serial: at(SERIAL_SOCKET),
        }
    }

    /// Limits and connections are there before the guest runs.
    pub(super) fn start(&self, domain: &Domain, kubelet_root: &str, running: bool) -> Vec<Step> {
        let directory = Self::directory(kubelet_root, &self.pod);
        // Without an interface nobody listens there.
        let has_network = !domain.interfaces.is_empty();
        let sockets = domain.sockets.iter().flat_map(|shown| {
            let network = has_network.then(|| (NET_SOCKET, shown.network.clone()));
            let serial = (SERIAL_SOCKET, shown.serial.clone());
            network.into_iter().chain([serial])
        });
        let mut steps: Vec<_> = sockets
            .map(|(name, to)| Step::ExposeSocket {
                from: format!("{directory}/{name}"),
                to,
            })
            .collect();
        if running {
            steps.extend([
                Step::StartDomain {
                    name: domain.name.clone(),
                    paused: true,
                },
                Step::JoinLauncher {
                    pod: self.pod.clone(),
                },
                Step::ResumeDomain {
                    name: domain.name.clone(),
                },
            ]);
        }
        steps
    }
}
