//! A client of the API server.

use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};

/// An answer that takes longer does not come any more. Watches are longer; they
/// have a time of their own.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Connects as the kubeconfig says (`KUBECONFIG`, `~/.kube/config`), or as a pod
/// of the cluster. `program` is by what audit logs know it, such as
/// `disklet-controller`.
///
/// # Errors
/// There is neither, or it cannot be used.
pub async fn connect(program: &str) -> Result<Client, kube::Error> {
    let mut config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    let name = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        config.headers.push((USER_AGENT, name));
    }
    Client::try_from(config)
}
