//! `disklet populate registry` from a registry that does as it is told.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "registry/bombs.rs"]
mod bombs;
#[path = "registry/faults.rs"]
mod faults;
#[path = "registry/images.rs"]
mod images;
#[path = "registry/parts.rs"]
mod parts;
#[path = "image/scratch.rs"]
mod scratch;
#[path = "images/server.rs"]
mod server;

use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use images::{Content, INDEX, LAYER, MANIFEST, digest, header, tar};
use scratch::Scratch;
use serde_json::json;
use server::{Reply, Server};

fn command(scratch: &Scratch, server: &Server, more: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    let image = format!("127.0.0.1:{}/team/disk", server.port());
    let more = more.replace("IMAGE", &image);
    command.args(["populate", "registry", "--plain-http", "--target", "disk"]);
    if !more.contains("--image") {
        command.args(["--image", &image]);
    }
    command.args(more.split_whitespace());
    command.current_dir(scratch.path(""));
    command.env("HOME", scratch.path("nowhere"));
    for variable in [
        "http_proxy",
        "HTTP_PROXY",
        "all_proxy",
        "ALL_PROXY",
        "DOCKER_CONFIG",
        "REGISTRY_AUTH_FILE",
    ] {
        command.env_remove(variable);
    }
    command
}

fn populate(scratch: &Scratch, server: &Server, more: &str) -> Output {
    command(scratch, server, more).output().unwrap()
}

fn done(scratch: &Scratch, server: &Server, more: &str) -> String {
    let output = populate(scratch, server, more);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{more}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// Fails with one message, which it gives back, and leaves nothing.
fn refused(scratch: &Scratch, server: &Server, more: &str) -> String {
    let output = populate(scratch, server, more);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{more}: {told}");
    let errors = told.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 1, "{told}");
    assert!(!scratch.path("disk").exists(), "{told}");
    told
}

fn serving(content: Content) -> Server {
    Server::start(move |request| content.answer(request))
}

fn disk(byte: u8) -> Vec<u8> {
    let mut bytes = vec![byte; 1 << 20];
    bytes.resize(3 << 20, 0);
    bytes
}

#[test]
fn the_disk_of_an_image_fills_a_file() {
    let scratch = Scratch::new("registry-file");
    let mut content = Content::default();
    let layers = [
        tar(&[("disk/", b""), ("disk/old.img", &disk(1))]),
        tar(&[("etc/motd", b"hello"), ("disk/new.img", &disk(2))]),
        tar(&[("disk/.wh.old.img", b"")]),
    ];
    let named = content.image("latest", &layers);
    let name = named["digest"].as_str().unwrap().to_owned();
    let server = serving(content);
    let told = done(&scratch, &server, "");
    assert!(
        told.contains("a disk of 3.0 MiB (1.0 MiB of data)"),
        "{told}"
    );
    assert!(told.ends_with(&format!("/team/disk@{name}\n")), "{told}");
    assert!(scratch.read("disk") == disk(2));
    // By its digest, and a file of the lowest layer, which is gone above.
    let told = refused(
        scratch_without_disk(&scratch),
        &server,
        &format!("--image docker://IMAGE@{name} --path disk/old.img"),
    );
    assert!(
        told.contains("the image has no file /disk/old.img"),
        "{told}"
    );
    done(
        &scratch,
        &server,
        &format!("--image IMAGE@{name} --path /disk/new.img"),
    );
    assert!(scratch.read("disk") == disk(2));
}

fn scratch_without_disk(scratch: &Scratch) -> &Scratch {
    let _ = std::fs::remove_file(scratch.path("disk"));
    scratch
}

#[test]
fn an_image_that_is_not_clear_is_refused() {
    let scratch = Scratch::new("registry-unclear");
    let mut behind = tar(&[("disk/a", &disk(1))]);
    behind.truncate(behind.len() - 512);
    behind.extend(b"more".repeat(128));
    for (layer, wanted) in [
        (
            tar(&[("disk/a", &disk(1)), ("disk/b", b"")]),
            "several files where its disk should be: disk/a, disk/b",
        ),
        (
            tar(&[("disk/a -> ../../etc/shadow", b"")]),
            "disk/a (a symbolic link to ../../etc/shadow)",
        ),
        (
            tar(&[("x", b"y"), ("disk/a = x", b"")]),
            "disk/a (a hard link to x)",
        ),
        (
            tar(&[("disk/sda device", b"")]),
            "disk/sda (a device or a pipe)",
        ),
        (
            tar(&[("disk -> etc", b"")]),
            "the way to the disk is no directory: disk (a symbolic link to etc)",
        ),
        (
            tar(&[("disk/../../x", b"")]),
            "a name that leads out of it: disk/../../x",
        ),
        (
            tar(&[("boot/a.qcow2", b"")]),
            "no file in /disk; elsewhere it has boot/a.qcow2",
        ),
        (
            tar(&[("disk/a", &disk(1)), ("disk", b"")]),
            "contradicts itself about disk",
        ),
        (
            header("big", b'0', "", 65 << 30).to_vec(),
            "unpacks to too much beside the disk",
        ),
        (
            header("x", b'x', "", 2 << 20).to_vec(),
            "a name that is too long",
        ),
        (b"no archive".repeat(100), "no tar archive"),
        (behind, "goes on behind its end"),
        (vec![], "the image has no file in /disk"),
    ] {
        let mut content = Content::default();
        content.image("latest", &[tar(&[("bin/sh", b"")]), layer]);
        let told = refused(&scratch, &serving(content), "");
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

#[test]
fn what_has_another_digest_fills_nothing() {
    let scratch = Scratch::new("registry-digests");
    let sound = tar(&[("disk/a", &disk(1))]);
    let mut other = sound.clone();
    other[5000] ^= 1;
    let mut content = Content::default();
    let named = content.image("latest", &[tar(&[("x", b"")]), sound.clone()]);
    let named = named["digest"].as_str().unwrap().to_owned();
    let falsified = |name: &str, bytes: &[u8]| {
        let mut content = content.clone();
        content.falsify(name, bytes);
        serving(content)
    };
    let told = refused(&scratch, &falsified(&digest(&sound), &other), "");
    assert!(told.contains("not the one that it was asked by"), "{told}");
    let told = refused(&scratch, &falsified(&digest(&sound), &sound[..5000]), "");
    assert!(told.contains("as the manifest says"), "{told}");
    // The layer below the disk's counts as well.
    let below = tar(&[("x", b"")]);
    let told = refused(
        &scratch,
        &falsified(&digest(&below), &tar(&[("y", b"")])),
        "",
    );
    assert!(told.contains("not the one that it was asked by"), "{told}");
    let image = format!("--image IMAGE@{named}");
    let told = refused(&scratch, &falsified(&named, b"{}"), &image);
    assert!(told.contains(&format!("not {named}")), "{told}");
    let told = refused(&scratch, &falsified("latest", &[b' '; 5 << 20]), "");
    assert!(told.contains("longer than 4194304 bytes"), "{told}");
    let told = refused(&scratch, &falsified("latest", b"<html>"), "");
    assert!(told.contains("sends no manifest"), "{told}");
    let told = refused(
        &scratch,
        &serving(content),
        &format!("--digest {}", digest(b"")),
    );
    assert!(told.contains("as demanded"), "{told}");
}

#[test]
fn lists_and_artifacts_lead_to_their_files() {
    let scratch = Scratch::new("registry-lists");
    let mut content = Content::default();
    let mut listed = Vec::new();
    for (byte, architecture) in [(1, "amd64"), (2, "arm64")] {
        let mut one = content.image(architecture, &[tar(&[("disk/a", &disk(byte))])]);
        one["platform"] = json!({"os": "linux", "architecture": architecture});
        listed.push(one);
    }
    let list = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed});
    content.manifest("latest", INDEX, &list);
    let mut files = [
        content.blob("application/x-disk", &disk(3)),
        content.blob("application/x-disk", &disk(4)),
    ];
    for (file, title) in files.iter_mut().zip(["root.img", "data.img"]) {
        file["annotations"] = json!({"org.opencontainers.image.title": title});
    }
    let artifact = |files: &[serde_json::Value]| json!({"schemaVersion": 2, "layers": files});
    content.manifest("one", MANIFEST, &artifact(&files[..1]));
    content.manifest("two", MANIFEST, &artifact(&files));
    let mixed = [files[0].clone(), content.blob(LAYER, &tar(&[]))];
    content.manifest("mixed", MANIFEST, &artifact(&mixed));
    let server = serving(content);
    for (more, byte) in [
        ("--platform linux/amd64", 1),
        ("--platform linux/arm64", 2),
        ("--image IMAGE:one", 3),
        ("--image IMAGE:two --path data.img", 4),
    ] {
        done(scratch_without_disk(&scratch), &server, more);
        assert!(scratch.read("disk") == disk(byte), "{more}");
    }
    scratch_without_disk(&scratch);
    let told = refused(&scratch, &server, "--platform linux/s390x");
    assert!(told.contains("only for linux/amd64, linux/arm64"), "{told}");
    let told = refused(&scratch, &server, "--image IMAGE:two");
    assert!(told.contains("there are root.img, data.img"), "{told}");
    let told = refused(&scratch, &server, "--image IMAGE:mixed");
    assert!(
        told.contains("layers of a kind that is not known"),
        "{told}"
    );
    let told = refused(&scratch, &server, "--image IMAGE:none");
    assert!(told.contains("the server does not have it"), "{told}");
}

#[test]
fn a_lost_connection_is_taken_up_again() {
    let scratch = Scratch::new("registry-lost");
    let mut content = Content::default();
    content.image("latest", &[tar(&[("disk/a", &disk(7))])]);
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let reply = content.answer(request);
        match request.path.contains("/blobs/") {
            true if asked.fetch_add(1, Ordering::Relaxed) < 3 => reply.dropped_at(700_000),
            _ => reply,
        }
    });
    done(&scratch, &server, "");
    assert!(scratch.read("disk") == disk(7));
    let ranges: Vec<_> = server.seen_header("range").into_iter().flatten().collect();
    assert_eq!(
        ranges,
        ["bytes=700000-", "bytes=1400000-", "bytes=2100000-"]
    );
}

#[test]
fn a_registry_that_is_busy_is_asked_again() {
    let scratch = Scratch::new("registry-busy");
    let mut content = Content::default();
    content.image("latest", &[tar(&[("disk/a", &disk(7))])]);
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| match asked.fetch_add(1, Ordering::Relaxed) {
        0 | 2 => Reply::status(503),
        _ => content.answer(request),
    });
    done(&scratch, &server, "");
    assert!(scratch.read("disk") == disk(7));
}

/// As `docker login` leaves it.
fn logged_in(scratch: &Scratch, server: &Server, words: &str) -> String {
    let host = format!("127.0.0.1:{}", server.port());
    let auths = json!({"auths": {host: {"auth": STANDARD.encode(words)}}});
    std::fs::write(scratch.path("auth.json"), auths.to_string()).unwrap();
    "--auth-file auth.json".to_owned()
}

fn basic(words: &str) -> String {
    format!("Basic {}", STANDARD.encode(words))
}

fn one_disk() -> Content {
    let mut content = Content::default();
    content.image("latest", &[tar(&[("disk/a", &disk(7))])]);
    content
}

#[test]
fn a_registry_that_asks_is_told_who_we_are() {
    let scratch = Scratch::new("registry-basic");
    let content = one_disk();
    let server = Server::start(move |request| match request.headers.get("authorization") {
        Some(words) if *words == basic("me:hunter2") => content.answer(request),
        _ => Reply::status(401).header("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let told = refused(&scratch, &server, "");
    assert!(told.contains("the server does not give it to us"), "{told}");
    let wrong = logged_in(&scratch, &server, "me:hunter3");
    let told = refused(&scratch, &server, &wrong);
    assert!(
        told.contains("status 401") && !told.contains("hunter3"),
        "{told}"
    );
    let right = logged_in(&scratch, &server, "me:hunter2");
    done(&scratch, &server, &right);
    assert!(scratch.read("disk") == disk(7));
    let told = refused(
        scratch_without_disk(&scratch),
        &server,
        "--auth-file none.json",
    );
    assert!(told.contains("none.json: cannot be read"), "{told}");
}

/// A registry with a server that gives tokens, and one elsewhere that has the
/// content: it hears no word of ours.
#[test]
fn tokens_and_credentials_go_where_they_belong() {
    let scratch = Scratch::new("registry-token");
    let content = one_disk();
    let blobs = content.clone();
    let elsewhere = Server::start(move |request| blobs.answer(request));
    let tokens = Server::start(|request| {
        let scope = "scope=repository%3Ateam%2Fdisk%3Apull";
        let is_right = request.path.starts_with("/token?x=y&") && request.path.contains(scope);
        assert!(is_right && request.path.ends_with("service=here%20it%20is"));
        match request.headers.get("authorization") {
            Some(words) if *words == basic("me:hunter2") => {
                Reply::whole(b"{\"token\": \"t0ken\", \"expires_in\": 60}")
            }
            _ => Reply::status(401),
        }
    });
    let realm = tokens.url("/token?x=y");
    let other = elsewhere.clone();
    let server = Server::start(move |request| match request.headers.get("authorization") {
        Some(words) if words == "Bearer t0ken" => match request.path.contains("/blobs/") {
            true => Reply::redirect(&other.url(&request.path)),
            false => content.answer(request),
        },
        _ => {
            let wants = format!("Bearer realm=\"{realm}\",service=\"here it is\",scope=\"all\"");
            Reply::status(401).header("WWW-Authenticate", &wants)
        }
    });
    let wrong = logged_in(&scratch, &server, "me:hunter3");
    let told = refused(&scratch, &server, &wrong);
    assert!(told.contains("token server does not know us"), "{told}");
    assert!(!told.contains("hunter3"), "{told}");
    let right = logged_in(&scratch, &server, "me:hunter2");
    done(&scratch, &server, &right);
    assert!(scratch.read("disk") == disk(7));
    assert!(!elsewhere.seen().is_empty());
    assert!(
        elsewhere
            .seen_header("authorization")
            .iter()
            .all(Option::is_none)
    );
    let told = server.seen_header("authorization");
    assert!(
        told.iter().flatten().all(|words| words == "Bearer t0ken"),
        "{told:?}"
    );
}

#[test]
fn whoever_keeps_credentials_is_asked() {
    let scratch = Scratch::new("registry-helper");
    let content = one_disk();
    let server = Server::start(move |request| match request.headers.get("authorization") {
        Some(words) if *words == basic("me:hunter2") => content.answer(request),
        _ => Reply::status(401).header("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let helper = scratch.path("docker-credential-ours");
    let host = format!("127.0.0.1:{}", server.port());
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = get ] && [ \"$(cat)\" = {host} ] && echo '{{\"ServerURL\": \"x\", \"Username\": \"me\", \"Secret\": \"hunter2\"}}'\n"
    );
    std::fs::write(&helper, script).unwrap();
    scratch.tool("chmod", "+x docker-credential-ours");
    let config = json!({"credsStore": "ours", "auths": {host: {}}});
    std::fs::write(scratch.path("config.json"), config.to_string()).unwrap();
    let told = refused(&scratch, &server, "--auth-file config.json");
    assert!(
        told.contains("docker-credential-ours: cannot be asked"),
        "{told}"
    );
    let mut paths = scratch.path("").into_os_string();
    paths.push(":");
    paths.push(std::env::var_os("PATH").unwrap());
    let mut command = command(&scratch, &server, "");
    command
        .env("DOCKER_CONFIG", scratch.path(""))
        .env("PATH", paths);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(scratch.read("disk") == disk(7));
}
