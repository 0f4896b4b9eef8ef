//! A client of the API server.

use std::time::Duration;

use hyper::header::{HeaderValue, USER_AGENT};
use kube::{Client, Config};

use super::credentials::settle;
use super::kubeconfig::{Wanted, find};
use super::trouble::Trouble;

/// An answer that takes longer does not come any more. Watches are longer; they
/// have a time of their own.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Connects as the kubeconfig says (`KUBECONFIG`, `~/.kube/config`), or as a pod
/// of the cluster. `program` is by what audit logs know it, such as
/// `disklet-controller`.
///
/// # Errors
/// There is neither, or it cannot be used.
pub async fn connect(program: &str) -> Result<Client, Trouble> {
    let mut config = find(&Wanted::default()).await?;
    let name = format!("{program}/{}", env!("CARGO_PKG_VERSION"));
    if let Ok(name) = HeaderValue::from_str(&name) {
        config.headers.push((USER_AGENT, name));
    }
    client_of(config)
}

/// A client that comes as a configuration says.
///
/// # Errors
/// It cannot be used.
pub fn client_of(mut config: Config) -> Result<Client, Trouble> {
    settle(&mut config.auth_info)?;
    Client::try_from(config).map_err(|error| Trouble::of(&error))
}
