//! `disklet populate` into files, from a web server that does as it is told.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "image/scratch.rs"]
mod scratch;
#[path = "images/server.rs"]
mod server;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use scratch::{Scratch, wait_until};
use server::{Reply, Server, nobody};

const TAG: &str = "\"one\"";

/// `disklet populate http`, ready to be run.
fn command(scratch: &Scratch, url: &str, more: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args(["populate", "http", url]);
    command.args(more.split_whitespace());
    command.current_dir(scratch.path(""));
    for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(variable);
    }
    command
}

fn populate(scratch: &Scratch, url: &str, more: &str) -> Output {
    command(scratch, url, more).output().unwrap()
}

fn done(scratch: &Scratch, url: &str, more: &str) -> String {
    let output = populate(scratch, url, more);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{more}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

/// Fails with one message, which it gives back.
fn refused(scratch: &Scratch, url: &str, more: &str) -> String {
    let output = populate(scratch, url, more);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{more}: {told}");
    let errors = told.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 1, "{told}");
    told
}

fn serving(bytes: Vec<u8>) -> Server {
    Server::start(move |request| Reply::file(request, &bytes, TAG))
}

#[test]
fn every_format_in_every_wrapping_becomes_the_disk() {
    let scratch = Scratch::new("populate-formats");
    scratch.disk("disk.raw", 5);
    scratch.qemu("convert -f raw -O qcow2 disk.raw plain.qcow2");
    scratch.qemu("convert -f raw -O qcow2 -c disk.raw packed.qcow2");
    scratch.qemu("convert -f raw -O qcow2 disk.raw grown.qcow2");
    // Its L1 table is behind all data from now on.
    scratch.qemu("resize -q grown.qcow2 9G");
    scratch.qemu("resize -q --shrink grown.qcow2 5M");
    let wanted = scratch.read("disk.raw");
    for image in ["disk.raw", "plain.qcow2", "packed.qcow2", "grown.qcow2"] {
        let gz = format!("{image}.gz");
        let gzipped = Command::new("gzip")
            .arg("-c")
            .arg(scratch.path(image))
            .output()
            .unwrap()
            .stdout;
        fs::write(scratch.path(&gz), gzipped).unwrap();
        for file in [image, &gz] {
            let server = serving(scratch.read(file));
            let told = done(&scratch, &server.url("/disk"), "--target out.img");
            assert!(told.starts_with("out.img: a disk of 5.0 MiB"), "{told}");
            assert!(scratch.read("out.img") == wanted, "{file}");
            let mode = fs::metadata(scratch.path("out.img")).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o660);
            fs::remove_file(scratch.path("out.img")).unwrap();
        }
    }
}

#[test]
fn a_volume_holds_its_disk_and_nothing_else() {
    let scratch = Scratch::new("populate-volume");
    let server = serving(vec![7; 4096]);
    let url = server.url("/disk");
    fs::create_dir_all(scratch.path("volume/lost+found")).unwrap();
    done(&scratch, &url, "--target volume");
    assert!(scratch.read("volume/disk.img") == [7; 4096]);

    let told = refused(&scratch, &url, "--target volume");
    assert!(told.contains("disk.img: is there already"), "{told}");
    assert!(told.contains("--replace"), "{told}");
    let other = serving(vec![8; 8192]);
    done(&scratch, &other.url("/disk"), "--target volume --replace");
    assert!(scratch.read("volume/disk.img") == [8; 8192]);

    fs::create_dir_all(scratch.path("used")).unwrap();
    fs::write(scratch.path("used/letters"), "dear").unwrap();
    let told = refused(&scratch, &url, "--target used --replace");
    assert!(told.contains("holds letters already"), "{told}");
    let told = refused(&scratch, &url, "--target nowhere/disk.img");
    assert!(
        told.contains("nowhere: there is no such directory"),
        "{told}"
    );
    std::os::unix::fs::symlink("volume/disk.img", scratch.path("link")).unwrap();
    let told = refused(&scratch, &url, "--target link --replace");
    assert!(told.contains("link"), "{told}");
    // Nobody was asked for what has no place.
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn what_is_wrong_leaves_nothing() {
    let scratch = Scratch::new("populate-wrong");
    scratch.disk("base.raw", 1);
    scratch.qemu("create -q -f qcow2 -b base.raw -F raw over.qcow2 1M");
    let over = scratch.read("over.qcow2");
    let mut torn = over.clone();
    torn.truncate(200);
    let before = scratch.names();
    for (bytes, more, words) in [
        (over, "", "backing file"),
        (torn, "", ""),
        (Vec::new(), "", "empty"),
        (vec![1; 4096], "--max-size 1Ki", "larger than 1024"),
        (
            vec![1; 4096],
            "--digest sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "not sha256:0000",
        ),
    ] {
        let server = serving(bytes);
        let more = format!("--target out.img {more}");
        let told = refused(&scratch, &server.url("/disk"), &more);
        assert!(told.contains(words), "{words}: {told}");
        assert_eq!(scratch.names(), before, "{words}");
    }
    let missing = Server::start(|_| Reply::status(404));
    let told = refused(&scratch, &missing.url("/disk"), "--target out.img");
    assert!(told.contains("the server does not have it"), "{told}");
    let told = refused(&scratch, "ftp://host/disk", "--target out.img");
    assert!(told.contains("https://"), "{told}");
    assert_eq!(scratch.names(), before);
}

#[test]
fn a_lost_connection_is_taken_up_and_another_file_is_not() {
    let scratch = Scratch::new("populate-lost");
    let bytes: Vec<u8> = (0..3_u32 << 20).map(|at| (at % 251) as u8).collect();
    let (served, asked) = (bytes.clone(), AtomicUsize::new(0));
    let server = Server::start(move |request| {
        let file = Reply::file(request, &served, TAG);
        match asked.fetch_add(1, Ordering::Relaxed) {
            0 => file.dropped_at(1_000_000),
            _ => file,
        }
    });
    done(&scratch, &server.url("/disk"), "--target out.img");
    assert!(scratch.read("out.img") == bytes);
    fs::remove_file(scratch.path("out.img")).unwrap();

    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| match asked.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::file(request, &bytes, TAG).dropped_at(1_000_000),
        _ => Reply::file(request, &bytes[1..], "\"two\""),
    });
    refused(&scratch, &server.url("/disk"), "--target out.img");
    assert_eq!(scratch.names(), [] as [&str; 0]);
}

#[test]
fn whoever_is_killed_leaves_nothing() {
    let scratch = Scratch::new("populate-killed");
    let server =
        Server::start(|request| Reply::file(request, &vec![5; 4 << 20], TAG).stalled_at(2 << 20));
    let mut command = command(&scratch, &server.url("/disk"), "--target out.img");
    let mut running = command.stderr(Stdio::null()).spawn().unwrap();
    while server.seen().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(scratch.names(), [] as [&str; 0]);
}

#[test]
fn progress_is_told_in_lines_for_programs() {
    let scratch = Scratch::new("populate-progress");
    let server = serving(vec![3; 1 << 20]);
    let more = "--target out.img --progress json";
    let output = populate(&scratch, &server.url("/disk"), more);
    let told = String::from_utf8(output.stderr).unwrap();
    let last: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert!(last.is_object(), "{told}");
}

#[test]
fn whoever_asks_hears_how_far_it_is() {
    let scratch = Scratch::new("populate-metrics");
    let server = Server::start(|request| {
        let file = Reply::file(request, &vec![5; 4 << 20], TAG);
        match request.headers.contains_key("range") {
            false => file.dropped_at(1 << 20),
            true => file.stalled_at(1 << 20),
        }
    });
    let address = nobody();
    let address = address
        .trim_start_matches("http://")
        .trim_end_matches("/x.img");
    let more = format!("--target out.img --metrics-listen {address}");
    let mut command = command(&scratch, &server.url("/disk"), &more);
    let mut running = command.stderr(Stdio::null()).spawn().unwrap();
    let asked = || -> String {
        let Ok(mut stream) = TcpStream::connect(address) else {
            return String::new();
        };
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    wait_until("half of it has come", || {
        asked().contains("\ndisklet_populate_fetched_bytes_total 2097152\n")
    });
    let answer = asked();
    assert!(
        answer.contains("\ndisklet_populate_total_bytes 4194304\n"),
        "{answer}"
    );
    assert!(
        answer.contains("\ndisklet_populate_notices_total 1\n"),
        "{answer}"
    );
    assert!(
        answer.contains("\ndisklet_populate_disk_bytes_total "),
        "{answer}"
    );
    let taken = format!("--target two.img --metrics-listen {address}");
    let told = refused(&scratch, &server.url("/disk"), &taken);
    assert!(told.contains("cannot listen at"), "{told}");
    running.kill().unwrap();
    running.wait().unwrap();
}

/// Whoever has it open would go on with a file that has no name any more.
#[test]
fn a_disk_that_somebody_uses_is_not_replaced() {
    let scratch = Scratch::new("populate-used");
    scratch.disk("new.raw", 1);
    let server = serving(scratch.read("new.raw"));
    let url = server.url("/disk");
    fs::create_dir(scratch.path("claim")).unwrap();
    scratch.disk("claim/disk.img", 2);
    let before = scratch.read("claim/disk.img");
    let user = scratch.in_use("raw", "claim/disk.img");
    for target in ["claim", "claim/disk.img"] {
        let told = refused(&scratch, &url, &format!("--target {target} --replace"));
        assert!(told.contains("claim/disk.img: cannot be filled"), "{told}");
        assert!(told.contains("help: stop the VM or program"), "{told}");
        assert!(scratch.read("claim/disk.img") == before);
    }
    drop(user);
    done(&scratch, &url, "--target claim --replace");
    assert!(scratch.read("claim/disk.img") == scratch.read("new.raw"));
}
