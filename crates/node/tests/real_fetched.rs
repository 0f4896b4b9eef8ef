//! Images that `up` fetches, and what it does if they do not come.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use disklet_core::names::Sha256;
use support::{Machine, guest};

/// A server on this machine; its address.
fn server(answer: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    format!("http://127.0.0.1:{port}/disk.img")
}

/// Sends these bytes to whoever asks.
fn serve(bytes: Vec<u8>) -> String {
    server(move |mut socket| {
        let mut request = BufReader::new(socket.try_clone().unwrap()).lines();
        while request.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        let length = bytes.len();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nETag: \"1\"\r\nConnection: close\r\n\r\n"
        );
        // Who does not want it all may go.
        let _ = socket.write_all(head.as_bytes());
        let _ = socket.write_all(&bytes);
    })
}

/// A VM of an image that is found at an address; its manifest.
fn vm(machine: &Machine, name: &str, image: &str, url: &str) -> String {
    let mapping = machine.write(
        "mapping.yaml",
        format!(
            "translations: [{{name: fetched, url: \"{url}\"}}]\n\
             transports: {{\"\": {{stallTimeout: 1000}}}}\n"
        ),
    );
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    let config = format!("{config}imageTranslations: {}\n", mapping.display());
    machine.write("config.yaml", config);
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  annotations:\n    kubernetes.io/target-runtime: virtlet.cloud\n\
         spec:\n  containers:\n  - name: vm\n    image: virtlet.cloud/{image}\n    resources: {{limits: {{memory: 64Mi}}}}\n"
    );
    machine.write("pod.yaml", pod).display().to_string()
}

/// The one message of an `up` that is refused. Nothing may stay of it.
fn refused(machine: &Machine, manifest: &str) -> String {
    let before = machine.things();
    let told = machine.refused(&["up", "-f", manifest]);
    let errors = told.lines().filter(|line| line.starts_with("error: "));
    assert_eq!(errors.count(), 1, "{told}");
    assert_eq!(machine.things(), before);
    let mut left = Vec::new();
    files(&machine.path("data/images"), &mut left);
    // The lock of the store is never removed.
    left.retain(|file| file != "store");
    assert_eq!(left, [] as [&str; 0], "{told}");
    told
}

fn files(directory: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        match entry.path().is_dir() {
            true => files(&entry.path(), found),
            false => found.push(entry.file_name().into_string().unwrap()),
        }
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_image_of_another_digest_is_refused_and_the_right_one_runs() {
    let machine = Machine::new("digest");
    let disk = guest::disk();
    // Taken in elsewhere, to know its digest.
    let digest = machine.add_image_to(&machine.path("elsewhere"), "fetched", &disk);
    let url = serve(disk);
    let wanted = Sha256::from_bytes([0xab; 32]);
    let manifest = vm(
        &machine,
        "digest",
        &format!("fetched@sha256:{wanted}"),
        &url,
    );
    let told = refused(&machine, &manifest);
    let words = format!(
        "disk root: image fetched: its file has the digest sha256:{digest}, not sha256:{wanted} as demanded"
    );
    assert!(told.contains(&words), "{told}");
    assert!(told.contains("help: check the digest"), "{told}");

    let right = std::fs::read_to_string(&manifest).unwrap();
    let right = right.replace(&wanted.to_string(), &digest.to_string());
    std::fs::write(&manifest, right).unwrap();
    machine.run_to_end(&manifest);
    machine.done(&["down", "digest", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_lack_of_room_is_told_of_the_disk_that_the_image_is_for() {
    let machine = Machine::new("no-room");
    let url = serve(vec![0xa5; 4 << 20]);
    let manifest = vm(&machine, "no-room", "fetched", &url);
    let images = machine.path("data/images");
    std::fs::create_dir_all(&images).unwrap();
    let images = images.to_str().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let status = Command::new(program).args(arguments).status().unwrap();
        assert!(status.success(), "{program}");
    };
    run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", images]);
    let told = refused(&machine, &manifest);
    run("umount", &[images]);
    let (_, error) = told.split_once("error: ").unwrap();
    let wanted = format!("default/no-room: disk root: image fetched cannot be taken in: {images}/");
    assert!(error.starts_with(&wanted), "{told}");
    assert!(error.contains("No space left"), "{told}");
    assert!(
        error.contains("help: make room there: disklet images gc"),
        "{told}"
    );
    assert_eq!(error.matches(images).count(), 1, "{told}");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_server_that_never_answers_is_given_up() {
    let machine = Machine::new("silence");
    let url = server(|socket| {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(120));
            drop(socket);
        });
    });
    let manifest = vm(&machine, "silence", "fetched", &url);
    let begun = Instant::now();
    let told = refused(&machine, &manifest);
    assert!(
        told.contains("the server does not answer in time"),
        "{told}"
    );
    assert!(begun.elapsed() < Duration::from_secs(30), "{told}");
}
