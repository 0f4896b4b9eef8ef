//! Uploads by our client through somebody who does harm to them.

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use super::proxy::{Fault, Proxy};
use super::scratch::Scratch;
use super::serving::Serving;

const SIZE: usize = 24 << 20;

/// Bytes of which every MiB is another.
fn bytes() -> Vec<u8> {
    let word = |at: u32| (at.wrapping_mul(0x9e37_79b9) >> 7).to_le_bytes();
    let words = (0..).flat_map(word);
    words.take(SIZE).collect()
}

fn send(scratch: &Scratch, address: &str, more: &str) -> Output {
    let url = format!("http://{address}/upload");
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args(["upload", "disk.raw", &url, "--token-file", "token"]);
    command.args(more.split_whitespace());
    command.current_dir(scratch.path("")).output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_upload_goes_on_whatever_is_done_to_it() {
    let scratch = Scratch::new("upload-faults");
    let wanted = bytes();
    fs::write(scratch.path("disk.raw"), &wanted).unwrap();
    let mut serving = Serving::start(&scratch, "out.img", "--stall-timeout 1");
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwait";
    let uploads = [
        Fault::Cut(0),
        Fault::Say(busy.to_owned()),
        Fault::Cut(5 << 20),
        Fault::Stall(4 << 20),
        Fault::Say(String::new()),
        Fault::Cut(123),
    ];
    let looks = [Fault::Say(busy.replace("503", "500")), Fault::Stall(0)];
    let proxy = Proxy::before(&serving.address, &uploads, &looks);
    let output = send(&scratch, &proxy.address, "--stall-timeout 1");
    assert!(output.status.success(), "{output:?}");
    assert!(proxy.is_spent());
    assert!(scratch.read("out.img") == wanted);
    assert_eq!(serving.ends(), Some(0));
}

#[test]
fn a_flipped_bit_does_not_become_a_disk() {
    let scratch = Scratch::new("upload-flipped");
    fs::write(scratch.path("disk.raw"), bytes()).unwrap();
    let mut serving = Serving::start(&scratch, "out.img", "");
    let flip = [Fault::Flip(7_000_000)];
    let proxy = Proxy::before(&serving.address, &flip, &[]);
    let output = send(&scratch, &proxy.address, "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(told(&output).contains("status 422"), "{output:?}");
    assert!(!scratch.names().iter().any(|name| name.contains("out.img")));
    let output = send(&scratch, &proxy.address, "");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(serving.ends(), Some(0));
    assert!(scratch.read("out.img") == bytes());
}

#[test]
fn nobody_is_asked_for_ever_and_nobody_is_followed() {
    let scratch = Scratch::new("upload-unanswered");
    fs::write(scratch.path("disk.raw"), vec![7; 4096]).unwrap();
    fs::write(scratch.path("token"), "hunter2").unwrap();
    let elsewhere = Proxy::before("127.0.0.1:1", &[], &[Fault::Say("heard".to_owned())]);
    let leads = format!(
        "HTTP/1.1 307 There\r\nLocation: http://{}/upload\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        elsewhere.address
    );
    let no_server = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for (said, words) in [
        (Fault::Stall(0), "timeout"),
        (Fault::Say(String::new()), ""),
        (Fault::Say(leads), "leads elsewhere"),
        (Fault::Say(no_server.to_owned()), "does not take uploads"),
    ] {
        let proxy = Proxy::before("127.0.0.1:1", &[], &[said.clone(), said]);
        let began = Instant::now();
        let output = send(&scratch, &proxy.address, "--retries 1 --stall-timeout 1");
        assert!(began.elapsed() < Duration::from_secs(20), "{words}");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let told = told(&output);
        assert_eq!(told.matches("error: ").count(), 1, "{told}");
        assert!(told.contains(words), "{words}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    assert!(!elsewhere.is_spent(), "it was led there");
}

/// All of it has come: that nobody hears so is no reason to have it sent again, nor to
/// wait for ever.
#[test]
fn an_upload_whose_answer_is_lost_is_one() {
    let scratch = Scratch::new("upload-unheard");
    let wanted = bytes();
    fs::write(scratch.path("disk.raw"), &wanted).unwrap();
    let mut serving = Serving::start(&scratch, "out.img", "--keep-serving");
    let proxy = Proxy::before(&serving.address, &[Fault::Unheard], &[]);
    let output = send(&scratch, &proxy.address, "");
    assert!(output.status.success(), "{output:?}");
    assert!(proxy.is_spent());
    assert!(scratch.read("out.img") == wanted);
    // What was filled with something else is not ours.
    fs::write(scratch.path("disk.raw"), &wanted[512..]).unwrap();
    let output = send(&scratch, &proxy.address, "");
    let told = told(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("is filled already, from another"), "{told}");
    serving.terminate();
    assert_eq!(serving.ends(), Some(0));

    fs::remove_dir_all(scratch.path("state")).unwrap();
    fs::remove_file(scratch.path("out.img")).unwrap();
    let mut serving = Serving::start(&scratch, "out.img", "");
    let mut gone = serving.connect();
    gone.send(
        serving
            .head("PUT", &format!("Content-Length: {SIZE}"))
            .as_bytes(),
    );
    gone.send(&wanted);
    drop(gone);
    assert_eq!(serving.ends(), Some(0));
    assert!(scratch.read("out.img") == wanted);
}
