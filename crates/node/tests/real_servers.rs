//! The servers that other tests read disks from: each serves the bytes it says,
//! to whom it says, and leaves nothing behind.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::Machine;
use support::daemon::is_beside_own;
use support::servers::{Kind, Server, beside_servers};

/// What QEMU reads from a disk, or what it says instead.
fn read(disk: &Value, objects: &[&str]) -> Result<Vec<u8>, String> {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let copy = std::env::temp_dir().join(format!("disklet-read-{}-{count}", std::process::id()));
    let output = beside_servers("qemu-img")
        .arg("convert")
        .args(objects.iter().flat_map(|object| ["--object", object]))
        .args(["-O", "raw", &format!("json:{disk}")])
        .arg(&copy)
        .output()
        .unwrap();
    let bytes = std::fs::read(&copy);
    let _ = std::fs::remove_file(&copy);
    if output.status.success() {
        Ok(bytes.unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

/// The whole disk: its first and last sector say whose it is.
fn assert_disk(server: &Server, text: &str, read: Result<Vec<u8>, String>) {
    let size = usize::try_from(server.number("/bytes")).unwrap();
    let line = format!("{text}\n");
    let mut whole = vec![0; size];
    for sector in [0, size - 512] {
        whole[sector..sector + line.len()].copy_from_slice(line.as_bytes());
    }
    let read = read.unwrap_or_else(|error| panic!("{text}: {error}"));
    assert!(read == whole, "{text}: other bytes");
}

fn assert_refused(read: Result<Vec<u8>, String>, because: &str) {
    let error = read.expect_err(because);
    assert!(error.contains(because), "{error}");
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn ceph_serves_its_user() {
    let ceph = Server::shared(Kind::Ceph);
    let disk = |user: &str| {
        json!({"driver": "raw", "file": {
            "driver": "rbd", "pool": ceph.text("/pool"), "image": ceph.text("/image"),
            "server": [{"host": ceph.text("/monitors/0/host"), "port": ceph.number("/monitors/0/port").to_string()}],
            "user": user, "key-secret": "key", "auth-client-required": ["cephx"],
        }})
    };
    let key = format!("secret,id=key,format=base64,file={}", ceph.text("/keyFile"));
    let known = disk(ceph.text("/user"));
    assert_disk(ceph, ceph.text("/text"), read(&known, &[&key]));
    // Ceph does not say no, it says nothing; without the cluster's own
    // configuration for five minutes.
    let mut unknown = disk("other");
    unknown["file"]["conf"] = ceph.text("/conf").into();
    assert_refused(read(&unknown, &[&key]), "Connection timed out");
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn iscsi_serves_everybody_and_who_knows_the_password() {
    let iscsi = Server::shared(Kind::Iscsi);
    let disk = |target: &str| {
        json!({"driver": "raw", "file": {
            "driver": "iscsi", "transport": "tcp",
            "portal": format!("{}:{}", iscsi.text("/host"), iscsi.number("/port")),
            "target": iscsi.text(&format!("/{target}/iqn")),
            "lun": iscsi.number(&format!("/{target}/lun")),
        }})
    };
    assert_disk(iscsi, iscsi.text("/open/text"), read(&disk("open"), &[]));
    assert_refused(read(&disk("chap"), &[]), "Authentication");
    let password = format!(
        "secret,id=password,file={}",
        iscsi.text("/chap/passwordFile")
    );
    for target in ["chap", "second"] {
        let mut disk = disk(target);
        disk["file"]["user"] = iscsi.text("/chap/user").into();
        disk["file"]["password-secret"] = "password".into();
        let text = iscsi.text(&format!("/{target}/text"));
        assert_disk(iscsi, text, read(&disk, &[&password]));
    }
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn nbd_serves_by_tcp_socket_and_tls() {
    let nbd = Server::shared(Kind::Nbd);
    let disk = |kind: &str| {
        let server = match kind {
            "unix" => json!({"type": "unix", "path": nbd.text("/unix/socket")}),
            _ => json!({
                "type": "inet", "host": nbd.text("/host"),
                "port": nbd.number(&format!("/{kind}/port")).to_string(),
            }),
        };
        let export = nbd.text(&format!("/{kind}/export"));
        json!({"driver": "raw", "file": {"driver": "nbd", "server": server, "export": export}})
    };
    for kind in ["tcp", "empty", "unix"] {
        let text = nbd.text(&format!("/{kind}/text"));
        assert_disk(nbd, text, read(&disk(kind), &[]));
    }
    let mut tls = disk("tls");
    assert_refused(read(&tls, &[]), "TLS");
    tls["file"]["tls-creds"] = "tls".into();
    let certificates = format!(
        "tls-creds-x509,id=tls,endpoint=client,dir={}",
        nbd.text("/tls/pki")
    );
    assert_disk(nbd, nbd.text("/tls/text"), read(&tls, &[&certificates]));
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn http_serves_ranges_with_and_without_tls() {
    let http = Server::shared(Kind::Http);
    let disk = |format: &str, path: &str| {
        let url = format!(
            "http://{}:{}/{path}",
            http.text("/host"),
            http.number("/port")
        );
        json!({"driver": format, "file": {"driver": "http", "url": url}})
    };
    for format in ["raw", "qcow2"] {
        let path = http.text(&format!("/{format}"));
        assert_disk(http, http.text("/text"), read(&disk(format, path), &[]));
    }
    for guarded in ["cookie", "query", "basic"] {
        let path = format!("{}/disk.raw", http.text(&format!("/{guarded}/folder")));
        assert_refused(
            read(&disk("raw", &path), &[]),
            "The requested URL returned error: 40",
        );
    }
    let value = http.contents("/cookie/valueFile");
    let mut cookie = disk("raw", "cookie/disk.raw");
    cookie["file"]["cookie"] = format!("ticket={value}").into();
    assert_disk(http, http.text("/cookie/text"), read(&cookie, &[]));
    let query = disk("raw", &format!("query/disk.raw?ticket={value}"));
    assert_disk(http, http.text("/query/text"), read(&query, &[]));
    let mut basic = disk("raw", "basic/disk.raw");
    basic["file"]["username"] = http.text("/basic/user").into();
    basic["file"]["password-secret"] = "password".into();
    let password = format!(
        "secret,id=password,file={}",
        http.text("/basic/passwordFile")
    );
    assert_disk(http, http.text("/basic/text"), read(&basic, &[&password]));
    let url = format!(
        "https://{}:{}/disk.raw",
        http.text("/host"),
        http.number("/tlsPort")
    );
    let mut tls = json!({"driver": "raw", "file": {"driver": "https", "url": url}});
    assert_refused(read(&tls, &[]), "certificate verification failed");
    tls["file"]["sslverify"] = false.into();
    assert_disk(http, http.text("/text"), read(&tls, &[]));
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn vms_reach_the_servers_with_certificates_of_their_daemon() {
    const CERTIFICATES: &str = "LIBVIRTD_NBD_TLS";
    let test = "vms_reach_the_servers_with_certificates_of_their_daemon";
    let machine = Machine::new("certificates");
    if !is_beside_own(test, &[(CERTIFICATES, machine.path("").to_str().unwrap())]) {
        return;
    }
    let nbd = Server::start(Kind::Nbd);
    let certificates = PathBuf::from(std::env::var(CERTIFICATES).unwrap());
    let disk = format!(
        "<disk type='network'><driver name='qemu' type='raw'/>\
         <source protocol='nbd' name='{}' tls='yes'><host name='{}' port='{}'/></source>\
         <target dev='vda' bus='virtio'/></disk>",
        nbd.text("/tls/export"),
        nbd.text("/host"),
        nbd.number("/tls/port"),
    );
    let domain = format!(
        "<domain type='qemu'><name>certificates</name><memory unit='MiB'>64</memory>\
         <os><type arch='x86_64' machine='pc'>hvm</type></os><features><acpi/></features>\
         <devices>{disk}</devices></domain>"
    );
    let domain = machine.write("domain.xml", domain);
    let create = ["create", "--paused", domain.to_str().unwrap()];
    assert_eq!(machine.virsh(&create), None);
    for file in ["ca-cert.pem", "client-cert.pem", "client-key.pem"] {
        let from = Path::new(nbd.text("/tls/pki")).join(file);
        std::fs::copy(from, certificates.join(file)).unwrap();
    }
    machine.virsh(&create).expect("a VM with its disk");
    machine.virsh(&["destroy", "certificates"]).unwrap();
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_server_leaves_nothing_behind() {
    let server = Server::start(Kind::Nbd);
    let socket = server.text("/unix/socket").to_owned();
    let first: u32 = {
        let pid = std::fs::read_to_string(server.directory().join("pid")).unwrap();
        pid.split(' ').next().unwrap().parse().unwrap()
    };
    let children = format!("/proc/{first}/task/{first}/children");
    let children = std::fs::read_to_string(children).unwrap();
    assert_ne!(children, "");
    std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let directory = server.directory().to_owned();
    drop(server);
    assert!(!directory.exists());
    for pid in children.split_whitespace() {
        assert!(!Path::new("/proc").join(pid).exists(), "{pid}");
    }
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn gluster_serves_a_disk_in_a_folder() {
    let gluster = Server::shared(Kind::Gluster);
    let disk = json!({"driver": "raw", "file": {
        "driver": "gluster", "volume": gluster.text("/volume"), "path": gluster.text("/path"),
        "server": [{
            "type": "inet", "host": gluster.text("/host"),
            "port": gluster.number("/port").to_string(),
        }],
    }});
    assert_disk(gluster, gluster.text("/text"), read(&disk, &[]));
}
