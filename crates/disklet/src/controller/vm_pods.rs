//! Launcher pods that the reconciliation of VM objects does not let go of: VM pods, and
//! launchers whose VM object is gone. Nobody but their agent frees what was made for them,
//! and where there is no agent, nothing was made.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disklet::cluster::agents::{Absences, Agents, nothing_runs};
use disklet::cluster::names;
use disklet_core::launch::vm_pod::SAVED;
use kube::ResourceExt;
use tracing::warn;

use super::act;
use super::context::Context;
use super::gather::is_lost;
use super::objects::{Key, LauncherPod, Vm, is_going, is_held};
use super::watch::{Caches, get};

/// How often it is looked; who deletes a pod that never ran waits so long.
const EVERY: Duration = Duration::from_secs(2);

/// Lets go of pods that no agent will ever let go of. Returns only if the watches end.
pub(super) async fn forever(context: &Arc<Context>, namespace: &str) {
    let mut absences = Absences::default();
    while let Some(mut forsaken) = forsaken(&context.caches).await {
        forsaken.extend(without_agents(context, namespace, &mut absences).await);
        for pod in forsaken {
            if let Err(failure) = act::release_forsaken(context, &pod).await {
                warn!(pod = ?pod.metadata.name, %failure, "tried again later");
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Those whose nodes have had no agent for long enough. Agents are asked for only if
/// somebody waits for that.
async fn without_agents(
    context: &Context,
    namespace: &str,
    absences: &mut Absences,
) -> Vec<Arc<LauncherPod>> {
    let caches = &context.caches;
    let idle = caches.pods.state_filter(|pod| is_idle(caches, pod));
    let agents = match idle.is_empty() {
        true => Agents::default(),
        false => match act::in_time(Agents::list(&context.client, namespace)).await {
            Ok(agents) => agents,
            Err(failure) => {
                warn!(%failure, "agents could not be listed");
                // Nothing is known, so nobody has waited.
                *absences = Absences::default();
                return Vec::new();
            }
        },
    };
    lasting(caches, idle, &agents, absences, Instant::now())
}

fn lasting(
    caches: &Caches,
    mut idle: Vec<Arc<LauncherPod>>,
    agents: &Agents,
    absences: &mut Absences,
    now: Instant,
) -> Vec<Arc<LauncherPod>> {
    let uid = |pod: &LauncherPod| pod.uid().unwrap_or_default();
    let without = idle.iter().filter(|pod| !has_agent(caches, pod, agents));
    let without: BTreeSet<_> = without.map(|pod| uid(pod)).collect();
    let lasting = absences.lasting(without, now);
    idle.retain(|pod| lasting.contains(&uid(pod)));
    idle
}

fn has_agent(caches: &Caches, pod: &LauncherPod, agents: &Agents) -> bool {
    let name = pod.spec.node_name.as_deref().unwrap_or_default();
    let node = get(&caches.nodes, &Key::new("", name));
    let labels = node.as_ref().and_then(|node| node.metadata.labels.as_ref());
    agents.are_on(name, labels)
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
    is_awaited(caches, pod) && node.is_none_or(|node| is_lost(caches, node))
}

/// Whether it is going, is on a node that is there, and nothing of it runs: what holds it
/// is only that an agent has to say so, if there is one.
fn is_idle(caches: &Caches, pod: &LauncherPod) -> bool {
    let containers = pod.status.container_statuses.iter();
    let at_rest = containers.map(|it| it.state.waiting.is_some() || it.state.terminated.is_some());
    let node = pod.spec.node_name.as_deref();
    is_awaited(caches, pod)
        && node.is_some_and(|node| !is_lost(caches, node))
        && nothing_runs(pod.status.phase.as_deref(), at_rest)
}

/// Whether it is going, is held for its agent, and no VM object lets it go.
fn is_awaited(caches: &Caches, pod: &LauncherPod) -> bool {
    is_going(pod)
        && is_held(pod, names::POD_FINALIZER)
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
