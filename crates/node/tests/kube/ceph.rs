//! A real Ceph cluster on the node's network: `script/lib/servers/ceph.sh`.

use std::path::PathBuf;
use std::process::Command;

use super::kube::storage::Server;
use super::kube::{Tenant, run};

/// What a disk in it needs.
pub(crate) struct Ceph {
    pub(crate) monitor: String,
    pub(crate) pool: String,
    pub(crate) image: String,
    pub(crate) user: String,
    pub(crate) key: String,
    configuration: PathBuf,
    _server: Server,
}

impl Ceph {
    pub(crate) fn start(tenant: &Tenant) -> Self {
        let server = Server::start(tenant, "ceph");
        let text = |key: &str| server.facts[key].as_str().expect("a text").to_owned();
        let key = std::fs::read_to_string(text("keyFile")).expect("a key");
        Self {
            monitor: format!("{}:{}", server.address, server.facts["monitors"][0]["port"]),
            pool: text("pool"),
            image: text("image"),
            user: text("user"),
            key: key.trim().to_owned(),
            configuration: text("conf").into(),
            _server: server,
        }
    }

    fn rbd(&self) -> Command {
        let mut rbd = Command::new("rbd");
        rbd.arg("--conf").arg(&self.configuration);
        rbd
    }

    /// Has another image with the same bytes.
    pub(crate) fn copy(&self, name: &str) {
        let image = |name: &str| format!("{}/{name}", self.pool);
        run(self
            .rbd()
            .args(["cp", "--no-progress", &image(&self.image), &image(name)]));
    }

    /// What a guest has written there.
    pub(crate) fn second_sector(&self, image: &str) -> String {
        let image = format!("{}/{image}", self.pool);
        let bytes = self
            .rbd()
            .args(["export", "--no-progress", &image, "-"])
            .output();
        let bytes = bytes.expect("rbd starts").stdout;
        let sector = bytes.get(512..1024).expect("the image has bytes");
        let text = sector.split(|byte| [0, b'\n'].contains(byte)).next();
        String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
    }
}
