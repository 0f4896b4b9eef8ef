//! Images from web servers: what comes, and what does not.

use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::scratch::{Outcome, Scratch, digest, noise};
use crate::server::{Framing, Reply, Server, nobody, saying};

const NOTHING: [&str; 0] = [];

#[test]
fn an_image_is_fetched_and_its_digest_checked() {
    let scratch = Scratch::new("web");
    let bytes = noise(1, 2 << 20);
    let server = {
        let bytes = bytes.clone();
        Server::start(move |request| Reply::file(request, &bytes, "\"1\""))
    };
    let url = server.url("/x.img");
    let name = format!("one@sha256:{}", digest(&bytes));
    let outcome = scratch.images(&["pull", &name, "--from", &url]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.stderr, format!("one: fetching {url} (2.0 MiB)\n"));
    assert!(scratch.disk("one") == bytes);
    assert_eq!(scratch.files().len(), 2, "{:?}", scratch.files());
    let seen = &server.seen()[0];
    assert!(
        seen.headers["user-agent"].starts_with("disklet/"),
        "{seen:?}"
    );
    assert_eq!(seen.headers.get("range"), None);
    let wanted = format!("two@sha256:{}", "a".repeat(64));
    let told = scratch.fails(&["pull", &wanted, "--from", &url]);
    assert!(told.contains("as demanded"), "{told}");
    assert_eq!(scratch.files().len(), 2, "{:?}", scratch.files());
}

#[test]
fn what_a_user_meets_is_told_in_one_message_and_nothing_stays() {
    let scratch = Scratch::new("web-errors");
    let server = Server::start(|request| match request.path.as_str() {
        "/gone" => Reply::status(404),
        "/closed" => Reply::status(401),
        "/teapot" => Reply::status(418),
        "/broken" => Reply::status(503),
        "/no-image" => Reply::whole(b"QFI\xfb<html>"),
        "/empty" => Reply::whole(b""),
        "/long" => Reply::whole(b"x").header("Content-Length", "9000000000000000"),
        "/endless" => Reply::whole(b"xxx").framed(Framing::Close),
        "/circle" => Reply::redirect("/circle"),
        "/ftp" => Reply::redirect("ftp://host/x"),
        "/nowhere" => Reply::status(302),
        _ => Reply::status(200).header("Content-Length", "1000000000"),
    });
    for (from, wanted) in [
        (
            server.url("/gone"),
            "/gone: the server does not have it (status 404)\n  help: check what follows --from",
        ),
        (
            server.url("/closed"),
            "the server does not give it to us (status 401)\n  help: give credentials",
        ),
        (server.url("/teapot"), "status 418"),
        (
            server.url("/broken"),
            "the server cannot answer now (status 503)",
        ),
        (server.url("/no-image"), "image one cannot be taken in: "),
        (server.url("/empty"), "the stream is empty"),
        (
            server.url("/long"),
            "too much for a disk of at most 2 TiB\n  help: allow larger disks with --max-size",
        ),
        (server.url("/endless"), "does not say how long the file is"),
        (server.url("/circle"), "leads on more than 10 times"),
        (
            server.url("/ftp"),
            "leads on to an address that does not begin with https://",
        ),
        (server.url("/nowhere"), "leads on, but not where to"),
        (nobody(), "the server cannot be reached: "),
        (nobody(), "help: nobody listens there: check the address"),
        (
            saying("SSH-2.0-OpenSSH_9.2\r\n"),
            "the server's answer makes no sense: ",
        ),
        (
            saying("HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"),
            "the server's answer makes no sense: ",
        ),
        (
            saying("HTTP/1.1 200 OK\r\nno header\r\n\r\n"),
            "help: check the address and the port: something else than a web server",
        ),
        (
            saying(""),
            "the server ends the connection without an answer",
        ),
        (
            "http://no-such-host.invalid/x".to_owned(),
            "the name no-such-host.invalid cannot be looked up: ",
        ),
        ("http:///x".to_owned(), "--from: the address has no host"),
        (
            "no-such.img".to_owned(),
            "image one: no-such.img: cannot be opened: ",
        ),
        (
            "host.example/x.img".to_owned(),
            "help: begin an address with https:// or http://",
        ),
        (
            "ftp://user:hunter2@host/x".to_owned(),
            "error: --from: ftp:// is not spoken here, only https:// and http://\n  help: fetch the file by other means",
        ),
        (
            "file:///srv/x.img".to_owned(),
            "error: --from: file:// is not needed\n  help: give the path alone: --from /srv/x.img\n",
        ),
        (
            "oci://host/x".to_owned(),
            "error: --from: oci:// is not spoken here\n  help: an image in a registry is docker://",
        ),
    ] {
        let told = scratch.fails(&["pull", "one", "--retries", "1", "--from", &from]);
        assert!(told.contains(wanted), "{from}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
        assert_eq!(scratch.files(), NOTHING, "{from}");
    }
}

#[test]
fn a_page_for_people_is_no_image() {
    let scratch = Scratch::new("web-page");
    let image = || {
        let mut disk = noise(1, 1 << 20);
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        disk
    };
    let server = Server::start(move |request| {
        let reply = match request.path.as_str() {
            "/page" => Reply::whole(&b"Please sign in.\n".repeat(512)),
            "/bytes" => Reply::whole(&noise(1, 1 << 20)),
            _ => Reply::file(request, &image(), "\"1\""),
        };
        reply.header("Content-Type", "Text/HTML; charset=utf-8")
    });
    for (path, wanted) in [
        (
            "/page",
            "/page: the server sends a page (text/html), not an image\n  help: it may ask for a login",
        ),
        (
            "/bytes",
            "the server sends a page (text/html), not an image\n  help: it may ask for a login",
        ),
    ] {
        let told = scratch.fails(&["pull", "one", "--from", &server.url(path)]);
        assert!(told.contains(wanted), "{told}");
        assert_eq!(scratch.files(), NOTHING);
    }
    // Some servers call everything a page.
    scratch.succeeds(&["pull", "one", "--from", &server.url("/image")]);
    assert!(scratch.disk("one") == image());
}

#[test]
fn an_encoding_that_is_not_known_is_refused() {
    let scratch = Scratch::new("web-encoded");
    let server = Server::start(|request| {
        let coding = request.path.trim_start_matches('/');
        Reply::whole(&noise(1, 1 << 20)).header("Content-Encoding", coding)
    });
    for coding in ["br", "deflate", "gzip,br"] {
        let told = scratch.fails(&["pull", "one", "--from", &server.url(&format!("/{coding}"))]);
        let wanted = format!("the server sends the file encoded as {coding:?}, which is not");
        assert!(told.contains(&wanted), "{told}");
        assert_eq!(scratch.files(), NOTHING);
    }
    scratch.succeeds(&["pull", "one", "--from", &server.url("/identity")]);
}

#[test]
fn without_an_address_the_name_must_be_one() {
    let scratch = Scratch::new("web-names");
    for (name, wanted) in [
        (
            "virtlet.cloud/cirros",
            "image cirros: it is not known where it comes from: no mapping has the name",
        ),
        (
            "http://127.0.0.1/x.img",
            "a name does not make http be used\n  help: say it with --from http://",
        ),
    ] {
        let told = scratch.fails(&["pull", name]);
        assert!(told.contains(wanted), "{told}");
        assert!(told.contains("imageTranslations"), "{told}");
    }
    for (name, wanted) in [
        (
            "",
            "error: the image's name is empty\n  help: name it as manifests do",
        ),
        (
            "file:///x.img",
            "error: \"file:///x.img\" is no image's name\n  help: ",
        ),
        (
            "a b",
            "error: image \"a b\": its name has the character ' ' in it",
        ),
        (
            &"x".repeat(5000),
            "…: its name is longer than 1024 characters",
        ),
        (
            "docker://host.example/X",
            "it is not known where it comes from: the name has no repository in it",
        ),
        (
            "ftp://host.example/x",
            "ftp:// is not spoken here, only https:// and http://",
        ),
    ] {
        let told = scratch.fails(&["pull", name]);
        assert!(told.contains(wanted) && told.len() < 500, "{told}");
    }
    let told = scratch.fails(&["pull", "https://user:hunter2@host/x"]);
    assert!(
        told.contains("credentials are refused") && !told.contains("hunter2"),
        "{told}"
    );
}

#[test]
fn a_server_that_cannot_answer_now_is_asked_again() {
    let scratch = Scratch::new("web-busy");
    let asked = AtomicU32::new(0);
    let server = Server::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::status(503),
        1 => Reply::status(429),
        _ => Reply::whole(&noise(1, 1 << 20)),
    });
    let outcome = scratch.images(&["pull", "one", "--from", &server.url("/x")]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.stderr.contains("(status 429); trying again"),
        "{outcome:?}"
    );
    assert_eq!(server.seen().len(), 3);
}

#[test]
fn files_come_in_chunks_or_with_a_digest_without_a_length() {
    let scratch = Scratch::new("web-framing");
    let bytes = noise(1, 1 << 20);
    let server = {
        let bytes = bytes.clone();
        Server::start(move |request| {
            Reply::whole(&bytes).framed(match request.path.as_str() {
                "/chunks" => Framing::Chunked,
                _ => Framing::Close,
            })
        })
    };
    scratch.succeeds(&["pull", "one", "--from", &server.url("/chunks")]);
    let name = format!("two@sha256:{}", digest(&bytes));
    scratch.succeeds(&["pull", &name, "--from", &server.url("/close")]);
    assert!(scratch.disk("one") == bytes && scratch.disk("two") == bytes);
}

#[test]
fn redirects_are_followed_without_secrets() {
    let scratch = Scratch::new("web-redirects");
    let bytes = noise(1, 1 << 20);
    let other = {
        let bytes = bytes.clone();
        Server::start(move |request| Reply::file(request, &bytes, "\"1\""))
    };
    let server = {
        let to = other.url("/there?token=hunter2");
        Server::start(move |request| match request.path.as_str() {
            "/a/start" => Reply::redirect("../b/next"),
            _ => Reply::redirect(&to),
        })
    };
    let url = server.url("/a/start").replace("//", "//user:hunter2@");
    let outcome = scratch.images(&["pull", "one", "--from", &url]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(scratch.disk("one") == bytes);
    assert!(!format!("{outcome:?}").contains("hunter2"), "{outcome:?}");
    // To the same server the words go along, to another they do not.
    let basic = Some("Basic dXNlcjpodW50ZXIy".to_owned());
    assert_eq!(server.seen_header("authorization"), [basic.clone(), basic]);
    assert_eq!(other.seen_header("authorization"), [None]);
    assert_eq!(other.seen()[0].path, "/there?token=hunter2");
}

#[test]
fn credentials_come_from_the_address_or_a_file() {
    let scratch = Scratch::new("web-login");
    let server = Server::start(|request| {
        let words = request.headers.get("authorization").map(String::as_str);
        match words {
            Some("Basic dXNlcjpodW50ZXIy" | "Bearer hunter2") => Reply::whole(&noise(1, 1 << 20)),
            _ => Reply::status(401),
        }
    });
    let with_login = server.url("/x").replace("//", "//user:hunter2@");
    scratch.succeeds(&["pull", "one", "--from", &with_login]);
    let wrong = server.url("/x").replace("//", "//user:hunter3@");
    let told = scratch.fails(&["pull", "two", "--from", &wrong]);
    assert!(
        told.contains("help: check the credentials") && !told.contains("hunter3"),
        "{told}"
    );
    let file = scratch.path("words");
    scratch.map(&format!(
        "translations: [{{name: two, url: \"{}\", transport: t}}]\n\
         transports: {{t: {{credentialsFile: {}}}}}\n",
        server.url("/x"),
        file.display()
    ));
    for (words, wanted) in [
        (None, "words: cannot be read: "),
        (
            Some("hunter2"),
            "words: has neither a password nor a token in it\n  help: write one line",
        ),
        (Some("\n"), "words: does not have one line"),
        (Some("user:hunter2\n"), ""),
        (Some("Bearer hunter2"), ""),
    ] {
        if let Some(words) = words {
            scratch.write("words", words);
        }
        if wanted.is_empty() {
            scratch.succeeds(&["pull", "two"]);
        } else {
            let told = scratch.fails(&["pull", "two"]);
            assert!(told.contains(wanted) && !told.contains("hunter2"), "{told}");
        }
    }
}

#[test]
fn proxies_of_the_environment_are_used() {
    let scratch = Scratch::new("web-proxy");
    let proxy = Server::start(|_| Reply::whole(&noise(1, 1 << 20)));
    let run = |no_proxy: &str| {
        let mut command = scratch.command(&["pull", "one", "--from", "http://host.invalid:8080/x"]);
        command.env(
            "http_proxy",
            proxy.url("/").replace("//", "//user:hunter2@"),
        );
        command.env("NO_PROXY", no_proxy);
        Outcome::of(command.output().unwrap())
    };
    let outcome = run("");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let seen = proxy.seen();
    assert_eq!(
        (seen[0].method.as_str(), seen[0].path.as_str()),
        ("CONNECT", "host.invalid:8080")
    );
    let words = seen[0]
        .headers
        .get("proxy-authorization")
        .map(String::as_str);
    assert!(
        words.is_some_and(|words| words.eq_ignore_ascii_case("basic dXNlcjpodW50ZXIy")),
        "{seen:?}"
    );
    let told = run("other, .invalid").refused();
    assert!(
        told.contains("the name host.invalid cannot be looked up"),
        "{told}"
    );
}

/// A proxy that is not there, or lets nobody through, is not told as the server.
#[test]
fn a_proxy_that_fails_is_named() {
    let scratch = Scratch::new("web-bad-proxy");
    let told = |proxy: &str| {
        let mut command = scratch.command(&["pull", "one", "--from", "http://host.invalid/x"]);
        command.env("http_proxy", proxy);
        Outcome::of(command.output().unwrap()).refused()
    };
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap()
    };
    let within = Server::start(|_| Reply::status(407));
    let itself = saying("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n");
    let itself = itself
        .strip_prefix("http://")
        .and_then(|it| it.strip_suffix("/x"));
    for (proxy, help) in [
        (gone.to_string(), "no_proxy"),
        (format!("127.0.0.1:{}", within.port()), "USER:PASSWORD@"),
        (itself.unwrap().to_owned(), "USER:PASSWORD@"),
    ] {
        let told = told(&format!("http://user:hunter2@{proxy}"));
        let name = format!("the variable http_proxy's proxy http://{proxy}");
        assert!(told.contains(&name), "{told}");
        assert!(
            told.contains("help: see that") && told.contains(help),
            "{told}"
        );
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn what_is_not_there_and_what_leads_in_a_circle_say_what_to_do() {
    let scratch = Scratch::new("web-remedies");
    let missing = Server::start(|_| Reply::status(404));
    let told = scratch.fails(&["pull", "one", "--from", &missing.url("/x")]);
    assert!(told.contains("(status 404)"), "{told}");
    assert!(told.contains("help: check what follows --from"), "{told}");
    let circle = Server::start(|_| Reply::redirect("/again"));
    let told = scratch.fails(&["pull", "one", "--from", &circle.url("/x")]);
    assert!(told.contains("leads on more than"), "{told}");
    assert!(
        told.contains("help: see that the server does not lead in a circle"),
        "{told}"
    );
}

#[test]
fn those_who_want_the_same_join() {
    let scratch = Scratch::new("web-join");
    let bytes = noise(1, 4 << 20);
    let server = {
        let bytes = bytes.clone();
        Server::start(move |request| {
            std::thread::sleep(Duration::from_millis(300));
            Reply::file(request, &bytes, "\"1\"")
        })
    };
    let url = server.url("/x");
    let pulls: Vec<_> = (0..4)
        .map(|_| {
            let mut command = scratch.command(&["pull", "one", "--from", &url]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();
    for pull in pulls {
        let outcome = Outcome::of(pull.wait_with_output().unwrap());
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.stdout.contains(&digest(&bytes)), "{outcome:?}");
    }
    assert_eq!(server.seen().len(), 1);
    assert!(scratch.disk("one") == bytes);
    assert_eq!(scratch.files().len(), 2, "{:?}", scratch.files());
}

/// Under one name, but from elsewhere: nobody gets another's image.
#[test]
fn those_who_want_something_else_do_not_join() {
    let scratch = Scratch::new("web-not-join");
    let server = Server::start(|request| {
        std::thread::sleep(Duration::from_millis(300));
        let seed = request.path.len() as u64;
        Reply::file(request, &noise(seed, 1 << 20), "\"1\"")
    });
    let urls = [server.url("/?a"), server.url("/?bb")];
    let pulls = urls.map(|url| {
        let mut command = scratch.command(&["pull", "one", "--from", &url]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    for (pull, seed) in pulls.into_iter().zip([3, 4]) {
        let outcome = Outcome::of(pull.wait_with_output().unwrap());
        let wanted = digest(&noise(seed, 1 << 20));
        assert!(outcome.stdout.contains(&wanted), "{outcome:?}");
    }
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn without_room_nothing_stays_of_a_download() {
    let scratch = Scratch::new("web-full");
    let server = Server::start(|request| Reply::file(request, &noise(1, 8 << 20), "\"1\""));
    let limited = "trap '' XFSZ; ulimit -f 2048";
    let args = ["pull", "one", "--from", &server.url("/x")];
    let told = Outcome::of(scratch.after(limited, &args).output().unwrap()).refused();
    assert!(told.contains("image one cannot be taken in"), "{told}");
    assert!(told.contains("ulimit -f shows"), "{told}");
    let directory = scratch.path("data/images/sha256").display().to_string();
    assert_eq!(told.matches(&directory).count(), 1, "{told}");
    assert_eq!(scratch.files(), NOTHING);
}

#[test]
fn progress_is_told_in_lines_for_programs() {
    let scratch = Scratch::new("web-progress");
    let server = Server::start(|request| Reply::file(request, &noise(1, 3 << 20), "\"1\""));
    let outcome = scratch.images(&[
        "pull",
        "one",
        "--progress=json",
        "--from",
        &server.url("/x"),
    ]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lines: Vec<serde_json::Value> = outcome
        .stderr
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["done"], &last["total"]),
        (&(3 << 20).into(), &(3 << 20).into())
    );
    let quiet = scratch.images(&[
        "pull",
        "one",
        "--progress=none",
        "--from",
        &server.url("/x"),
    ]);
    assert_eq!(quiet.stderr, "");
}
