//! Downloads that are interrupted: by the server, or by our own end.

use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::scratch::{Scratch, digest, noise, wait_until};
use crate::server::{Framing, Reply, Server};

const LENGTH: usize = 6 << 20;

/// A server that does something else at each request, then what it did last.
fn server(replies: Vec<fn(Reply) -> Reply>) -> (Server, Vec<u8>) {
    let bytes = noise(1, LENGTH);
    let asked = AtomicUsize::new(0);
    let file = bytes.clone();
    let server = Server::start(move |request| {
        let number = asked.fetch_add(1, Ordering::Relaxed).min(replies.len() - 1);
        replies[number](Reply::file(request, &file, "\"1\""))
    });
    (server, bytes)
}

fn as_it_is(reply: Reply) -> Reply {
    reply
}

#[test]
fn a_lost_connection_is_taken_up_where_it_was_lost() {
    let scratch = Scratch::new("resumed");
    let (server, bytes) = server(vec![
        |reply| reply.dropped_at(1_000_001),
        |reply| reply.dropped_at(0),
        |_| Reply::status(503),
        |reply| reply.dropped_at(2_000_000),
        as_it_is,
    ]);
    let name = format!("one@sha256:{}", digest(&bytes));
    let outcome = scratch.images(&["pull", &name, "--from", &server.url("/x")]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome
            .stderr
            .contains("the connection was lost after 976.5 KiB of 6.0 MiB; trying to go on"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome
            .stderr
            .contains(": the server cannot answer now (status 503) after 976.5 KiB"),
        "{}",
        outcome.stderr
    );
    for line in outcome.stderr.lines() {
        assert_eq!(line.matches("http://").count(), 1, "{line}");
    }
    assert!(scratch.disk("one") == bytes);
    let range = |from: usize| Some(format!("bytes={from}-"));
    let (first, second) = (1_000_001, 3_000_001);
    assert_eq!(
        server.seen_header("range"),
        [
            None,
            range(first),
            range(first),
            range(first),
            range(second)
        ]
    );
    let tags = server.seen_header("if-range");
    assert!(
        tags[1..].iter().all(|tag| tag.as_deref() == Some("\"1\"")),
        "{tags:?}"
    );
    assert_eq!(scratch.files().len(), 2, "{:?}", scratch.files());
}

#[test]
fn a_server_that_knows_no_parts_sends_it_again() {
    let scratch = Scratch::new("resumed-whole");
    let bytes = noise(1, LENGTH);
    let file = bytes.clone();
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        let reply = Reply::whole(&file).header("Last-Modified", "Mon, 16 Nov 2026 00:00:00 GMT");
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => reply.dropped_at(3_000_000),
            _ => reply,
        }
    });
    scratch.succeeds(&["pull", "one", "--from", &server.url("/x")]);
    assert!(scratch.disk("one") == bytes);
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn a_file_that_changes_meanwhile_is_begun_anew() {
    // With a tag that tells, and without any.
    for tags in [["\"1\"", "\"2\""], ["W/\"1\"", "W/\"1\""]] {
        let scratch = Scratch::new(&format!("resumed-changed-{}", tags[0].len()));
        let asked = AtomicUsize::new(0);
        let server = Server::start(move |request| {
            let number = asked.fetch_add(1, Ordering::Relaxed).min(1);
            let bytes = noise(number as u64 + 1, LENGTH);
            let reply = Reply::file(request, &bytes, tags[number]);
            match number {
                0 => reply.dropped_at(3_000_000),
                _ => reply,
            }
        });
        let outcome = scratch.images(&["pull", "one", "--from", &server.url("/x")]);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stderr.contains("beginning anew"), "{outcome:?}");
        assert!(scratch.disk("one") == noise(2, LENGTH));
    }
}

#[test]
fn a_file_that_never_stays_the_same_is_given_up() {
    let scratch = Scratch::new("resumed-never");
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        let tag = format!("\"{number}\"");
        Reply::file(request, &noise(number as u64 + 1, LENGTH), &tag).dropped_at(3_000_000)
    });
    let told = scratch.fails(&["pull", "one", "--from", &server.url("/x")]);
    assert!(
        told.contains("error: image one: ") && told.contains("has changed"),
        "{told}"
    );
    assert_eq!(scratch.files(), [] as [&str; 0]);
}

#[test]
fn a_later_pull_goes_on_from_there() {
    let scratch = Scratch::new("resumed-later");
    let (server, bytes) = server(vec![|reply| reply.dropped_at(3_000_000), as_it_is]);
    let url = server.url("/x").replace("//", "//user:hunter2@");
    let told = scratch.fails(&["pull", "one", "--retries", "0", "--from", &url]);
    assert!(
        told.contains("the connection was lost after 2.8 MiB of 6.0 MiB, and 0 attempts"),
        "{told}"
    );
    assert!(
        told.contains("help: pull it again: it goes on from there if the server can send parts"),
        "{told}"
    );
    for file in scratch.files() {
        let text = fs::read(scratch.path("data/images").join(file)).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("hunter2"));
    }
    // As a power cut may leave it: longer than what is durable.
    let files = scratch.files();
    let part = files.iter().find(|file| file.ends_with(".part")).unwrap();
    let part = fs::File::options()
        .write(true)
        .open(scratch.path("data/images").join(part))
        .unwrap();
    part.set_len(4_000_000).unwrap();
    let outcome = scratch.images(&["pull", "one", "--from", &url]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stderr.contains("2.8 MiB are here"), "{outcome:?}");
    assert!(scratch.disk("one") == bytes);
    assert_eq!(
        server.seen_header("range")[1].as_deref(),
        Some("bytes=3000000-")
    );
    assert_eq!(scratch.files().len(), 2, "{:?}", scratch.files());
}

/// What is left of a file that is another by now counts for nothing.
#[test]
fn a_later_pull_of_another_file_begins_anew() {
    let scratch = Scratch::new("resumed-other");
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::file(request, &noise(1, LENGTH), "\"1\"").dropped_at(3_000_000),
        // Much shorter: the part that is asked for does not exist.
        1 => Reply::status(416),
        _ => Reply::file(request, &noise(2, 1 << 20), "\"2\""),
    });
    let url = server.url("/x");
    scratch.fails(&["pull", "one", "--retries", "0", "--from", &url]);
    scratch.succeeds(&["pull", "one", "--from", &url]);
    assert!(scratch.disk("one") == noise(2, 1 << 20));
    assert_eq!(scratch.files().len(), 2, "{:?}", scratch.files());
}

/// A server that sends the asked part of whatever it has, the tag be damned.
#[test]
fn a_part_of_another_file_is_not_taken() {
    for (name, retries) in [("later", "0"), ("now", "3")] {
        let scratch = Scratch::new(&format!("resumed-careless-{name}"));
        let asked = AtomicUsize::new(0);
        let server = Server::start(move |request| {
            let number = asked.fetch_add(1, Ordering::Relaxed).min(1);
            let mut request = request.clone();
            request.headers.remove("if-range");
            let bytes = noise(number as u64 + 1, LENGTH);
            let reply = Reply::file(&request, &bytes, ["\"1\"", "\"2\""][number]);
            match number {
                0 => reply.dropped_at(3_000_000),
                _ => reply,
            }
        });
        let args = [
            "pull",
            "one",
            "--retries",
            retries,
            "--from",
            &server.url("/x"),
        ];
        if retries == "0" {
            scratch.fails(&args);
        }
        let outcome = scratch.images(&args);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(scratch.disk("one") == noise(2, LENGTH), "{name}");
    }
}

type Answering = fn() -> Reply;

/// A server that drops connections, and does not send what is asked for when
/// the rest is wanted.
fn without_parts(rest: Answering) -> Server {
    Server::start(move |request| match request.headers.contains_key("range") {
        true => rest(),
        false => Reply::file(request, &noise(1, LENGTH), "\"1\"").dropped_at(3_000_000),
    })
}

fn another_part() -> Reply {
    let mut reply = Reply::whole(&noise(1, LENGTH)[100..]);
    reply.status = 206;
    reply.header("ETag", "\"1\"").header(
        "Content-Range",
        &format!("bytes 100-{}/{LENGTH}", LENGTH - 1),
    )
}

/// It is said that there is such a part, and it is refused.
fn no_part() -> Reply {
    Reply::status(416).header("Content-Range", &format!("bytes */{LENGTH}"))
}

#[test]
fn nobody_is_told_to_go_on_where_a_server_cannot() {
    let cases: [(&str, Answering, &str); 2] = [
        (
            "start",
            another_part,
            "the server sends another part than it was asked for",
        ),
        (
            "refused",
            no_part,
            "the server does not send the part that it was asked for (status 416)",
        ),
    ];
    for (name, rest, why) in cases {
        let scratch = Scratch::new(&format!("resumed-parts-{name}"));
        let url = without_parts(rest).url("/x");
        // Nobody knows yet what the server can.
        let first = scratch.fails(&["pull", "one", "--retries", "0", "--from", &url]);
        assert!(first.contains("it goes on from there"), "{first}");
        let second = scratch.fails(&["pull", "one", "--retries", "0", "--from", &url]);
        assert!(
            second.contains(&format!("{why}; beginning anew")),
            "{second}"
        );
        assert!(second.ends_with("help: pull it again\n"), "{second}");
        assert_eq!(scratch.files(), [] as [&str; 0]);

        let told = scratch.fails(&["pull", "one", "--from", &url]);
        assert!(!told.contains("shorter"), "{told}");
        let error = told.split("error: ").last().unwrap();
        assert!(error.contains(why), "{told}");
        assert!(error.contains("use --from FILE"), "{told}");
        assert_eq!(scratch.files(), [] as [&str; 0]);
    }
}

/// A partial file with other bytes than were sent: only the digest can tell.
#[test]
fn a_damaged_part_is_fetched_again() {
    let scratch = Scratch::new("resumed-damaged");
    let (server, bytes) = server(vec![|reply| reply.dropped_at(3_000_000), as_it_is]);
    let name = format!("one@sha256:{}", digest(&bytes));
    let args = ["pull", &name, "--retries", "0", "--from", &server.url("/x")];
    scratch.fails(&args);
    let files = scratch.files();
    let part = files.iter().find(|file| file.ends_with(".part")).unwrap();
    let part = scratch.path("data/images").join(part);
    let mut damaged = fs::read(&part).unwrap();
    damaged[1_000_000] ^= 1;
    fs::write(&part, damaged).unwrap();
    let outcome = scratch.images(&args);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.stderr.contains("does not fit; beginning anew"),
        "{outcome:?}"
    );
    assert!(scratch.disk("one") == bytes);
}

#[test]
fn a_connection_on_which_nothing_comes_is_given_up() {
    let scratch = Scratch::new("resumed-stall");
    let (server, bytes) = server(vec![|reply| reply.stalled_at(2_000_000), as_it_is]);
    scratch.map(&format!(
        "translations: [{{name: one, url: \"{}\"}}]\ntransports: {{\"\": {{stallTimeout: 300}}}}\n",
        server.url("/x")
    ));
    let outcome = scratch.images(&["pull", "virtlet.cloud/one"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome
            .stderr
            .contains("nothing came any more after 1.9 MiB"),
        "{outcome:?}"
    );
    assert!(scratch.disk("one") == bytes);
}

#[test]
fn chunks_that_end_too_soon_are_taken_up_as_well() {
    let scratch = Scratch::new("resumed-chunks");
    let (server, bytes) = server(vec![
        |reply| reply.dropped_at(2_000_000).framed(Framing::Chunked),
        as_it_is,
    ]);
    scratch.succeeds(&["pull", "one", "--from", &server.url("/x")]);
    assert!(scratch.disk("one") == bytes);
    assert_eq!(
        server.seen_header("range")[1].as_deref(),
        Some("bytes=2000000-")
    );
}

/// Killed half way, a pull leaves a part that the next one or `gc` takes.
#[test]
fn a_killed_pull_leaves_what_gc_sweeps() {
    let scratch = Scratch::new("resumed-killed");
    let (server, bytes) = server(vec![
        |reply| reply.stalled_at(5_000_000),
        |reply| reply.stalled_at(500_000),
        as_it_is,
    ]);
    let url = server.url("/x");
    let noted = || {
        let files = scratch.files();
        let note = files.iter().find(|file| file.ends_with(".json"))?;
        let text = fs::read(scratch.path("data/images").join(note)).ok()?;
        let note: serde_json::Value = serde_json::from_slice(&text).ok()?;
        note["durable"].as_u64()
    };
    let killed = |when: &dyn Fn() -> bool| {
        let mut command = scratch.command(&["pull", "one", "--from", &url]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        wait_until("it is at work", when);
        // While it is at work, nothing of it is swept away.
        assert_eq!(scratch.succeeds(&["gc"]), "freed 0 B\n");
        child.kill().unwrap();
        child.wait().unwrap();
    };
    killed(&|| noted().is_some_and(|durable| durable >= 1 << 20));
    assert!(scratch.listed().is_empty());
    let durable = noted().unwrap();
    killed(&|| server.seen().len() == 2);
    assert_eq!(
        server.seen_header("range")[1],
        Some(format!("bytes={durable}-"))
    );
    // Killed while it replaced the note, it leaves one more.
    let lock = scratch.files().remove(0);
    let hash = &lock["locks/".len()..];
    scratch.write(&format!("data/images/pulling/.{hash}.json.17.partial"), "{");
    scratch.write("data/images/pulling/README", "not ours");
    scratch.succeeds(&["gc", "--dry-run"]);
    assert_eq!(scratch.files().len(), 5, "{:?}", scratch.files());
    let told = scratch.succeeds(&["gc"]);
    fs::remove_file(scratch.path("data/images/pulling/README")).unwrap();
    assert!(
        told.contains("what has come of an interrupted pull"),
        "{told}"
    );
    assert_eq!(scratch.files(), [] as [&str; 0]);
    scratch.succeeds(&["pull", "one", "--from", &url]);
    assert!(scratch.disk("one") == bytes);
}
