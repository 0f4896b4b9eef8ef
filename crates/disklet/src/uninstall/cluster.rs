//! The cluster that is asked.

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::config::KubeConfigOptions;
use kube::core::Status;

use disklet::cluster::client::client_of;
use disklet::cluster::kubeconfig::{Wanted, find};

use super::ours::Ours;
use super::{Refusal, UninstallArgs};

/// A connection, and where Disklet is in the cluster.
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) dry_run: bool,
}

impl Cluster {
    pub(super) async fn connect(args: &UninstallArgs) -> Result<Self, Refusal> {
        let wanted = Wanted {
            kubeconfig: args.kubeconfig.as_deref(),
            options: KubeConfigOptions {
                context: args.context.clone(),
                ..KubeConfigOptions::default()
            },
            ..Wanted::default()
        };
        Ok(Self {
            client: client_of(find(&wanted).await?)?,
            namespace: args.namespace.to_string(),
            dry_run: args.dry_run,
        })
    }

    /// The place of objects of that kind.
    pub(super) fn api(&self, object: &Ours) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: object.group.to_owned(),
            version: object.version.to_owned(),
            api_version: match object.group {
                "" => object.version.to_owned(),
                group => format!("{group}/{}", object.version),
            },
            kind: object.kind.to_owned(),
            plural: object.plural.to_owned(),
        };
        let client = self.client.clone();
        match object.is_namespaced {
            true => Api::namespaced_with(client, &self.namespace, &resource),
            false => Api::all_with(client, &resource),
        }
    }
}

/// What the API server did not do.
pub(super) fn failed(what: &str, error: &kube::Error) -> Refusal {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            Refusal::new(format!("{what}: {}", status.message))
                .help("an administrator of the cluster may do this")
        }
        error => Refusal::of(what, error),
    }
}

/// Whether it says that there is no such thing.
pub(super) fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if is_not_found(status))
}

fn is_not_found(status: &Status) -> bool {
    status.code == 404
}
