//! A real Ceph cluster on the node's network: `script/lib/servers/ceph.sh`.

#![allow(dead_code, reason = "each test program uses a part of this")]

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
    server: Server,
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
            server,
        }
    }

    /// An image as a source that a VM names itself, by monitors of which one is dead.
    pub(crate) fn source(&self, image: &str) -> String {
        let facts = &self.server.facts;
        let ports = ["1".to_owned(), facts["monitors"][0]["port"].to_string()];
        let ports = ports.into_iter().chain([facts["secondPort"].to_string()]);
        let at = |port| format!("{{name: {}, port: {port}}}", self.server.address);
        let monitors: Vec<_> = ports.map(at).collect();
        format!(
            "rbd: {{monitors: [{}], pool: {}, image: {image}, user: {}, auth: {{secretRef: ceph}}}}",
            monitors.join(", "),
            self.pool,
            self.user,
        )
    }

    /// The same as the spec of a volume, whose Secret the tenant has.
    pub(crate) fn volume(&self, tenant: &Tenant, image: &str) -> String {
        format!(
            "rbd: {{monitors: [\"{}:1\", \"{}\"], pool: {}, image: {image}, user: {}, secretRef: {{name: ceph, namespace: {}}}}}",
            self.server.address, self.monitor, self.pool, self.user, tenant.name
        )
    }

    /// The Secret of both.
    pub(crate) fn secret(&self) -> String {
        format!(
            "---\n{{apiVersion: v1, kind: Secret, metadata: {{name: ceph}}, stringData: {{key: {}}}}}\n---\n",
            self.key
        )
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

    /// All of an image.
    pub(crate) fn bytes(&self, image: &str) -> Vec<u8> {
        let image = format!("{}/{image}", self.pool);
        let export = ["export", "--no-progress", &image, "-"];
        let exported = self.rbd().args(export).output().expect("rbd starts");
        assert!(exported.status.success(), "{image} cannot be read");
        exported.stdout
    }

    /// What a guest has written there.
    pub(crate) fn second_sector(&self, image: &str) -> String {
        let bytes = self.bytes(image);
        let sector = bytes.get(512..1024).expect("the image has bytes");
        let text = sector.split(|byte| [0, b'\n'].contains(byte)).next();
        String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
    }
}
