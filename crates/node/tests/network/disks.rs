//! Disks at the servers, as manifests name them.

use crate::support::servers::{Kind, Server};

/// A disk at a server.
#[derive(Debug, Clone)]
pub(crate) struct ServerDisk {
    /// What stands under `source`.
    pub(crate) source: String,
    /// The objects that it refers to.
    pub(crate) objects: String,
    /// The first line of its first sector.
    pub(crate) text: String,
    /// Its protocol can write.
    pub(crate) writable: bool,
}

impl ServerDisk {
    fn new(source: String, text: &str) -> Self {
        Self {
            source,
            objects: String::new(),
            text: text.to_owned(),
            writable: true,
        }
    }

    fn with(mut self, objects: String) -> Self {
        self.objects = objects;
        self
    }

    fn read_only(mut self) -> Self {
        self.writable = false;
        self
    }

    /// As an item of a VM's list of disks, with more fields.
    pub(crate) fn item(&self, fields: &str) -> String {
        format!("      - source: {{{}}}\n{fields}", self.source)
    }
}

/// By cephx, at a cluster of which one monitor is named twice and one is dead.
pub(crate) fn rbd() -> ServerDisk {
    rbd_at(Server::shared(Kind::Ceph))
}

/// The same at a server of a test's own.
pub(crate) fn rbd_at(ceph: &Server) -> ServerDisk {
    let monitors: Vec<_> = [
        1,
        ceph.number("/monitors/0/port"),
        ceph.number("/secondPort"),
    ]
    .map(|port| format!("{{name: {}, port: {port}}}", ceph.text("/monitors/0/host")))
    .to_vec();
    let source = format!(
        "rbd: {{monitors: [{}], pool: {}, image: {}, user: {}, auth: {{secretRef: ceph}}}}",
        monitors.join(", "),
        ceph.text("/pool"),
        ceph.text("/image"),
        ceph.text("/user"),
    );
    ServerDisk::new(source, ceph.text("/text")).with(ceph_secret(ceph))
}

pub(crate) fn ceph_secret(ceph: &Server) -> String {
    secret("ceph", &[("key", &ceph.contents("/keyFile"))])
}

/// For everybody.
pub(crate) fn iscsi_open() -> ServerDisk {
    iscsi(Server::shared(Kind::Iscsi), "open", "")
}

/// With CHAP; by a name of its own if told one.
pub(crate) fn iscsi_chap(target: &str, initiator: Option<&str>) -> ServerDisk {
    let initiator = initiator.map_or(String::new(), |name| format!(", initiator: '{name}'"));
    iscsi_chap_at(Server::shared(Kind::Iscsi), target, &initiator)
}

/// The same at a server of a test's own.
pub(crate) fn iscsi_chap_at(server: &Server, target: &str, more: &str) -> ServerDisk {
    let more = format!(", auth: {{secretRef: chap}}{more}");
    iscsi(server, target, &more).with(chap_secret(server))
}

pub(crate) fn chap_secret(server: &Server) -> String {
    let (user, password) = (
        server.text("/chap/user"),
        server.contents("/chap/passwordFile"),
    );
    let names = ["node.session.auth.username", "node.session.auth.password"];
    secret("chap", &[(names[0], user), (names[1], &password)])
}

fn iscsi(server: &Server, target: &str, more: &str) -> ServerDisk {
    let source = format!(
        "iscsi: {{host: {{name: {}, port: '{}'}}, portal: '{}', lun: {}{more}}}",
        server.text("/host"),
        server.number("/port"),
        server.text(&format!("/{target}/iqn")),
        server.number(&format!("/{target}/lun")),
    );
    ServerDisk::new(source, server.text(&format!("/{target}/text")))
}

/// On a port: `tcp`, `empty` for the export without a name, or `tls`.
pub(crate) fn nbd(server: &Server, export: &str) -> ServerDisk {
    let source = format!(
        "nbd: {{host: {{name: {}, port: {}}}, export: '{}', tls: {}}}",
        server.text("/host"),
        server.number(&format!("/{export}/port")),
        server.text(&format!("/{export}/export")),
        export == "tls",
    );
    ServerDisk::new(source, server.text(&format!("/{export}/text")))
}

/// On a socket, where an administrator has to have put it for VMs to use it.
pub(crate) fn nbd_socket(run_dir: &std::path::Path) -> ServerDisk {
    let server = Server::shared(Kind::Nbd);
    let socket = run_dir.join("nbd/disk");
    std::fs::create_dir_all(socket.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(server.text("/unix/socket"), &socket).unwrap();
    let source = format!(
        "nbd: {{unix: {}, export: {}}}",
        socket.display(),
        server.text("/unix/export")
    );
    ServerDisk::new(source, server.text("/unix/text"))
}

pub(crate) fn gluster() -> ServerDisk {
    let server = Server::shared(Kind::Gluster);
    let source = format!(
        "gluster: {{hosts: [{{name: {}, port: {}}}], volume: {}, path: /{}}}",
        server.text("/host"),
        server.number("/port"),
        server.text("/volume"),
        server.text("/path"),
    );
    ServerDisk::new(source, server.text("/text"))
}

/// In the clear, or not.
pub(crate) fn web(server: &Server, scheme: &str) -> ServerDisk {
    let port = match scheme {
        "https" => "/tlsPort",
        _ => "/port",
    };
    let source = format!(
        "http: {{url: '{scheme}://{}:{}/{}'}}",
        server.text("/host"),
        server.number(port),
        server.text("/raw"),
    );
    ServerDisk::new(source, server.text("/text")).read_only()
}

fn secret(name: &str, data: &[(&str, &str)]) -> String {
    let data: String = data
        .iter()
        .map(|(key, value)| format!("  {key}: '{value}'\n"))
        .collect();
    format!("---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData:\n{data}")
}

/// A VM object with these disks, and the objects that it needs.
pub(crate) fn vm(name: &str, disks: &str, objects: &str) -> String {
    format!(
        "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {{name: {name}}}\nspec:\n  domain:\n    memory: 64Mi\n\
         \x20   devices:\n      disks:\n{disks}{objects}"
    )
}
