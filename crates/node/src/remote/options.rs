//! Storage at a server in QEMU's words.

use disklet_core::source::{Nbd, NbdServer, Network, WebFile};
use serde_json::{Map, Value, json};

use super::Login;

/// By which name QEMU knows the key of whoever logs in.
pub(super) const KEY: &str = "key";

/// By which name QEMU knows the node's certificates.
pub(super) const CERTIFICATES: &str = "certificates";

/// How many seconds a server may take for an answer.
const ANSWER: u64 = 30;

/// The options of QEMU's driver for it, unless it is a file that is better read
/// without QEMU. Only reading is asked for.
pub(super) fn driver<'n>(
    network: &'n Network,
    login: Option<&Login<'_>>,
) -> Result<Value, &'n WebFile> {
    let mut options = Map::new();
    let mut set = |name: &str, value: Value| drop(options.insert(name.to_owned(), value));
    set("read-only", json!(true));
    match network {
        Network::Iscsi(unit) => {
            set("driver", json!("iscsi"));
            set("transport", json!("tcp"));
            set("portal", json!(unit.portal.to_string()));
            set("target", json!(unit.target.to_string()));
            set("lun", json!(unit.lun));
            set("timeout", json!(ANSWER));
            if let Some(initiator) = &unit.initiator {
                set("initiator-name", json!(initiator.to_string()));
            }
            if let Some(login) = login {
                set("user", json!(login.user));
                set("password-secret", json!(KEY));
            }
        }
        Network::Rbd(rbd) => {
            let monitors = rbd.monitors.iter();
            let monitors =
                monitors.map(|it| json!({"host": it.host(), "port": it.port().to_string()}));
            set("driver", json!("rbd"));
            set("pool", json!(rbd.pool.as_str()));
            set("image", json!(rbd.image.as_str()));
            set("server", monitors.collect());
            // What the machine's own clients go by is no concern of this one.
            set("conf", json!("/dev/null"));
            match login {
                Some(login) => {
                    set("user", json!(login.user));
                    set("key-secret", json!(KEY));
                    set("auth-client-required", json!(["cephx"]));
                }
                None => set("auth-client-required", json!(["none"])),
            }
        }
        Network::Gluster(file) => {
            let hosts = file.hosts.iter();
            let hosts = hosts.map(
                |it| json!({"type": "inet", "host": it.host(), "port": it.port().to_string()}),
            );
            set("driver", json!("gluster"));
            set("volume", json!(file.volume.as_str()));
            set("path", json!(file.path.as_str()));
            set("server", hosts.collect());
        }
        Network::Nbd(nbd) => {
            set("driver", json!("nbd"));
            set("server", nbd_server(nbd));
            set("export", json!(nbd.export.as_str()));
            set("open-timeout", json!(0));
            if nbd.tls {
                set("tls-creds", json!(CERTIFICATES));
            }
        }
        Network::Http(file) => return Err(file),
    }
    Ok(Value::Object(options))
}

fn nbd_server(nbd: &Nbd) -> Value {
    match &nbd.server {
        NbdServer::Tcp(at) => {
            json!({"type": "inet", "host": at.host(), "port": at.port().to_string()})
        }
        NbdServer::Unix(path) => json!({"type": "unix", "path": path.as_str()}),
    }
}

#[cfg(test)]
mod tests {
    use disklet_core::source::{
        Endpoint, Gluster, GlusterPath, GlusterVolume, Iqn, Iscsi, Lun, NbdExport, SocketPath,
    };
    use disklet_core::text::Secret;

    use super::*;

    fn at(host: &str, port: u16) -> Endpoint {
        Endpoint::new(host, port).unwrap()
    }

    #[test]
    fn a_unit_is_named_with_its_login_and_without_its_password() {
        let unit = Network::Iscsi(Iscsi {
            portal: at("fd00::1", 3260),
            target: Iqn::parse("iqn.2026-01.com.example:a").unwrap(),
            lun: Lun::new(7).unwrap(),
            initiator: Iqn::parse("iqn.2026-01.com.example:me"),
        });
        let login = Login {
            user: "me",
            key: Secret::new(b"secret".to_vec()),
        };
        assert_eq!(
            driver(&unit, Some(&login)).unwrap(),
            json!({
                "driver": "iscsi", "read-only": true, "transport": "tcp", "timeout": 30,
                "portal": "[fd00::1]:3260", "target": "iqn.2026-01.com.example:a", "lun": 7,
                "initiator-name": "iqn.2026-01.com.example:me",
                "user": "me", "password-secret": "key",
            })
        );
    }

    #[test]
    fn exports_are_at_ports_and_sockets() {
        let export = |server| {
            let nbd = Nbd {
                server,
                export: NbdExport::parse("x").unwrap(),
                tls: true,
            };
            driver(&Network::Nbd(nbd), None).unwrap()
        };
        let tcp = export(NbdServer::Tcp(at("a", 1)));
        assert_eq!(
            tcp["server"],
            json!({"type": "inet", "host": "a", "port": "1"})
        );
        assert_eq!(tcp["tls-creds"], "certificates");
        let unix = export(NbdServer::Unix(SocketPath::parse("/run/s").unwrap()));
        assert_eq!(unix["server"], json!({"type": "unix", "path": "/run/s"}));
    }

    #[test]
    fn gluster_has_all_its_servers() {
        let file = Network::Gluster(Gluster {
            hosts: vec![at("10.0.0.1", 24007), at("10.0.0.2", 1)],
            volume: GlusterVolume::parse("v").unwrap(),
            path: GlusterPath::parse("a/b").unwrap(),
        });
        let servers = driver(&file, None).unwrap()["server"].clone();
        assert_eq!(
            servers[1],
            json!({"type": "inet", "host": "10.0.0.2", "port": "1"})
        );
    }
}
