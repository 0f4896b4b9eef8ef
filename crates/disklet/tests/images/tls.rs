//! https: whom we trust, and who we are.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::scratch::{Scratch, noise};
use crate::server::{Reply, Request, Server};

pub(crate) fn path(name: &str) -> String {
    format!("{}/tests/images/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn certificates(name: &str) -> Vec<CertificateDer<'static>> {
    let read = CertificateDer::pem_file_iter(path(name)).unwrap();
    read.map(Result::unwrap).collect()
}

/// A server with a certificate of our authority; it may want one of us.
pub(crate) fn server(
    wants_client: bool,
    handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if wants_client {
        let mut roots = RootCertStore::empty();
        roots.add(certificates("ca.pem").remove(0)).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.build().unwrap())
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_file(path("server.key")).unwrap();
    let config = builder.with_single_cert(certificates("server.pem"), key);
    Server::with_tls(Arc::new(config.unwrap()), handler)
}

/// A mapping of `one` to an address, with these settings of TLS.
fn map(scratch: &Scratch, url: &str, tls: &str) {
    scratch.map(&format!(
        "translations: [{{name: one, url: \"{url}\"}}]\ntransports: {{\"\": {{tls: {{{tls}}}}}}}\n"
    ));
}

fn image(request: &Request) -> Reply {
    Reply::file(request, &noise(1, 1 << 20), "\"1\"")
}

#[test]
fn only_servers_that_an_authority_vouches_for_are_believed() {
    let scratch = Scratch::new("tls");
    let server = server(false, image);
    let told = scratch.fails(&["pull", "one", "--from", &server.url("/x")]);
    assert!(told.contains("the connection is not safe: "), "{told}");
    assert!(told.contains("help: an authority of your own"), "{told}");
    // By the name itself, https is spoken.
    let name = format!("localhost:{}/x", server.port());
    let told = scratch.fails(&["pull", &name]);
    assert!(
        told.contains(&format!("https://{name}: the connection is not safe")),
        "{told}"
    );
    map(
        &scratch,
        &server.url("/x"),
        &format!("caFile: {}", path("ca.pem")),
    );
    scratch.succeeds(&["pull", "one"]);
    assert!(scratch.disk("one") == noise(1, 1 << 20));
    let inline = std::fs::read_to_string(path("ca.pem")).unwrap();
    let inline = format!("certificates: [{{cert: {inline:?}}}]");
    map(&scratch, &server.url("/x"), &inline);
    scratch.succeeds(&["pull", "one"]);
    map(&scratch, &server.url("/x"), "insecure: true");
    scratch.succeeds(&["pull", "one"]);
    map(
        &scratch,
        &server.url("/x"),
        &format!("caFile: {}", path("client.key")),
    );
    let told = scratch.fails(&["pull", "one"]);
    assert!(
        told.contains("client.key: has no certificate in PEM in it"),
        "{told}"
    );
}

#[test]
fn a_server_that_wants_to_know_us_is_told() {
    let scratch = Scratch::new("tls-client");
    let server = server(true, image);
    let authority = format!("caFile: {}", path("ca.pem"));
    map(&scratch, &server.url("/x"), &authority);
    let told = scratch.fails(&["pull", "one", "--retries", "0"]);
    assert!(told.contains("image one: https://127.0.0.1"), "{told}");
    let client = format!(
        "{authority}, certFile: {}, keyFile: {}",
        path("client.pem"),
        path("client.key")
    );
    map(&scratch, &server.url("/x"), &client);
    scratch.succeeds(&["pull", "one"]);
    // Another server is not told who we are, wherever we are led.
    let to = server.url("/x");
    let leads = self::server(false, move |_| Reply::redirect(&to));
    map(&scratch, &leads.url("/x"), &client);
    scratch.fails(&["pull", "one", "--retries", "0"]);
}

#[test]
fn encryption_is_not_given_up_on_the_way() {
    let scratch = Scratch::new("tls-redirect");
    let clear = Server::start(image);
    let to = clear.url("/x?token=hunter2");
    let server = server(false, move |_| Reply::redirect(&to));
    map(
        &scratch,
        &server.url("/x"),
        &format!("caFile: {}", path("ca.pem")),
    );
    let told = scratch.fails(&["pull", "one"]);
    assert!(
        told.contains("which is not encrypted, and is not followed there"),
        "{told}"
    );
    assert!(!told.contains("hunter2"), "{told}");
    assert!(clear.seen().is_empty());
}

/// A connection cut off without a word is a lost one, not the end of the file.
#[test]
fn a_lost_connection_is_taken_up_here_as_well() {
    let scratch = Scratch::new("tls-lost");
    let asked = std::sync::atomic::AtomicU32::new(0);
    let server = server(false, move |request| {
        let reply = Reply::file(request, &noise(1, 3 << 20), "\"1\"");
        match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => reply.dropped_at(1_000_000),
            _ => reply,
        }
    });
    map(
        &scratch,
        &server.url("/x"),
        &format!("caFile: {}", path("ca.pem")),
    );
    scratch.succeeds(&["pull", "one"]);
    assert!(scratch.disk("one") == noise(1, 3 << 20));
    assert_eq!(
        server.seen_header("range")[1].as_deref(),
        Some("bytes=1000000-")
    );
}
