//! Looks at every VM whenever something has changed that concerns it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::runtime::controller::{Action as Next, Error};
use kube::runtime::{Config, applier};
use tracing::{debug, warn};

use disklet::cluster::health::Health;
use disklet::cluster::names;

use super::act::{self, Acting, Failure};
use super::context::Context;
use super::decide::decide;
use super::fresh::BELIEVED_FOR;
use super::gather::gather;
use super::objects::{ClaimObject, Key, Vm, is_held};
use super::{ClaimQueue, VmQueue};

/// So many VMs are looked at at the same time; the API server has others to
/// serve.
const AT_ONCE: u16 = 16;
/// What was decided by an old version is decided again a moment later, when the
/// watch has told of the new one.
const SOON: Duration = Duration::from_millis(200);

/// Returns only if the watches end.
pub(super) async fn forever(
    context: &Arc<Context>,
    vms: VmQueue,
    claims: ClaimQueue,
    health: &Health,
) {
    if !context.caches.filled().await {
        return;
    }
    health.set_ready(true);
    let config = Config::default().concurrency(AT_ONCE);
    let vms = applier(
        |vm, context| Box::pin(look(vm, context)),
        |vm, failure, context| again(&Key::of(&*vm), failure, &context),
        Arc::clone(context),
        context.caches.vms.clone(),
        vms.map(Ok::<_, Never>),
        config.clone(),
    );
    let claims = applier(
        |claim, context| Box::pin(look_at_claim(claim, context)),
        |claim, failure, context| again(&Key::of(&*claim), failure, &context),
        Arc::clone(context),
        context.caches.claims.clone(),
        claims.map(Ok::<_, Never>),
        config,
    );
    let vms = vms.for_each(|done| {
        if let Some(gone) = done.err().and_then(told) {
            context.forget_vm(&gone);
        }
        std::future::ready(())
    });
    let claims = claims.for_each(|done| {
        if let Some(gone) = done.err().and_then(told) {
            context.fresh_claims.forget(&gone);
        }
        std::future::ready(())
    });
    tokio::select! {
        () = vms => {}
        () = claims => {}
    }
}

/// A queue that cannot fail.
#[derive(Debug)]
enum Never {}

impl std::fmt::Display for Never {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Never {}

/// Logs what went wrong; what is gone is returned instead.
fn told(error: Error<Failure, Never>) -> Option<Key> {
    match error {
        Error::ReconcilerFailed(Failure::Outdated, object) => {
            debug!(%object, "has changed meanwhile");
        }
        Error::ReconcilerFailed(failure, object) => warn!(%object, %failure, "tried again later"),
        Error::ObjectNotFound(object) => {
            let namespace = object.namespace.as_deref().unwrap_or_default();
            return Some(Key::new(namespace, &object.name));
        }
        other => warn!(error = %other, "not looked at"),
    }
    None
}

/// When to look again after a failure.
fn again(key: &Key, failure: &Failure, context: &Context) -> Next {
    Next::requeue(match failure {
        Failure::Outdated => SOON,
        Failure::Api(_) | Failure::TooSlow => context.failures.one_more(key),
    })
}

async fn look(vm: Arc<Vm>, context: Arc<Context>) -> Result<Next, Failure> {
    let (key, began) = (Key::of(&*vm), Instant::now());
    let looked = gather_and_act(vm, &context).await;
    let outcome = match &looked {
        Ok(_) => "done",
        Err(Failure::Outdated) => "outdated",
        Err(_) => "failed",
    };
    context.metrics.reconciled(outcome, began.elapsed());
    if looked.is_ok() {
        context.failures.forget(&key);
    }
    looked
}

async fn gather_and_act(vm: Arc<Vm>, context: &Context) -> Result<Next, Failure> {
    let key = Key::of(&*vm);
    let Some(mut gathered) = gather(context, vm) else {
        return Ok(Next::await_change());
    };
    let decision = decide(&gathered.seen);
    let mut acting = Acting {
        context,
        gathered: &mut gathered,
    };
    for action in &decision.actions {
        debug!(?action, "doing");
        acting.act(action).await?;
    }
    let again = decision.again.and_then(|again| again.try_into().ok());
    let believed = context.fresh_pods.is_ahead(&key);
    let again = again.or(believed.then_some(BELIEVED_FOR));
    Ok(again.map_or_else(Next::await_change, Next::requeue))
}

/// A claim that no VM uses is not held any more.
async fn look_at_claim(claim: Arc<ClaimObject>, context: Arc<Context>) -> Result<Next, Failure> {
    let key = Key::of(&*claim);
    let claim = context.fresh_claims.newest(&key, Some(claim));
    if let Some(claim) = claim
        && is_held(&*claim, names::CLAIM_FINALIZER)
        && !context.caches.index.is_used(&key)
    {
        act::release_claim(&context, &claim).await?;
    }
    Ok(Next::await_change())
}
