//! Servers that let one wait: every wait has an end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::scratch::{Scratch, noise};
use crate::server::{Reply, Server};

/// Answers each connection in a thread of its own; where.
fn listen(answer: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            std::thread::spawn(move || answer(socket));
        }
    });
    address
}

/// Takes what comes, and says nothing.
fn silent(mut socket: TcpStream) {
    let _ = std::io::copy(&mut socket, &mut std::io::sink());
    std::thread::sleep(Duration::from_secs(60));
}

/// Begins an answer whose head has no end.
fn dripping(mut socket: TcpStream) {
    let _ = socket.read(&mut [0; 1000]);
    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nX: ");
    while socket.write_all(b"x").is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A server whose queue is full: the kernel answers nobody any more. The
/// connections that fill it must be kept.
fn full() -> (SocketAddr, TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap();
    let soon = Duration::from_millis(300);
    let mut waiting = Vec::new();
    while let Ok(socket) = TcpStream::connect_timeout(&address, soon) {
        waiting.push(socket);
        assert!(waiting.len() < 100, "the queue has no end");
    }
    (address, listener, waiting)
}

/// Pulls with short times; what it said.
fn pull(scratch: &Scratch, url: &str, transport: &str) -> String {
    scratch.map(&format!(
        "translations: [{{name: one, url: \"{url}\"}}]\ntransports: {{\"\": {{{transport}}}}}\n"
    ));
    let begun = Instant::now();
    let told = scratch.in_time(&["pull", "one"]).refused();
    assert!(begun.elapsed() < Duration::from_secs(10), "{told}");
    assert_eq!(scratch.files(), [] as [&str; 0], "{told}");
    told
}

const SHORT: &str = "connectTimeout: 400, stallTimeout: 400";

#[test]
fn a_server_that_never_answers_is_given_up() {
    let scratch = Scratch::new("silent");
    for answer in [silent as fn(TcpStream), dripping] {
        let url = format!("http://{}/x", listen(answer));
        let told = pull(&scratch, &url, SHORT);
        let wanted = format!("error: image one: {url}: the server does not answer in time\n");
        assert_eq!(told, wanted);
    }
}

#[test]
fn a_server_that_never_accepts_is_given_up() {
    let scratch = Scratch::new("silent-full");
    let (address, _listener, _waiting) = full();
    let url = format!("http://{address}/x");
    let told = pull(&scratch, &url, SHORT);
    let wanted = format!("error: image one: {url}: the connection takes too long\n");
    assert_eq!(told, wanted);
}

#[test]
fn a_server_that_never_shakes_hands_is_given_up() {
    let scratch = Scratch::new("silent-tls");
    let url = format!("https://{}/x", listen(silent));
    let told = pull(&scratch, &url, SHORT);
    assert!(told.contains("the connection takes too long"), "{told}");
}

#[test]
fn a_proxy_that_never_answers_is_given_up() {
    let scratch = Scratch::new("silent-proxy");
    let proxy = format!("{SHORT}, proxy: \"http://{}\"", listen(silent));
    let told = pull(&scratch, "http://host.invalid/x", &proxy);
    assert!(
        told.contains("too long") || told.contains("in time"),
        "{told}"
    );
}

/// What has come is kept, but the pull ends.
#[test]
fn a_download_on_which_nothing_comes_any_more_is_given_up() {
    let scratch = Scratch::new("silent-half");
    let server = Server::start(|request| {
        let come = match request.headers.contains_key("range") {
            false => 1 << 20,
            true => 0,
        };
        Reply::file(request, &noise(1, 4 << 20), "\"1\"").stalled_at(come)
    });
    scratch.map(&format!(
        "translations: [{{name: one, url: \"{}\"}}]\ntransports: {{\"\": {{{SHORT}}}}}\n",
        server.url("/x")
    ));
    let told = scratch
        .in_time(&["pull", "one", "--retries", "1"])
        .refused();
    assert!(told.contains("nothing came any more"), "{told}");
    assert!(told.contains("1 attempts to go on have failed"), "{told}");
    assert!(scratch.listed().is_empty());
}
