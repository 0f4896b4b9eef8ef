//! Large layers come in parts, by several connections at once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::images::{Content, tar};
use super::scratch::Scratch;
use super::server::{Reply, Request, Server};
use super::{done, refused};

/// As much as is asked for at once.
const PART: u64 = 4 << 20;

/// Whether it asks for a part, not for how much there is.
fn is_part(request: &Request) -> bool {
    let range = request.headers.get("range");
    range.is_some_and(|range| range != "bytes=0-0")
}

/// Bytes that nobody makes smaller.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(length).collect()
}

/// A registry with one large layer, whose parts are answered by the function.
fn large(answer: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static) -> (Server, Vec<u8>) {
    let disk = noise(25 << 20);
    let mut content = Content::default();
    content.image("latest", &[tar(&[("disk/a.img", &disk)])]);
    let server = Server::start(move |request| {
        let reply = content.answer(request);
        match request.path.contains("/blobs/") {
            true => answer(request, reply),
            false => reply,
        }
    });
    (server, disk)
}

#[test]
fn several_connections_bring_a_large_layer() {
    let scratch = Scratch::new("registry-parts");
    let (now, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let (server, disk) = large(move |request, reply| {
        if !is_part(request) {
            return reply;
        }
        let here = now.fetch_add(1, Ordering::SeqCst) + 1;
        seen.fetch_max(here, Ordering::SeqCst);
        let patience = Instant::now() + Duration::from_secs(10);
        // The first ones stay until as many are here as ever will be.
        while seen.load(Ordering::SeqCst) < 4 && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(30));
        now.fetch_sub(1, Ordering::SeqCst);
        reply
    });
    done(&scratch, &server, "");
    assert!(scratch.read("disk") == disk);
    assert_eq!(most.load(Ordering::SeqCst), 4);
    let asked = server.seen_header("range").into_iter().flatten();
    let parts = asked.filter(|range| range != "bytes=0-0");
    assert_eq!(parts.count(), 7, "each part once");
}

#[test]
fn a_part_whose_connection_is_lost_is_asked_for_again() {
    let scratch = Scratch::new("registry-parts-lost");
    let met = Mutex::new(Vec::new());
    let (server, disk) = large(move |request, reply| {
        let range = request.headers.get("range").cloned().unwrap_or_default();
        let end = range.rsplit('-').next().unwrap_or_default().to_owned();
        let mut met = met.lock().unwrap();
        let is_known = met.contains(&end);
        met.push(end);
        let half = reply.body.len() / 2;
        if is_known {
            reply
        } else {
            reply.dropped_at(half)
        }
    });
    done(&scratch, &server, "");
    assert!(scratch.read("disk") == disk);
    let asked = server.seen_header("range").into_iter().flatten();
    let asked: Vec<_> = asked.filter(|range| range != "bytes=0-0").collect();
    let wholes = (0..7).map(|nth| format!("bytes={}-", nth * PART));
    let wholes: Vec<_> = wholes.collect();
    let is_rest = |range: &&String| !wholes.iter().any(|whole| range.starts_with(whole));
    assert_eq!(asked.iter().filter(is_rest).count(), 7, "{asked:?}");
    // Nobody is asked for ever.
    let (server, _) = large(|_, reply| {
        let half = reply.body.len() / 2;
        reply.dropped_at(half)
    });
    std::fs::remove_file(scratch.path("disk")).unwrap();
    let told = refused(&scratch, &server, "--retries 1");
    assert!(told.contains("the connection was lost"), "{told}");
}

/// A token is good for some requests only: a layer takes longer than that.
#[test]
fn whoever_must_say_again_who_it_is_goes_on() {
    let scratch = Scratch::new("registry-parts-token");
    let given = AtomicUsize::new(0);
    let tokens = Server::start(move |_| {
        let nth = given.fetch_add(1, Ordering::SeqCst);
        Reply::whole(format!("{{\"token\": \"t{nth}\"}}").as_bytes())
    });
    let realm = tokens.url("/token");
    let used = Mutex::new(BTreeMap::new());
    let (server, disk) = large(move |request, reply| {
        let wants = format!("Bearer realm=\"{realm}\"");
        let refused = || Reply::status(401).header("WWW-Authenticate", &wants);
        let Some(words) = request.headers.get("authorization") else {
            return refused();
        };
        let times = {
            let mut used = used.lock().unwrap();
            let times = used.entry(words.clone()).or_insert(0);
            *times += 1;
            *times
        };
        // Nobody's new token is used up by others before it has been said once.
        std::thread::sleep(Duration::from_millis(100));
        if times > 4 { refused() } else { reply }
    });
    done(&scratch, &server, "");
    assert!(scratch.read("disk") == disk);
    assert!(tokens.seen().len() > 1, "one token was enough");
}

#[test]
fn a_registry_without_parts_sends_the_layer_as_a_whole() {
    let scratch = Scratch::new("registry-no-parts");
    let disk = noise(25 << 20);
    let mut content = Content::default();
    content.image("latest", &[tar(&[("disk/a.img", &disk)])]);
    let server = Server::start(move |request| {
        let mut request = request.clone();
        request.headers.remove("range");
        content.answer(&request)
    });
    done(&scratch, &server, "");
    assert!(scratch.read("disk") == disk);
}

#[test]
fn parts_that_are_not_what_was_asked_for_fill_nothing() {
    let scratch = Scratch::new("registry-parts-wrong");
    let is_third = |request: &Request| {
        let range = request.headers.get("range");
        range.is_some_and(|range| range.starts_with(&format!("bytes={}-", 8 << 20)))
    };
    let (server, _) = large(move |request, mut reply| {
        if is_third(request) {
            reply.body[4711] ^= 1;
        }
        reply
    });
    let told = refused(&scratch, &server, "");
    assert!(told.contains("not the one that it was asked by"), "{told}");
    let (server, _) = large(move |request, mut reply| {
        if is_third(request) {
            reply.headers.retain(|(name, _)| *name != "Content-Range");
            return reply.header("Content-Range", "bytes 0-4194303/26224640");
        }
        reply
    });
    let told = refused(&scratch, &server, "");
    assert!(
        told.contains("the server sends another part than it was asked for"),
        "{told}"
    );
}
