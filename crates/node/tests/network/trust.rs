//! Whom the machine of a private libvirtd trusts, and whom it trusts to be it.

use std::path::Path;
use std::process::Command;

use crate::support::Machine;
use crate::support::servers::Server;

/// Says to a private libvirtd where QEMU's certificates for NBD are.
pub(crate) const CERTIFICATES: &str = "LIBVIRTD_NBD_TLS";

/// Puts the certificates there that a server knows its clients by.
pub(crate) fn give_certificates(nbd: &Server, folder: &str) {
    for file in ["ca-cert.pem", "client-cert.pem", "client-key.pem"] {
        let from = Path::new(nbd.text("/tls/pki")).join(file);
        std::fs::copy(from, Path::new(folder).join(file)).unwrap();
    }
}

/// Makes an authority one that the machine of the private libvirtd knows; also this
/// test, if its mounts are its own.
pub(crate) fn trust(machine: &Machine, authority: &str, here: bool) {
    let known = machine.path("known");
    std::fs::create_dir(&known).unwrap();
    for name in ["ca-certificates.crt", "authority.pem"] {
        std::fs::copy(authority, known.join(name)).unwrap();
    }
    let daemon = std::env::var("LIBVIRTD_PID").unwrap();
    let here = here.then_some("self");
    for process in std::iter::once(daemon.as_str()).chain(here) {
        let status = Command::new("nsenter")
            .arg(format!("--mount=/proc/{process}/ns/mnt"))
            .args(["mount", "--bind"])
            .arg(&known)
            .arg("/etc/ssl/certs")
            .status();
        assert!(status.unwrap().success());
    }
}
