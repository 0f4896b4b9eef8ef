//! VM pods: nobody but their agent frees what was made for them, and where there is
//! no agent, nothing was made.

use std::sync::Arc;
use std::time::Duration;

use disklet::cluster::names;
use disklet_core::launch::vm_pod::SAVED;
use tracing::warn;

use super::act;
use super::context::Context;
use super::gather::is_lost;
use super::objects::{LauncherPod, is_going, is_held};

/// How often it is looked; who deletes a pod that never ran waits so long.
const EVERY: Duration = Duration::from_secs(2);

/// Lets go of VM pods that no agent will ever let go of, until the controller ends.
pub(super) async fn forever(context: &Arc<Context>) {
    loop {
        tokio::time::sleep(EVERY).await;
        let forsaken = context
            .caches
            .pods
            .state_filter(|pod| is_forsaken(context, pod));
        for pod in forsaken {
            if let Err(failure) = act::release_vm_pod(context, &pod).await {
                warn!(pod = ?pod.metadata.name, %failure, "tried again later");
            }
        }
    }
}

/// Whether it is a VM pod that is going, and was on no node, or on one that is gone.
fn is_forsaken(context: &Context, pod: &LauncherPod) -> bool {
    let node = pod.spec.node_name.as_deref();
    pod.annotation(SAVED).is_some()
        && is_going(pod)
        && is_held(pod, names::POD_FINALIZER)
        && node.is_none_or(|node| is_lost(context, node))
}
