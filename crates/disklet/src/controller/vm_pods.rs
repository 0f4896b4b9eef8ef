//! Launcher pods that the reconciliation of VM objects does not let go of: VM pods, and
//! launchers whose VM object is gone. Nobody but their agent frees what was made for them,
//! and where there is no agent, nothing was made.

use std::sync::Arc;
use std::time::Duration;

use disklet::cluster::names;
use disklet_core::launch::vm_pod::SAVED;
use tracing::warn;

use super::act;
use super::context::Context;
use super::gather::is_lost;
use super::objects::{Key, LauncherPod, Vm, is_going, is_held};
use super::watch::{Caches, get};

/// How often it is looked; who deletes a pod that never ran waits so long.
const EVERY: Duration = Duration::from_secs(2);

/// Lets go of pods that no agent will ever let go of. Returns only if the watches end.
pub(super) async fn forever(context: &Arc<Context>) {
    while let Some(forsaken) = forsaken(&context.caches).await {
        for pod in forsaken {
            if let Err(failure) = act::release_forsaken(context, &pod).await {
                warn!(pod = ?pod.metadata.name, %failure, "tried again later");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Those of which it is known: a node that has not been listed yet is not a lost one, and
/// its agent may be about to end the guest. Nothing if the watches end.
async fn forsaken(caches: &Caches) -> Option<Vec<Arc<LauncherPod>>> {
    let is_filled = caches.filled().await;
    let is_forsaken = |pod: &LauncherPod| is_forsaken(caches, pod);
    is_filled.then(|| caches.pods.state_filter(is_forsaken))
}

/// Whether it is going, was on no node, or on one that is gone, and has no VM object by
/// which it is let go.
fn is_forsaken(caches: &Caches, pod: &LauncherPod) -> bool {
    let node = pod.spec.node_name.as_deref();
    is_going(pod)
        && is_held(pod, names::POD_FINALIZER)
        && node.is_none_or(|node| is_lost(caches, node))
        && (pod.annotation(SAVED).is_some() || !has_vm(caches, pod))
}

/// Whether the VM object that has made it is still there. A launcher has its VM's name.
fn has_vm(caches: &Caches, pod: &LauncherPod) -> bool {
    let vm: Option<Arc<Vm>> = get(&caches.vms, &Key::of(pod));
    vm.is_some_and(|vm| pod.is_of(&vm))
}

#[cfg(test)]
#[path = "vm_pods/tests.rs"]
mod tests;
