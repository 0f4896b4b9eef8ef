//! Options of commands that speak to registries.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use disklet::pull::{LoginFrom, Platform, Registry};
use disklet_core::images::Pem;
use disklet_core::images::layers::DiskPath;

/// How an image in a registry is reached, and which disk of it is meant.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Images in registries")]
pub(crate) struct RegistryOptions {
    /// Where in the image the disk is, if not the only file of /disk; of an
    /// artifact, its title
    #[arg(long, value_name = "PATH", value_parser = path)]
    path: Option<DiskPath>,
    /// Of an image for several machines, which one [default: linux on such a
    /// processor as this one]
    #[arg(long, value_name = "OS/ARCHITECTURE", value_parser = platform)]
    platform: Option<Platform>,
    /// Speak http: nothing is encrypted, and anybody on the way may read
    /// credentials
    #[arg(long)]
    plain_http: bool,
    /// Where credentials are, as docker login leaves them [default:
    /// REGISTRY_AUTH_FILE, else config.json in DOCKER_CONFIG or ~/.docker]
    #[arg(long, value_name = "FILE")]
    auth_file: Option<PathBuf>,
    /// Certificates of the authorities to trust, instead of the system's
    #[arg(long, value_name = "FILE")]
    ca_file: Option<String>,
}

impl RegistryOptions {
    /// Whether any of them was given.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            path,
            platform,
            plain_http,
            auth_file,
            ca_file,
        } = self;
        path.is_none()
            && platform.is_none()
            && !plain_http
            && auth_file.is_none()
            && ca_file.is_none()
    }

    /// The same image, as they say.
    pub(crate) fn apply(&self, mut registry: Registry) -> Registry {
        let authorities = self.ca_file.iter().cloned().map(Pem::File);
        registry.transport.tls.authorities.extend(authorities);
        registry.login = LoginFrom::DockerConfig(self.auth_file.clone());
        registry.in_the_clear = self.plain_http;
        registry.path.clone_from(&self.path);
        if let Some(platform) = &self.platform {
            registry.platform = platform.clone();
        }
        registry
    }
}

fn path(text: &str) -> Result<DiskPath, String> {
    DiskPath::parse(text).ok_or_else(|| "no path of a file within an image".to_owned())
}

fn platform(text: &str) -> Result<Platform, String> {
    Platform::parse(text).ok_or_else(|| "a platform is like linux/amd64 or linux/arm/v7".to_owned())
}
