//! Whether a VM pod's claims are devices, where the pod does not say so: all of its
//! claims are disks, and the kubelet mounts the ones and maps the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Client;
use kube::api::Api;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::review::Unsaid;

/// Whoever creates a pod waits for this.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// No VM has so many disks.
const MOST: usize = 32;

/// What is known of claims.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// Those that are devices.
    pub(super) blocks: BTreeSet<String>,
    /// Those of which nobody knows. They are taken for what Kubernetes takes a claim for
    /// that says nothing: a filesystem.
    pub(super) unknown: BTreeMap<String, Unknown>,
}

/// Why nothing is known of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unknown {
    /// It is not there, or not yet.
    Missing,
    /// It was not told in time.
    Unanswered,
}

impl Unknown {
    /// What its author is told.
    pub(super) fn in_words(self, claim: &str) -> String {
        let why = match self {
            Self::Missing => format!("there is no claim {claim:?} yet"),
            Self::Unanswered => format!("claim {claim:?} was not looked up in time"),
        };
        format!(
            "{why}, so it is taken for a filesystem (help: of a device, name the volume in volumeDevices, or create the claim before the pod)"
        )
    }
}

enum Found {
    Device,
    Filesystem,
    Nothing(Unknown),
}

/// Asks for claims, when it is somebody's `turn`.
pub(super) async fn look<T>(
    client: &Client,
    unsaid: &Unsaid,
    turn: impl Future<Output = T>,
) -> Claims {
    let until = Instant::now() + PATIENCE;
    let names = || unsaid.claims.iter().take(MOST);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &unsaid.namespace);
    let found = match timeout_at(until, turn).await {
        Ok(_turn) => join_all(names().map(|name| ask(&claims, name, until))).await,
        Err(_) => names()
            .map(|_| Found::Nothing(Unknown::Unanswered))
            .collect(),
    };
    let mut known = Claims::default();
    for (name, found) in names().zip(found) {
        match found {
            Found::Device => drop(known.blocks.insert(name.clone())),
            Found::Filesystem => {}
            Found::Nothing(why) => drop(known.unknown.insert(name.clone(), why)),
        }
    }
    known
}

async fn ask(claims: &Api<PersistentVolumeClaim>, name: &str, until: Instant) -> Found {
    match timeout_at(until, claims.get_opt(name)).await {
        Ok(Ok(Some(claim))) => {
            let mode = claim.spec.and_then(|spec| spec.volume_mode);
            match mode.as_deref() {
                Some("Block") => Found::Device,
                _ => Found::Filesystem,
            }
        }
        Ok(Ok(None)) => Found::Nothing(Unknown::Missing),
        Ok(Err(error)) => {
            debug!(%error, name, "a claim is not known");
            Found::Nothing(Unknown::Unanswered)
        }
        Err(_) => Found::Nothing(Unknown::Unanswered),
    }
}
