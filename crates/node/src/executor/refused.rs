//! What a server has said that did not give QEMU a disk.
//!
//! QEMU tells of it with the whole argument that it was given, which names the storage, but
//! no disk.

use disklet_core::source::{Nbd, Network};
use serde_json::{Deserializer, Value};

use crate::failure::Failure;
use crate::remote::remedy;

/// Says of a start that a server has refused which disk it was about, and what to do.
pub(super) fn told(failure: Failure, disks: &[(&str, &Network)]) -> Failure {
    let mut help = None;
    let failure = failure.reworded(|words| match refusal(words, disks) {
        Some((refusal, remedy)) => {
            help = Some(remedy);
            refusal
        }
        None => words.to_owned(),
    });
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}

/// What was said of which disk, and the remedy; nothing if it was not about a server.
fn refusal(words: &str, disks: &[(&str, &Network)]) -> Option<(String, &'static str)> {
    let (argument, said) = first_argument(words)?;
    let meant = meant(&argument, disks)?;
    let said: Vec<_> = said.lines().map(str::trim).collect();
    let said = said.join("; ");
    let remedy = remedy(&said);
    Some((format!("{meant}: {said}"), remedy))
}

/// The argument that QEMU has stumbled over, and what it says of it.
fn first_argument(words: &str) -> Option<(Value, &str)> {
    let options = ["-blockdev {", "-object {"];
    let starts = options.iter().filter_map(|option| {
        let start = words.find(option)?;
        Some(start + option.len() - 1)
    });
    let text = &words[starts.min()?..];
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let argument = values.next()?.ok()?;
    let said = text[values.byte_offset()..].strip_prefix(": ")?;
    Some((argument, said.trim()))
}

/// The disks that an argument can be for, with their storage.
fn meant(argument: &Value, disks: &[(&str, &Network)]) -> Option<String> {
    let of_kind: Vec<_> = disks
        .iter()
        .filter(|(_, network)| is_for_kind(argument, network))
        .collect();
    let named: Vec<_> = of_kind
        .iter()
        .filter(|(_, network)| has_name(argument, network))
        .collect();
    // How libvirt writes a name may not be how we do.
    let named = match named.is_empty() {
        true => of_kind.iter().collect(),
        false => named,
    };
    let words: Vec<_> = named
        .iter()
        .map(|(disk, network)| format!("disk {disk}: {network}"))
        .collect();
    (!words.is_empty()).then(|| words.join(", or "))
}

fn is_for_kind(argument: &Value, network: &Network) -> bool {
    match argument["driver"].as_str() {
        Some(driver) => driver == network.protocol(),
        None => {
            argument["qom-type"] == "tls-creds-x509"
                && matches!(network, Network::Nbd(Nbd { tls: true, .. }))
        }
    }
}

/// Servers are not compared: their names have become addresses.
fn has_name(argument: &Value, network: &Network) -> bool {
    let text = |key: &str| match &argument[key] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let both = |one: &str, other: &str| format!("{}/{}", text(one), text(other));
    let name = network.name();
    match network {
        Network::Iscsi(_) => both("target", "lun") == name,
        Network::Rbd(_) => both("pool", "image") == name,
        Network::Gluster(_) => both("volume", "path") == name,
        Network::Nbd(_) => text("export") == name,
        Network::Http(_) => text("url").ends_with(&format!("/{name}")),
    }
}

#[cfg(test)]
mod tests {
    use disklet_core::source::{
        CephUser, Endpoint, Iqn, Iscsi, Lun, NbdExport, NbdServer, Rbd, RbdName, WebFile,
    };
    use disklet_core::url::Scheme;

    use super::*;

    const EXITED: &str =
        "internal error: process exited while connecting to monitor: qemu-system-x86_64: ";

    fn at(port: u16) -> Endpoint {
        Endpoint::new("127.0.0.1", port).unwrap()
    }

    fn unit(lun: i64) -> Network {
        Network::Iscsi(Iscsi {
            portal: at(3260),
            target: Iqn::parse("iqn.2024-01.test.disklet:a").unwrap(),
            lun: Lun::new(lun).unwrap(),
            initiator: None,
        })
    }

    fn export(name: &str, tls: bool) -> Network {
        Network::Nbd(Nbd {
            server: NbdServer::Tcp(at(10809)),
            export: NbdExport::parse(name).unwrap(),
            tls,
        })
    }

    fn image() -> Network {
        Network::Rbd(Rbd {
            monitors: vec![at(6789)],
            pool: RbdName::parse("nosuch").unwrap(),
            image: RbdName::parse("i").unwrap(),
            user: CephUser::parse("u").unwrap(),
        })
    }

    fn file() -> Network {
        Network::Http(WebFile {
            scheme: Scheme::Http,
            server: at(80),
            path: "no/such.raw".to_owned(),
            query: None,
        })
    }

    const UNIT: &str = r#"-blockdev {"driver":"iscsi","portal":"127.0.0.1:3260","target":"iqn.2024-01.test.disklet:a","lun":9,"transport":"tcp","node-name":"libvirt-1-storage","auto-read-only":true,"discard":"unmap"}: "#;
    const EXPORT: &str = r#"-blockdev {"driver":"nbd","server":{"type":"inet","host":"127.0.0.1","port":"10809"},"export":"nosuch","node-name":"libvirt-1-storage","auto-read-only":true,"discard":"unmap"}: "#;
    const IMAGE: &str = r#"-blockdev {"driver":"rbd","pool":"nosuch","image":"i","server":[{"host":"127.0.0.1","port":"6789"}],"user":"u","auth-client-required":["cephx","none"],"key-secret":"libvirt-1-storage-auth-secret0","node-name":"libvirt-1-storage","auto-read-only":true,"discard":"unmap"}: "#;
    const FILE: &str = r#"-blockdev {"driver":"http","url":"http://127.0.0.1:80/no/such.raw","node-name":"libvirt-1-storage","read-only":true}: "#;
    const CREDENTIALS: &str = r#"-object {"qom-type":"tls-creds-x509","id":"objlibvirt-1-storage_tls0","dir":"/etc/pki/qemu","endpoint":"client","verify-peer":true}: "#;

    /// With another disk of each kind beside the one that is meant.
    fn refused(argument: &str, said: &str) -> (String, &'static str) {
        let all = [
            ("other", unit(1)),
            ("unit", unit(9)),
            ("good", export("good", false)),
            ("export", export("nosuch", false)),
            ("secure", export("secure", true)),
            ("image", image()),
            ("file", file()),
        ];
        let disks: Vec<_> = all.iter().map(|(disk, network)| (*disk, network)).collect();
        refusal(&format!("{EXITED}{argument}{said}"), &disks).unwrap()
    }

    #[test]
    fn what_servers_refuse_is_told_of_the_disk_with_a_remedy() {
        for (argument, said, meant, help) in [
            (
                UNIT,
                "iSCSI: Failed to connect to LUN : SENSE KEY:ILLEGAL_REQUEST(5) ASCQ:LOGICAL_UNIT_NOT_SUPPORTED(0x2500)",
                "disk unit: iscsi iqn.2024-01.test.disklet:a/9 at 127.0.0.1:3260",
                "has this storage",
            ),
            (
                UNIT,
                "iSCSI: Failed to connect to LUN : Failed to log in to target. Status: Authentication failure(513)",
                "disk unit: iscsi iqn.2024-01.test.disklet:a/9 at 127.0.0.1:3260",
                "password or key",
            ),
            (
                UNIT,
                "iSCSI: Failed to connect to LUN : iscsi_service failed with : iscsi_service_reconnect_if_loggedin. Can not reconnect right now.",
                "disk unit: iscsi iqn.2024-01.test.disklet:a/9 at 127.0.0.1:3260",
                "see that the server runs",
            ),
            (
                EXPORT,
                "Requested export not available",
                "disk export: nbd export nosuch at 127.0.0.1:10809",
                "has this storage",
            ),
            (
                IMAGE,
                "error opening pool nosuch: No such file or directory",
                "disk image: rbd image nosuch/i at 127.0.0.1:6789",
                "has this storage",
            ),
            (
                IMAGE,
                "error connecting: Connection timed out",
                "disk image: rbd image nosuch/i at 127.0.0.1:6789",
                "the key is right",
            ),
            (
                FILE,
                "CURL: Error opening file: The requested URL returned error: 404",
                "disk file: http://127.0.0.1:80/no/such.raw",
                "has this storage",
            ),
            (
                CREDENTIALS,
                "Unable to access credentials /etc/pki/qemu/ca-cert.pem: No such file or directory",
                "disk secure: nbd export secure at 127.0.0.1:10809 (TLS)",
                "check the certificates",
            ),
        ] {
            let (told, remedy) = refused(argument, said);
            assert_eq!(told, format!("{meant}: {said}"));
            assert!(remedy.contains(help), "{said}: {remedy}");
        }
    }

    #[test]
    fn lines_become_one() {
        let said = "Requested export not available\nserver reported: export 'nosuch' not present\n";
        let (told, _) = refused(EXPORT, said);
        let end = ": Requested export not available; server reported: export 'nosuch' not present";
        assert!(told.ends_with(end), "{told}");
    }

    #[test]
    fn what_is_not_of_a_server_is_left_alone() {
        let network = unit(9);
        for words in [
            r#"-blockdev {"driver":"file","filename":"/pool/root"}: Could not open"#,
            r#"-device {"driver":"scsi-hd","drive":"libvirt-1-format"}: no lock"#,
            r#"-blockdev {"driver":"iscsi","target":"cut"#,
            "cannot set up guest memory 'pc.ram': Cannot allocate memory",
        ] {
            assert_eq!(refusal(words, &[("data", &network)]), None, "{words}");
        }
    }
}
