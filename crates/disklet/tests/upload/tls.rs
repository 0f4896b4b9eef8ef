//! Uploads that nobody can read on the way.

use std::fs;
use std::process::{Command, Output};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::scratch::Scratch;
use super::serving::Serving;

/// An authority, and in `tls` a certificate of it for this machine.
fn certify(scratch: &Scratch, authority: &str, name: &str) {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, "an authority of this test");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let served = CertificateParams::new([name.to_owned()]).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = served.signed_by(&key, &issuer).unwrap();
    fs::create_dir_all(scratch.path("tls")).unwrap();
    fs::write(scratch.path(authority), issuer.pem()).unwrap();
    fs::write(scratch.path("tls/tls.crt"), certificate.pem()).unwrap();
    fs::write(scratch.path("tls/tls.key"), key.serialize_pem()).unwrap();
}

fn send(scratch: &Scratch, serving: &Serving, more: &str) -> Output {
    let url = format!("https://{}/upload", serving.address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args(["upload", "disk.raw", &url, "--token-file", "token"]);
    command.args(more.split_whitespace());
    command.current_dir(scratch.path("")).output().unwrap()
}

#[test]
fn only_whom_an_authority_vouches_for_gets_the_disk() {
    let scratch = Scratch::new("upload-tls");
    scratch.disk("disk.raw", 6);
    certify(&scratch, "other.crt", "127.0.0.1");
    certify(&scratch, "ca.crt", "127.0.0.1");
    let mut serving = Serving::start(&scratch, "out.img", "--tls-dir tls");
    for more in ["", "--ca-file other.crt"] {
        let output = send(&scratch, &serving, more);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains("help: an authority of your own"), "{told}");
        assert!(!told.contains("trying again"), "{told}");
    }
    assert!(!scratch.path("state/upload.json").exists());
    let output = send(&scratch, &serving, "--ca-file ca.crt");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(serving.ends(), Some(0));
    assert!(scratch.read("out.img") == scratch.read("disk.raw"));
    // And by curl, as people do.
    fs::remove_file(scratch.path("out.img")).unwrap();
    fs::remove_dir_all(scratch.path("state")).unwrap();
    let mut serving = Serving::start(&scratch, "out.img", "--tls-dir tls");
    let token = scratch.read("token");
    let bearer = format!(
        "Authorization: Bearer {}",
        String::from_utf8_lossy(&token).trim()
    );
    let mut curl = Command::new("curl");
    curl.args([
        "-sS", "--fail", "--cacert", "ca.crt", "-T", "disk.raw", "-H", &bearer,
    ]);
    curl.arg(format!("https://{}/upload", serving.address));
    let output = curl.current_dir(scratch.path("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(serving.ends(), Some(0));
    assert!(scratch.read("out.img") == scratch.read("disk.raw"));
}

#[test]
fn another_machines_certificate_is_not_this_ones() {
    let scratch = Scratch::new("upload-tls-name");
    scratch.disk("disk.raw", 1);
    certify(&scratch, "ca.crt", "host.example");
    let serving = Serving::start(&scratch, "out.img", "--tls-dir tls");
    let output = send(&scratch, &serving, "--ca-file ca.crt");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    drop(serving);
    fs::write(scratch.path("tls/tls.key"), "no key").unwrap();
    let told = Serving::refused(&scratch, "out.img", "--tls-dir tls");
    assert!(told.contains("tls.key: has no key in PEM"), "{told}");
    fs::remove_file(scratch.path("tls/tls.crt")).unwrap();
    let told = Serving::refused(&scratch, "out.img", "--tls-dir tls");
    assert!(told.contains("tls.crt: cannot be read"), "{told}");
}
