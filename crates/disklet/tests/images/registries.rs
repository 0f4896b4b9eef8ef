//! Images in registries, for users and for tenants.

use std::process::Command;
use std::sync::atomic::Ordering;

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use disklet::pull::{Order, PullErrorKind, Tenant, ensure_for};
use disklet_core::config::Config;
use disklet_core::images::PullPolicy;
use disklet_core::names::ImageName;

use crate::made::{Content, tar};
use crate::scratch::{Scratch, digest, noise};
use crate::server::{Reply, Request, Server};
use crate::tenants::{Seen, keyring};
use crate::tls::{path, server};

fn content(layers: &[Vec<u8>]) -> Content {
    let mut content = Content::default();
    content.image("latest", layers);
    content
}

fn one_disk(number: u64) -> Content {
    content(&[tar(&[("disk/a", &noise(number, 1 << 20))])])
}

#[test]
fn the_disk_of_an_image_comes_into_the_store() {
    let scratch = Scratch::new("registry");
    let made = one_disk(1);
    let server = Server::start(move |request| made.answer(request));
    let name = format!("docker://127.0.0.1:{}/team/disk", server.port());
    let told = scratch.succeeds(&["pull", &name, "--plain-http"]);
    assert!(
        told.starts_with(&format!("{name} has sha256:{}", digest(&noise(1, 1 << 20)))),
        "{told}"
    );
    assert!(scratch.disk(&name) == noise(1, 1 << 20));
    scratch.succeeds(&["pull", "mine", "--plain-http", "--from", &name]);
    assert!(scratch.disk("mine") == noise(1, 1 << 20));
    for (arguments, wanted) in [
        (
            vec!["pull", "mine", "--plain-http", "--from", "file"],
            "this is no image in a registry",
        ),
        (
            vec!["pull", &name, "--plain-http", "--path", "/x"],
            "the image has no file /x",
        ),
        (
            vec!["pull", "mine", "--from", "docker://"],
            "--from: the name has no repository",
        ),
        (
            vec!["pull", "docker://h.example/a:-"],
            "the name has a tag that is none",
        ),
    ] {
        let told = scratch.fails(&arguments);
        assert!(told.contains(wanted), "{told}");
    }
}

/// As registries do it that know users `a` and `b`.
fn guarded(request: &Request, content: &Content) -> Reply {
    let users =
        ["a", "b"].map(|user| format!("Basic {}", BASE64.encode(format!("{user}:hunter2"))));
    match request.headers.get("authorization") {
        Some(words) if users.contains(words) => content.answer(request),
        _ => Reply::status(401).header("WWW-Authenticate", "Basic realm=\"images\""),
    }
}

/// Which authorities are trusted is said once for a process.
#[test]
fn tenants_have_what_a_registry_gives_them() {
    const HERE: &str = "registries::tenants_have_what_a_registry_gives_them";
    const AGAIN: &str = "DISKLET_TEST_AGAIN";
    if std::env::var_os(AGAIN).is_some() {
        return as_tenants();
    }
    let again = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", HERE])
        .env(AGAIN, "yes")
        .env("SSL_CERT_FILE", path("ca.pem"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&again.stdout);
    assert!(
        again.status.success() && told.contains("1 passed"),
        "{again:?}"
    );
}

fn as_tenants() {
    let scratch = Scratch::new("registry-tenants");
    let made = one_disk(1);
    let server = server(false, move |request| guarded(request, &made));
    let seen = Seen::default();
    let config = Config {
        data_dir: scratch.path("data").display().to_string(),
        ..Config::default()
    };
    let name = format!("docker://127.0.0.1:{}/team/disk", server.port());
    let image = ImageName::parse(&name).unwrap();
    let ensure = |user: &str, policy| {
        let tenant = Tenant {
            keyring: &keyring(&server, user),
            policy,
        };
        ensure_for(&config, &tenant, &Order::of(&image), &seen)
    };
    let wanted = digest(&noise(1, 1 << 20));
    let has = |user: &str, policy| ensure(user, policy).unwrap().digest.to_string();
    let refused = |user: &str| ensure(user, PullPolicy::IfNotPresent).unwrap_err().kind();
    assert_eq!(refused(""), PullErrorKind::Denied);
    assert_eq!(has("a", PullPolicy::IfNotPresent), wanted);
    let asked = server.seen().len();
    assert_eq!(has("a", PullPolicy::IfNotPresent), wanted);
    assert_eq!(server.seen().len(), asked);
    for user in ["", "c"] {
        assert_eq!(refused(user), PullErrorKind::Denied, "{user}");
    }
    // Who is given it need not fetch it, and who always asks neither.
    assert_eq!(has("b", PullPolicy::IfNotPresent), wanted);
    assert_eq!(has("a", PullPolicy::Always), wanted);
    assert_eq!(seen.begun.load(Ordering::Relaxed), 1);
}

#[test]
fn tokens_are_not_asked_for_in_the_clear() {
    let scratch = Scratch::new("registry-clear-tokens");
    let tokens = Server::start(|_| Reply::whole(b"{\"token\": \"x\"}"));
    let wants = format!("Bearer realm=\"{}\"", tokens.url("/token"));
    let server = server(false, move |_| {
        Reply::status(401).header("WWW-Authenticate", &wants)
    });
    let name = format!("docker://127.0.0.1:{}/team/disk", server.port());
    let told = scratch.fails(&["pull", &name, "--ca-file", &path("ca.pem")]);
    assert!(told.contains("not encrypted, and is not asked"), "{told}");
    assert!(tokens.seen().is_empty());
}
