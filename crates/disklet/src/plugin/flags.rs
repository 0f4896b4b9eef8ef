//! Which cluster, and as whom: the flags of kubectl.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use hyper::header::{HeaderValue, USER_AGENT};
use kube::Config;
use kube::config::{AuthInfo, KubeConfigOptions};

use disklet::cluster::kubeconfig::{Wanted, find};
use disklet::vms::duration;
use disklet_core::names::Namespace;

use super::names;
use crate::refusal::Refusal;

#[derive(Debug, Clone, Default, ClapArgs)]
#[command(next_help_heading = "Which cluster, as for kubectl")]
pub(super) struct KubeArgs {
    /// The kubeconfig [default: KUBECONFIG, ~/.kube/config]
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,

    /// The kubeconfig's context [default: its current one]
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,

    /// The namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = names::namespace, global = true)]
    pub(super) namespace: Option<Namespace>,

    /// The kubeconfig's cluster
    #[arg(long, value_name = "NAME", global = true)]
    cluster: Option<String>,

    /// The kubeconfig's user
    #[arg(long, value_name = "NAME", global = true)]
    user: Option<String>,

    /// Address of the API server
    #[arg(short, long, value_name = "URL", global = true)]
    server: Option<String>,

    /// Bearer token for the API server
    #[arg(long, value_name = "TOKEN", global = true, hide_env_values = true)]
    token: Option<String>,

    /// As whom, if you may
    #[arg(long = "as", value_name = "USER", global = true)]
    impersonate: Option<String>,

    /// As a member of which group, if you may; may be given several times
    #[arg(long = "as-group", value_name = "GROUP", global = true)]
    impersonate_groups: Vec<String>,

    /// As whom, by the UID, if you may
    #[arg(long = "as-uid", value_name = "UID", global = true)]
    impersonate_uid: Option<String>,

    /// Take whoever answers for the API server: anybody may be it
    #[arg(long, global = true, conflicts_with = "certificate_authority")]
    insecure_skip_tls_verify: bool,

    /// Certificates (PEM) that vouch for the API server
    #[arg(long, value_name = "FILE", global = true)]
    certificate_authority: Option<PathBuf>,

    /// The name that the API server's certificate has, if not that of its address
    #[arg(long, value_name = "NAME", global = true)]
    tls_server_name: Option<String>,

    /// Your certificate (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    client_certificate: Option<String>,

    /// The key of your certificate (PEM)
    #[arg(long, value_name = "FILE", global = true)]
    client_key: Option<String>,

    /// How long a single answer may take, such as 5s, 2m or 1h; 0 is without end
    #[arg(long, value_name = "TIME", value_parser = duration, global = true)]
    request_timeout: Option<Duration>,
}

/// Unless something else is said.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

impl KubeArgs {
    /// How to reach the cluster.
    pub(super) async fn configuration(&self) -> Result<Config, Refusal> {
        let wanted = Wanted {
            kubeconfig: self.kubeconfig.as_deref(),
            server: self.server.as_deref(),
            options: KubeConfigOptions {
                context: self.context.clone(),
                cluster: self.cluster.clone(),
                user: self.user.clone(),
            },
        };
        let mut config = find(&wanted).await?;
        if let Some(token) = &self.token {
            config.auth_info.token = Some(token.clone().into());
            config.auth_info.token_file = None;
            config.auth_info.exec = None;
            config.auth_info.auth_provider = None;
            config.auth_info.username = None;
        }
        self.come_as(&mut config.auth_info);
        self.trust(&mut config)?;
        let agent = concat!("kubectl-disklet/", env!("CARGO_PKG_VERSION"));
        let agent = HeaderValue::from_static(agent);
        config.headers.push((USER_AGENT, agent));
        Ok(config)
    }

    fn come_as(&self, user: &mut AuthInfo) {
        if self.impersonate.is_some() {
            user.impersonate.clone_from(&self.impersonate);
        }
        if self.impersonate_uid.is_some() {
            user.impersonate_uid.clone_from(&self.impersonate_uid);
        }
        if !self.impersonate_groups.is_empty() {
            user.impersonate_groups = Some(self.impersonate_groups.clone());
        }
        if self.client_certificate.is_some() {
            user.client_certificate.clone_from(&self.client_certificate);
            user.client_certificate_data = None;
            user.exec = None;
        }
        if self.client_key.is_some() {
            user.client_key.clone_from(&self.client_key);
            user.client_key_data = None;
        }
    }

    /// By what the API server is known.
    fn trust(&self, config: &mut Config) -> Result<(), Refusal> {
        if let Some(path) = &self.certificate_authority {
            File::open(path).map_err(|error| {
                Refusal::new(format!(
                    "--certificate-authority {path:?} cannot be read: {error}"
                ))
                .help("a file with certificates in PEM")
            })?;
            config.accept_invalid_certs = false;
            // The file's certificates take the place of all others.
            config.root_cert = Some(Vec::new());
            config.root_cert_file = Some(path.clone());
        }
        if self.insecure_skip_tls_verify {
            config.accept_invalid_certs = true;
        }
        if self.tls_server_name.is_some() {
            config.tls_server_name.clone_from(&self.tls_server_name);
        }
        Ok(())
    }

    /// How long to wait for an answer.
    pub(super) fn patience(&self) -> Duration {
        match self.request_timeout {
            None => ANSWER_WITHIN,
            Some(Duration::ZERO) => Duration::from_secs(u64::from(u32::MAX)),
            Some(patience) => patience,
        }
    }
}
