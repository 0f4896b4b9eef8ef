//! Images of tenants: what came with somebody's credentials is nobody else's, until
//! they have proved that the server gives it to them as well.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use disklet::pull::{Beginning, Observer, Order, PullError, PullErrorKind, Tenant, ensure_for};
use disklet_core::config::Config;
use disklet_core::facts::ImageFact;
use disklet_core::images::{Keyring, PullPolicy};
use disklet_core::names::ImageName;
use serde_json::json;

use crate::scratch::{Scratch, digest, noise};
use crate::server::{Reply, Request, Server};
use crate::tls::{path, server};

/// Remembers what was fetched, and what could not be asked for.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) begun: AtomicU32,
    stale: Mutex<Vec<String>>,
}

impl Observer for Seen {
    fn begins(&self, _: &Beginning<'_>) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }
    fn advance(&self, _: u64) {}
    fn notice(&self, _: &str) {}
    fn stale(&self, _: &str, why: &str) {
        self.stale.lock().unwrap().push(why.to_owned());
    }
}

/// A node, whose names lead to a server with a login.
struct Node {
    scratch: Scratch,
    server: Server,
    seen: Seen,
}

/// Who has the password of this name: users of the server have their own.
pub(crate) fn keyring(server: &Server, user: &str) -> Keyring {
    let mut keyring = Keyring::default();
    if user.is_empty() {
        return keyring;
    }
    let auth = BASE64.encode(format!("{user}:hunter2"));
    let host = format!("127.0.0.1:{}", server.port());
    let config = json!({"auths": {host: {"auth": auth}}}).to_string();
    let secret = json!({
        "metadata": {"uid": format!("uid-of-{user}")},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": BASE64.encode(config)},
    });
    keyring.take(&secret).unwrap();
    keyring
}

/// As servers do it that know users `a` and `b`, and conditions.
fn guarded(request: &Request, bytes: &[u8], etag: &str) -> Reply {
    let users = ["a", "b"].map(|user| BASE64.encode(format!("{user}:hunter2")));
    let words = request.headers.get("authorization");
    let words = words.and_then(|words| words.strip_prefix("Basic "));
    if !words.is_some_and(|words| users.iter().any(|user| user == words)) {
        return Reply::status(401);
    }
    unless_same(request, bytes, etag)
}

fn unless_same(request: &Request, bytes: &[u8], etag: &str) -> Reply {
    match request.headers.get("if-none-match") {
        Some(known) if known == etag => Reply::status(304).header("ETag", etag),
        _ => Reply::file(request, bytes, etag),
    }
}

impl Node {
    fn new(name: &str, handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let scratch = Scratch::new(name);
        let server = server(false, handler);
        scratch.map(&format!(
            "translations: [{{name: one, url: \"{}\"}}, {{name: other, url: \"{}\"}}]\n\
             transports: {{\"\": {{tls: {{caFile: {}}}}}}}\n",
            server.url("/one"),
            server.url("/other"),
            path("ca.pem")
        ));
        Self {
            scratch,
            server,
            seen: Seen::default(),
        }
    }

    fn config(&self) -> Config {
        let path = |name| self.scratch.path(name).display().to_string();
        Config {
            data_dir: path("data"),
            image_translations: Some(path("mapping.yaml")),
            ..Config::default()
        }
    }

    fn ensure(&self, user: &str, policy: PullPolicy, image: &str) -> Result<ImageFact, PullError> {
        let image = ImageName::parse(image).unwrap();
        let tenant = Tenant {
            keyring: &keyring(&self.server, user),
            policy,
        };
        ensure_for(&self.config(), &tenant, &Order::of(&image), &self.seen)
    }

    fn has(&self, user: &str, image: &str) -> String {
        let fact = self.ensure(user, PullPolicy::IfNotPresent, image).unwrap();
        fact.digest.to_string()
    }

    fn refused(&self, user: &str, policy: PullPolicy, image: &str) -> PullErrorKind {
        self.ensure(user, policy, image).unwrap_err().kind()
    }

    /// How many files were fetched.
    fn fetched(&self) -> u32 {
        self.seen.begun.load(Ordering::Relaxed)
    }
}

#[test]
fn what_came_with_credentials_is_for_those_who_have_proved_theirs() {
    let bytes = noise(1, 1 << 20);
    let file = bytes.clone();
    let node = Node::new("tenants", move |request| guarded(request, &file, "\"1\""));
    let wanted = digest(&bytes);
    let pinned = format!("one@sha256:{wanted}");
    let elsewhere = format!("other@sha256:{wanted}");
    assert_eq!(node.has("a", "one"), wanted);
    assert_eq!((node.fetched(), node.server.seen().len()), (1, 1));
    // Who has fetched it has it, whether or not the server is there.
    assert_eq!(node.has("a", "one"), wanted);
    assert_eq!(node.has("a", &pinned), wanted);
    assert_eq!(node.has("a", &elsewhere), wanted);
    assert_eq!(node.server.seen().len(), 1);
    // Others have to ask, under whichever name, and are denied.
    for image in ["one", &pinned, "other", &elsewhere] {
        for user in ["", "c"] {
            for policy in [PullPolicy::IfNotPresent, PullPolicy::Always] {
                assert_eq!(node.refused(user, policy, image), PullErrorKind::Denied);
            }
            let never = node.refused(user, PullPolicy::Never, image);
            assert_eq!(never, PullErrorKind::NotHere);
        }
    }
    assert_eq!(node.fetched(), 1);
    // Whoever the server gives it to has it, and need not fetch it.
    let before = node.server.seen().len();
    assert_eq!(node.has("b", "one"), wanted);
    assert_eq!(node.has("b", "one"), wanted);
    let asked = node.server.seen_header("if-none-match").split_off(before);
    assert_eq!(asked, [Some("\"1\"".to_owned())]);
    assert_eq!(node.fetched(), 1);
    // That leaves the first who had it as they were.
    assert_eq!(node.has("a", "one"), wanted);
    assert_eq!(
        node.refused("", PullPolicy::IfNotPresent, "one"),
        PullErrorKind::Denied
    );
    let told = node
        .ensure("", PullPolicy::IfNotPresent, "one")
        .unwrap_err();
    assert!(!told.to_string().contains("hunter2"));
}

#[test]
fn what_the_server_gives_to_anybody_is_everybodys() {
    let is_open = Arc::new(AtomicBool::new(false));
    let (file, open) = (noise(1, 1 << 20), is_open.clone());
    let node = Node::new("tenants-open", move |request| {
        match open.load(Ordering::Relaxed) {
            true => unless_same(request, &file, "\"1\""),
            false => guarded(request, &file, "\"1\""),
        }
    });
    node.has("a", "one");
    assert_eq!(
        node.refused("", PullPolicy::IfNotPresent, "one"),
        PullErrorKind::Denied
    );
    is_open.store(true, Ordering::Relaxed);
    node.has("", "one");
    is_open.store(false, Ordering::Relaxed);
    // As with any image that anybody could have fetched.
    node.has("", "one");
    node.has("c", "one");
    assert_eq!(node.fetched(), 1);
}

/// A digest names the same to everybody; a name is what its own server has.
#[test]
fn nobody_gives_a_name_another_meaning() {
    let node = Node::new("tenants-names", |request| match request.path.as_str() {
        "/one" => Reply::file(request, &noise(1, 1 << 20), "\"1\""),
        _ => Reply::file(request, &noise(2, 1 << 20), "\"2\""),
    });
    let other = node.has("", "other");
    assert_eq!(node.has("", &format!("one@sha256:{other}")), other);
    assert_eq!(node.has("", "one"), digest(&noise(1, 1 << 20)));
}

/// What one user's login shows under an address may be another user's evil.
#[test]
fn one_tenants_file_is_not_anothers_under_the_same_name() {
    let node = Node::new("tenants-own", |request| {
        let of_a = format!("Basic {}", BASE64.encode("a:hunter2"));
        match request.headers.get("authorization") {
            Some(words) if *words == of_a => guarded(request, &noise(1, 1 << 20), "\"a\""),
            Some(_) => guarded(request, &noise(2, 1 << 20), "\"b\""),
            // The same bytes, so that its digest is everybody's.
            None => Reply::file(request, &noise(1, 1 << 20), "\"a\""),
        }
    });
    assert_eq!(node.has("", "other"), digest(&noise(1, 1 << 20)));
    assert_eq!(node.has("a", "one"), digest(&noise(1, 1 << 20)));
    assert_eq!(node.has("b", "one"), digest(&noise(2, 1 << 20)));
}

#[test]
fn always_is_asked_each_time_and_fetched_when_it_has_changed() {
    let state = Arc::new(Mutex::new(1u8));
    let current = state.clone();
    let node = Node::new("tenants-always", move |request| {
        let number = *current.lock().unwrap_or_else(PoisonError::into_inner);
        match number {
            0 => Reply::status(503),
            _ => unless_same(
                request,
                &noise(number.into(), 1 << 20),
                &format!("\"{number}\""),
            ),
        }
    });
    let always = |image: &str| {
        node.ensure("", PullPolicy::Always, image)
            .unwrap()
            .digest
            .to_string()
    };
    let first = always("one");
    assert_eq!((always("one"), node.fetched()), (first.clone(), 1));
    assert_eq!(node.server.seen().len(), 2);
    *state.lock().unwrap() = 2;
    assert_eq!(node.has("", "one"), first);
    let second = always("one");
    assert_ne!(second, first);
    assert_eq!(node.fetched(), 2);
    // What has a digest does not change.
    let before = node.server.seen().len();
    assert_eq!(always(&format!("one@sha256:{second}")), second);
    assert_eq!(node.server.seen().len(), before);
    // A server that is away takes nothing from those who may have it.
    *state.lock().unwrap() = 0;
    assert_eq!(always("one"), second);
    let stale = node.seen.stale.lock().unwrap().clone();
    assert!(
        stale.len() == 1 && stale[0].contains("status 503"),
        "{stale:?}"
    );
}

#[test]
fn what_an_administrator_has_put_there_is_not_asked_for() {
    let node = Node::new("tenants-hand", |_| Reply::status(404));
    node.scratch.write("disk.raw", noise(1, 1 << 20));
    for name in ["one", "nowhere"] {
        node.scratch.succeeds(&["pull", name, "--from", "disk.raw"]);
        for policy in [
            PullPolicy::Always,
            PullPolicy::IfNotPresent,
            PullPolicy::Never,
        ] {
            node.ensure("", policy, name).unwrap();
        }
    }
    assert!(node.server.seen().is_empty());
    assert_eq!(
        node.refused("", PullPolicy::Never, "other"),
        PullErrorKind::NotHere
    );
}

#[test]
fn credentials_go_to_nobody_else() {
    let clear = Server::start(|_| Reply::status(404));
    let leads = server(false, |_| Reply::status(404));
    let to = leads.url("/x");
    let node = Node::new("tenants-led", move |_| Reply::redirect(&to));
    assert_eq!(
        node.refused("a", PullPolicy::Always, "one"),
        PullErrorKind::NotFound
    );
    let said = node.server.seen_header("authorization");
    assert!(said[0].is_some());
    assert_eq!(leads.seen_header("authorization"), [None]);
    // Nor in the clear, wherever a name is mapped to.
    node.scratch.map(&format!(
        "translations: [{{name: one, url: \"{}\"}}]\n",
        clear.url("/x")
    ));
    let mut keyring = keyring(&clear, "a");
    keyring.take(&json!({
        "metadata": {"uid": "u", "annotations": {"disklet.io/image-server": format!("http://127.0.0.1:{}", clear.port())}},
        "type": "kubernetes.io/basic-auth",
        "data": {"username": BASE64.encode("a"), "password": BASE64.encode("hunter2")},
    })).unwrap();
    let image = ImageName::parse("one").unwrap();
    let tenant = Tenant {
        keyring: &keyring,
        policy: PullPolicy::Always,
    };
    ensure_for(&node.config(), &tenant, &Order::of(&image), &node.seen).unwrap_err();
    assert_eq!(clear.seen_header("authorization"), [None]);
}
