//! Registries that stall, fail, lie, ignore what they are asked for, and lead elsewhere.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::images::{Content, tar};
use super::scratch::Scratch;
use super::server::{Framing, Reply, Request, Server};
use super::{basic, disk, done, logged_in, one_disk, refused, serving};

/// A registry with one disk in one layer, whose blobs are answered by the function: which
/// request it is, and what would be right.
fn blobs(answer: impl Fn(usize, &Request, Reply) -> Reply + Send + Sync + 'static) -> Server {
    let (content, asked) = (one_disk(), AtomicUsize::new(0));
    Server::start(move |request| {
        let reply = content.answer(request);
        match request.path.contains("/blobs/") {
            true => answer(asked.fetch_add(1, Ordering::SeqCst), request, reply),
            false => reply,
        }
    })
}

/// The layer of [`one_disk`].
fn layer() -> Vec<u8> {
    tar(&[("disk/a", &disk(7))])
}

const AT: usize = 700_000;

#[test]
fn a_connection_on_which_nothing_comes_is_given_up() {
    let scratch = Scratch::new("registry-stall");
    let server = blobs(|nth, _, reply| match nth {
        0 => reply.stalled_at(AT),
        1 => reply.stalled_at(0),
        _ => reply,
    });
    done(&scratch, &server, "--stall-timeout 1");
    assert!(scratch.read("disk") == disk(7));
    let ranges: Vec<_> = server.seen_header("range").into_iter().flatten().collect();
    assert_eq!(ranges, ["bytes=700000-", "bytes=700000-"]);
    // Nobody waits for ever.
    std::fs::remove_file(scratch.path("disk")).unwrap();
    let server = blobs(|_, _, reply| reply.stalled_at(0));
    let told = refused(&scratch, &server, "--stall-timeout 1 --retries 1");
    assert!(told.contains("nothing came any more"), "{told}");
    let mute = Server::start(|_| Reply::whole(b"{}").stalled_at(1));
    let told = refused(&scratch, &mute, "--stall-timeout 1 --retries 1");
    assert!(told.contains("nothing came any more"), "{told}");
}

#[test]
fn a_registry_that_fails_is_asked_so_often_and_no_more() {
    let scratch = Scratch::new("registry-failing");
    for status in [500, 502, 429] {
        let server = blobs(move |nth, _, reply| match nth {
            0 => Reply::status(status),
            1 => reply.dropped_at(AT),
            2 | 3 => Reply::status(status),
            _ => reply,
        });
        done(&scratch, &server, "");
        assert!(scratch.read("disk") == disk(7), "{status}");
        std::fs::remove_file(scratch.path("disk")).unwrap();
    }
    let server = blobs(|_, _, _| Reply::status(500));
    let told = refused(&scratch, &server, "--retries 2");
    assert!(told.contains("status 500"), "{told}");
    let asked = server.seen();
    let asked = asked.iter().filter(|it| it.path.contains("/blobs/"));
    assert_eq!(asked.count(), 3);
}

#[test]
fn lengths_that_are_not_true_fill_nothing() {
    let scratch = Scratch::new("registry-lengths");
    let longer = |reply: Reply| {
        let mut reply = reply;
        reply.body.extend([0; 5000]);
        reply
    };
    type Lie = Box<dyn Fn(usize, &Request, Reply) -> Reply + Send + Sync>;
    let lies: [(Lie, &str); 6] = [
        // More is said than comes, always.
        (
            Box::new(|_, request, reply| match request.headers.get("range") {
                None => reply.header("Content-Length", "99999999"),
                Some(_) => reply,
            }),
            "the registry sends 99999999 bytes, not 3147264 as the manifest says",
        ),
        // Less is said, and comes.
        (
            Box::new(|_, _, reply| reply.header("Content-Length", "100000")),
            "the registry sends 100000 bytes, not 3147264 as the manifest says",
        ),
        (
            Box::new(move |_, _, reply| longer(reply)),
            "the registry sends 3152264 bytes",
        ),
        // Nothing is said, and more or less comes.
        (
            Box::new(move |_, _, reply| longer(reply).framed(Framing::Chunked)),
            "more comes than the manifest says",
        ),
        (
            Box::new(|_, _, mut reply| {
                reply.body.truncate(AT);
                reply.framed(Framing::Chunked)
            }),
            "",
        ),
        (
            Box::new(|_, _, mut reply| {
                reply.body.truncate(AT);
                reply.framed(Framing::Close)
            }),
            "",
        ),
    ];
    for (lie, words) in lies {
        let told = refused(&scratch, &blobs(lie), "--retries 1");
        assert!(told.contains(words), "{words}: {told}");
    }
}

/// Whoever cannot send a part sends all of it again, or says that it is another part.
#[test]
fn a_layer_goes_on_where_the_rest_is_not_what_was_asked_for() {
    let scratch = Scratch::new("registry-ignores");
    let whole = |nth, _: &Request, _: Reply| match nth {
        0 => Reply::whole(&layer()).dropped_at(AT),
        1 => Reply::whole(&layer()).dropped_at(AT + 100_000),
        2 => Reply::whole(&layer()).dropped_at(AT / 2),
        // Nor says how long it is.
        3 => Reply::whole(&layer()).framed(Framing::Chunked),
        _ => Reply::status(404),
    };
    let server = blobs(whole);
    done(&scratch, &server, "");
    assert!(scratch.read("disk") == disk(7));
    std::fs::remove_file(scratch.path("disk")).unwrap();
    let other_part = |nth, _: &Request, reply: Reply| match nth {
        0 => reply.dropped_at(AT),
        _ => {
            let mut reply = Reply::status(206);
            reply.body = layer()[AT - 5..].to_vec();
            let part = format!("bytes {}-3147263/3147264", AT - 5);
            reply.header("Content-Range", &part)
        }
    };
    let told = refused(&scratch, &blobs(other_part), "");
    assert!(
        told.contains("another part than it was asked for"),
        "{told}"
    );
    let flipped = |nth, _: &Request, mut reply: Reply| match nth {
        0 => reply.dropped_at(AT),
        _ => {
            reply.body[77] ^= 4;
            reply
        }
    };
    let told = refused(&scratch, &blobs(flipped), "");
    assert!(told.contains("not the one that it was asked by"), "{told}");
}

/// A flipped bit is the registry's, whatever it makes of the layer.
#[test]
fn what_was_falsified_is_said_to_be_so_also_where_it_cannot_be_unpacked() {
    let scratch = Scratch::new("registry-flipped");
    scratch.disk("a.img", 3);
    let layer = tar(&[("disk/a.img", &scratch.read("a.img"))]);
    for (tool, options, name) in [
        ("gzip", "-k -q layer", "layer.gz"),
        ("zstd", "-q layer", "layer.zst"),
    ] {
        std::fs::write(scratch.path("layer"), &layer).unwrap();
        scratch.tool(tool, options);
        let packed = scratch.read(name);
        let mut content = Content::default();
        content.image("latest", std::slice::from_ref(&packed));
        let mut other = packed.clone();
        let middle = other.len() / 2;
        other[middle] ^= 0x10;
        content.falsify(&super::digest(&packed), &other);
        let told = refused(&scratch, &serving(content), "");
        assert!(
            told.contains("not the one that it was asked by"),
            "{name}: {told}"
        );
    }
}

/// Whoever is led elsewhere goes there without words, asks anew whom it knows when that
/// connection is lost, and may be led to somebody else then.
#[test]
fn content_elsewhere_is_fetched_without_credentials() {
    let scratch = Scratch::new("registry-elsewhere");
    let places = [0, 1].map(|place| {
        blobs(
            move |_, request, reply| match (place, request.headers.get("range")) {
                (0, _) => reply.dropped_at(AT),
                _ => reply,
            },
        )
    });
    let urls = places.clone();
    let (content, asked) = (one_disk(), AtomicUsize::new(0));
    let server = Server::start(move |request| match request.headers.get("authorization") {
        Some(words) if *words == basic("me:hunter2") => {
            if !request.path.contains("/blobs/") {
                return content.answer(request);
            }
            let nth = asked.fetch_add(1, Ordering::SeqCst).min(1);
            Reply::redirect(&urls[nth].url(&request.path))
        }
        _ => Reply::status(401).header("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let login = logged_in(&scratch, &server, "me:hunter2");
    done(&scratch, &server, &login);
    assert!(scratch.read("disk") == disk(7));
    for place in &places {
        assert_eq!(place.seen_header("authorization"), [None]);
    }
    assert_eq!(
        places[1].seen_header("range"),
        [Some("bytes=700000-".to_owned())]
    );
    std::fs::remove_file(scratch.path("disk")).unwrap();
    let circle = Server::start(|request| Reply::redirect(&request.path));
    let told = refused(&scratch, &circle, "");
    assert!(told.contains("leads on more than"), "{told}");
    let nowhere = Server::start(|_| Reply::redirect("ftp://host.example/x"));
    let told = refused(&scratch, &nowhere, "");
    assert!(told.contains("leads on to an address that"), "{told}");
}
