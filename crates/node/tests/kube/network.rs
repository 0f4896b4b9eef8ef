//! Servers of NBD, Gluster and the web on the node's network, and what an administrator
//! does so that VMs of the node may use them.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::kube::guests::NODE;
use super::kube::storage::{Folder, QEMU, Server, Tied, write_disk};
use super::kube::{Tenant, on_node, repository, run};
use super::world::{processes, replace_pod};

/// Some exports by TCP, one of them with TLS.
pub(crate) struct Nbd(Server);

impl Nbd {
    pub(crate) fn start(tenant: &Tenant) -> Self {
        Self(Server::start(tenant, "nbd"))
    }

    /// `tcp` or `tls`.
    pub(crate) fn source(&self, which: &str) -> String {
        let facts = &self.0.facts[which];
        format!(
            "nbd: {{host: {{name: {}, port: {}}}, export: {}, tls: {}}}",
            self.0.address,
            facts["port"],
            facts["export"],
            which == "tls"
        )
    }

    /// What it exports there.
    pub(crate) fn file(&self, which: &str) -> PathBuf {
        self.0.directory.join(format!("{which}.raw"))
    }

    /// What clients that it lets in have to have.
    fn certificates(&self) -> PathBuf {
        self.0.directory.join("pki")
    }
}

/// One that listens on a socket of the node, where VMs may use it.
pub(crate) struct NbdSocket {
    path: String,
    pub(crate) file: PathBuf,
    _process: Tied,
}

impl NbdSocket {
    pub(crate) fn start(tenant: &Tenant, folder: &Folder) -> Self {
        let file = folder.0.join("socket.raw");
        write_disk(&file, "disk of nbd socket");
        let path = format!("/run/disklet/nbd/{}", tenant.name);
        let serve = "mkdir -p /run/disklet/nbd
            qemu-nbd --persistent --shared=0 -f raw -x disk -k \"$1\" \"$2\" </dev/null >/dev/null & server=$!
            until [ -S \"$1\" ]; do sleep 0.1; done
            chmod 0666 \"$1\"
            echo ready; cat >/dev/null
            kill $server; wait $server; rm -f \"$1\"";
        let mut command = Command::new(repository().join("script/kube"));
        command.args(["exec", NODE, "sh", "-c", serve, "sh", &path]);
        let (process, said) = Tied::start(command.arg(&file));
        assert_eq!(said.trim(), "ready");
        Self {
            path,
            file,
            _process: process,
        }
    }

    pub(crate) fn source(&self) -> String {
        format!("nbd: {{unix: {}, export: disk}}", self.path)
    }
}

/// A volume with a disk in a folder, and with one for a claim.
pub(crate) struct Gluster(Server);

impl Gluster {
    pub(crate) fn start(tenant: &Tenant) -> Self {
        let server = Self(Server::start(tenant, "gluster"));
        for file in [server.file(), server.claimed_file()] {
            // Gluster knows who asks: QEMU's user, who may.
            chown(file, Some(QEMU), Some(QEMU)).expect("root");
        }
        server
    }

    fn text(&self, key: &str) -> &str {
        self.0.facts[key].as_str().expect("a text")
    }

    pub(crate) fn source(&self) -> String {
        format!(
            "gluster: {{hosts: [{{name: {}, port: {}}}], volume: {}, path: /{}}}",
            self.text("host"),
            self.0.facts["port"],
            self.text("volume"),
            self.text("path"),
        )
    }

    /// The spec of a volume.
    pub(crate) fn volume(&self) -> String {
        format!(
            "glusterfs: {{endpoints: gluster, path: {}}}",
            self.text("volume")
        )
    }

    /// Where the volume's servers are.
    pub(crate) fn endpoints(&self) -> String {
        format!(
            "{{apiVersion: v1, kind: Endpoints, metadata: {{name: gluster}}, \
             subsets: [{{addresses: [{{ip: {}}}], ports: [{{port: 1}}]}}]}}\n---\n",
            self.text("host")
        )
    }

    /// The first disk, where the server has it.
    pub(crate) fn file(&self) -> PathBuf {
        self.0.directory.join("brick").join(self.text("path"))
    }

    pub(crate) fn claimed_file(&self) -> PathBuf {
        self.0.directory.join("brick/disk.img")
    }
}

impl Drop for Gluster {
    fn drop(&mut self) {
        // The server has given it to the node, and cannot take it back.
        let address = format!("{}/32", self.text("host"));
        on_node(NODE, &["ip", "address", "del", &address, "dev", "lo"]);
    }
}

/// Apache.
pub(crate) struct Web(Server);

impl Web {
    pub(crate) fn start(tenant: &Tenant) -> Self {
        Self(Server::start(tenant, "http"))
    }

    /// `http` or `https`.
    pub(crate) fn source(&self, scheme: &str) -> String {
        let port = match scheme {
            "https" => "tlsPort",
            _ => "port",
        };
        let (address, port) = (&self.0.address, &self.0.facts[port]);
        format!("http: {{url: \"{scheme}://{address}:{port}/disk.raw\"}}")
    }

    fn authority(&self) -> &Path {
        Path::new(self.0.facts["caFile"].as_str().expect("a path"))
    }
}

/// Where nodes have certificates for NBD unless their configuration names another place.
const CERTIFICATES: &str = "/etc/pki/qemu";
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The node as its administrator has to have set it up; as before when this is dropped.
pub(crate) struct Prepared {
    configuration: String,
    libvirtd: String,
}

impl Prepared {
    pub(crate) fn new(folder: &Folder, nbd: &Nbd, web: &Web) -> Self {
        let shared = folder.volume("certificates");
        for file in ["ca-cert.pem", "client-cert.pem", "client-key.pem"] {
            let copy = shared.join(file);
            fs::copy(nbd.certificates().join(file), &copy).expect("a copy");
            let copy = copy.display().to_string();
            let owner = QEMU.to_string();
            let install = ["install", "-o", &owner, "-m", "0400", &copy, CERTIFICATES];
            on_node(NODE, &install);
        }
        // What an image of one's own would have: the authority of one's own servers.
        let [libvirtd] = &processes("libvirtd")[..] else {
            panic!("one libvirtd is expected");
        };
        let authority = shared.join("authority.pem");
        fs::copy(web.authority(), &authority).expect("a copy");
        let trust = "cp \"$1\" \"$1.before\" && cat \"$2\" >>\"$1\"";
        let prepared = Self {
            configuration: configuration(),
            libvirtd: libvirtd.clone(),
        };
        let authority = authority.display().to_string();
        on_node(
            NODE,
            &["sh", "-c", trust, "sh", &prepared.authorities(), &authority],
        );
        let web = format!("{}\nnetworks: {{web: true}}\n", prepared.configuration);
        configure(&web);
        prepared
    }

    /// Those whom QEMU trusts.
    fn authorities(&self) -> String {
        format!("/proc/{}/root{AUTHORITIES}", self.libvirtd)
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let undo = "rm -f \"$1\"/*.pem; mv \"$2.before\" \"$2\"";
        let authorities = self.authorities();
        on_node(NODE, &["sh", "-c", undo, "sh", CERTIFICATES, &authorities]);
        configure(&self.configuration);
    }
}

const CONFIGURATION: [&str; 4] = ["-n", "disklet", "configmap", "disklet-config"];

fn configuration() -> String {
    let text = "jsonpath={.data.config\\.yaml}";
    run(Command::new("kubectl")
        .arg("get")
        .args(CONFIGURATION)
        .args(["-o", text]))
}

/// Agents read it when they start.
fn configure(text: &str) {
    let patch = serde_json::json!({"data": {"config.yaml": text}}).to_string();
    run(Command::new("kubectl")
        .arg("patch")
        .args(CONFIGURATION)
        .args(["--type=merge", "-p", &patch]));
    replace_pod("agent");
}
