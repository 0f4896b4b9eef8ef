//! `disklet serve upload` and `disklet upload`: the real program, spoken to by plain
//! requests and by its own client.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "upload/claims.rs"]
mod claims;
#[path = "upload/faults.rs"]
mod faults;
#[path = "upload/frames.rs"]
mod frames;
#[path = "upload/kills.rs"]
mod kills;
#[path = "upload/proxy.rs"]
mod proxy;
#[path = "image/scratch.rs"]
mod scratch;
#[path = "upload/serving.rs"]
mod serving;
#[path = "upload/tls.rs"]
mod tls;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use scratch::{Scratch, wait_until};
use serving::{Serving, sha256};

#[test]
fn every_format_in_every_wrapping_becomes_the_disk() {
    let scratch = Scratch::new("upload-formats");
    scratch.disk("disk.raw", 5);
    scratch.qemu("convert -f raw -O qcow2 disk.raw plain.qcow2");
    scratch.qemu("convert -f raw -O qcow2 -c disk.raw packed.qcow2");
    let wanted = scratch.read("disk.raw");
    for image in ["disk.raw", "plain.qcow2", "packed.qcow2"] {
        for (wrap, ending) in [
            ("", ""),
            ("gzip -k", ".gz"),
            ("xz -k", ".xz"),
            ("zstd -q", ".zst"),
        ] {
            let file = format!("{image}{ending}");
            if let Some((program, options)) = wrap.split_once(' ') {
                scratch.tool(program, &format!("{options} {image}"));
            }
            let mut serving = Serving::start(&scratch, "out.img", "");
            let answer = serving.put(&scratch.read(&file), "");
            assert_eq!(answer.status, 201, "{file}: {answer:?}");
            assert!(scratch.read("out.img") == wanted, "{file}");
            let mode = fs::metadata(scratch.path("out.img")).unwrap().permissions();
            assert_eq!(mode.mode() & 0o777, 0o660);
            assert_eq!(serving.ends(), Some(0), "{file}");
            fs::remove_file(scratch.path("out.img")).unwrap();
            fs::remove_dir_all(scratch.path("state")).unwrap();
            assert!(!scratch.names().iter().any(|name| name.contains(".upload")));
        }
    }
}

#[test]
fn a_volume_holds_its_disk_and_nothing_else() {
    let scratch = Scratch::new("upload-volume");
    fs::create_dir_all(scratch.path("volume/lost+found")).unwrap();
    let mut serving = Serving::start(&scratch, "volume", "");
    assert_eq!(serving.put(&[7; 4096], "").status, 201);
    assert_eq!(serving.ends(), Some(0));
    assert!(scratch.read("volume/disk.img") == [7; 4096]);
    let names = fs::read_dir(scratch.path("volume")).unwrap().count();
    assert_eq!(names, 2);

    // A pod that comes again has nothing to do.
    let told = Serving::command(&scratch, "volume", "").output().unwrap();
    assert!(told.status.success(), "{told:?}");
    fs::remove_file(scratch.path("volume/disk.img")).unwrap();
    let told = Serving::refused(&scratch, "volume", "");
    assert!(told.contains("has gone since"), "{told}");
    fs::remove_dir_all(scratch.path("state")).unwrap();
    fs::write(scratch.path("volume/letters"), "dear").unwrap();
    let told = Serving::refused(&scratch, "volume", "");
    assert!(told.contains("holds letters already"), "{told}");
    fs::write(scratch.path("there.img"), "old").unwrap();
    let told = Serving::refused(&scratch, "there.img", "");
    assert!(told.contains("--replace"), "{told}");
    let serving = Serving::start(&scratch, "there.img", "--replace");
    let other = Serving::refused(&scratch, "there.img", "--replace");
    assert!(other.contains("another server uses it"), "{other}");
    assert_eq!(serving.put(&[8; 512], "").status, 201);
    assert!(scratch.read("there.img") == [8; 512]);
}

#[test]
fn each_refusal_has_its_status_and_leaves_nothing() {
    let scratch = Scratch::new("upload-refusals");
    scratch.disk("base.raw", 1);
    scratch.qemu("create -q -f qcow2 -b base.raw -F raw over.qcow2 1M");
    scratch.qemu("create -q -f qcow2 large.qcow2 3M");
    scratch.qemu("convert -O qcow2 base.raw torn.qcow2");
    scratch.qemu("create -q -f vmdk foreign.vmdk 1M");
    let torn = scratch.read("torn.qcow2");
    let serving = Serving::start(&scratch, "out.img", "--max-size 2Mi --stall-timeout 1");
    let before = scratch.names();
    let zeroes = format!("X-Checksum-Sha256: {}", "0".repeat(64));
    // A bomb: 64 MiB in hardly anything.
    fs::write(scratch.path("zeroes"), vec![0; 64 << 20]).unwrap();
    scratch.tool("zstd", "-q --rm zeroes -o bomb.zst");
    let bomb = scratch.read("bomb.zst");
    fs::remove_file(scratch.path("bomb.zst")).unwrap();
    for (bytes, headers, status, words) in [
        (scratch.read("over.qcow2"), "", 422, "backing file"),
        (torn[..torn.len() - 70000].to_vec(), "", 422, "truncated"),
        (Vec::new(), "", 422, "empty"),
        (scratch.read("foreign.vmdk"), "", 415, "VMDK"),
        (scratch.read("large.qcow2"), "", 413, "--max-size"),
        (vec![1; (2 << 20) + 512], "", 413, "--max-size"),
        (bomb, "", 413, "--max-size"),
        (vec![1; 4096], zeroes.as_str(), 422, "not sha256:0000"),
        (
            vec![1; 4096],
            "Upload-Disk-Size: 9999999",
            413,
            "--max-size",
        ),
        (
            vec![1; 4096],
            "Content-Range: bytes 5-6/7",
            400,
            "Content-Range",
        ),
        (
            vec![1; 4096],
            "Content-Range: bytes 4096-8191/8192",
            416,
            "byte 0",
        ),
        (vec![0x1f, 0x8b, 8, 0, 0, 0], "", 422, "truncated"),
        // A frame that wants a window of 64 MiB, and is empty.
        (
            b"\x28\xb5\x2f\xfd\x00\x80\x01\x00\x00".to_vec(),
            "",
            415,
            "32 MiB",
        ),
        (
            b"\x28\xb5\x2f\xfdgarbage, garbage".to_vec(),
            "",
            422,
            "zstd",
        ),
    ] {
        let answer = serving.put(&bytes, headers);
        assert_eq!(answer.status, status, "{words}: {answer:?}");
        assert!(answer.body.contains(words), "{words}: {answer:?}");
        assert_eq!(answer.body.lines().count(), 1, "{answer:?}");
        assert_eq!(scratch.names(), before, "{words}");
        assert!(!scratch.path("state/upload.json").exists(), "{words}");
    }
    for (head, status) in [
        ("PUT /upload HTTP/1.1\r\nContent-Length: 1", 401),
        (
            "PUT /upload HTTP/1.1\r\nContent-Length: 1\r\nAuthorization: Bearer x",
            403,
        ),
        ("HEAD /upload HTTP/1.1\r\nAuthorization: Bearer x", 403),
        ("GET /nowhere HTTP/1.1", 404),
        ("DELETE /healthz HTTP/1.1", 405),
        ("GET /healthz HTTP/1.1", 200),
    ] {
        assert_eq!(serving.ask(head, b"").status, status, "{head}");
    }
    assert_eq!(serving.request("POST", "", b"").status, 405);
    assert_eq!(serving.request("PUT", "", b"").status, 411);
    let json = serving.put(&[], "Accept: application/json");
    let json: serde_json::Value = serde_json::from_str(&json.body).unwrap();
    assert_eq!(json["status"], 422);
    // curl does not send what is refused before.
    let mut asked = serving.connect();
    let head = serving.head("PUT", "Content-Length: 99999999\r\nExpect: 100-continue");
    asked.send(head.as_bytes());
    assert_eq!(asked.answer().status, 413);
    // Somebody who says nothing any more is lost.
    let mut stalled = serving.connect();
    stalled.send(serving.head("PUT", "Content-Length: 1000").as_bytes());
    let began = Instant::now();
    assert_eq!(stalled.answer().status, 408);
    assert!(began.elapsed() < Duration::from_secs(5));
    let metrics = serving.ask("GET /metrics HTTP/1.1", b"").body;
    assert!(
        metrics.contains("\ndisklet_upload_received_bytes_total "),
        "{metrics}"
    );
    assert!(!serving.told().contains("secret"), "{}", serving.told());
}

#[test]
fn a_server_tells_how_far_an_upload_is_in_lines_for_programs() {
    let scratch = Scratch::new("upload-told");
    let mut serving = Serving::start(&scratch, "out.img", "--progress json");
    let digest = format!("X-Checksum-Sha256: {}", sha256(&[7; 1 << 20]));
    assert_eq!(serving.put(&[7; 1 << 20], &digest).status, 201);
    assert_eq!(serving.ends(), Some(0));
    let told = serving.told();
    let last: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["done"], &last["total"]),
        (&(1 << 20).into(), &(1 << 20).into())
    );
}

#[test]
fn of_two_uploads_one_is_refused() {
    let scratch = Scratch::new("upload-two");
    let mut serving = Serving::start(&scratch, "out.img", "--keep-serving");
    let mut first = serving.connect();
    first.send(serving.head("PUT", "Content-Length: 8192").as_bytes());
    first.send(&[5; 4096]);
    wait_until("it is busy", || serving.standing("upload-state") == "busy");
    let second = serving.put(&[6; 8192], "");
    assert_eq!(second.status, 409, "{second:?}");
    first.send(&[5; 4096]);
    assert_eq!(first.answer().status, 201);
    assert_eq!(serving.put(&[6; 8192], "").status, 409);
    assert_eq!(serving.standing("upload-state"), "done");
    assert!(scratch.read("out.img") == [5; 8192]);
    serving.terminate();
    assert_eq!(serving.ends(), Some(0));
}

#[test]
fn what_is_lost_is_gone_on_with_after_a_kill() {
    let scratch = Scratch::new("upload-killed");
    let bytes: Vec<u8> = (0..24_u32 << 20)
        .map(|at| (at / 4096 % 251) as u8)
        .collect();
    fs::write(scratch.path("disk.raw"), &bytes).unwrap();
    scratch.tool("split", "-b 1M -d disk.raw part.");
    let mut parts: Vec<_> = scratch.names();
    parts.retain(|name| name.starts_with("part."));
    scratch.tool("zstd", &format!("-q --rm {}", parts.join(" ")));
    let frames: Vec<u8> = parts
        .iter()
        .flat_map(|it| scratch.read(&format!("{it}.zst")))
        .collect();
    for (upload, ends) in [
        (&bytes, ["kill", "kill", "lose", "term"]),
        (&frames, ["kill", "term", "lose", "kill"]),
    ] {
        let digest = sha256(upload);
        let mut from = 0;
        for (round, end) in ends.into_iter().enumerate() {
            let mut serving = Serving::start(&scratch, "out.img", "");
            let taken = serving.offset();
            assert!(taken >= from, "{taken} after {from}");
            if round > 2 {
                assert!(taken > 0, "nothing was kept");
            }
            from = taken;
            let rest = &upload[from..];
            let mut upload_now = serving.connect();
            let head = format!(
                "Content-Length: {}\r\nContent-Range: bytes {from}-{}/{}\r\nX-Checksum-Sha256: {digest}",
                rest.len(),
                upload.len() - 1,
                upload.len(),
            );
            upload_now.send(serving.head("PUT", &head).as_bytes());
            upload_now.send(&rest[..rest.len() / 3]);
            if round % 2 == 1 {
                // So long that a mark is made.
                std::thread::sleep(Duration::from_millis(2500));
                upload_now.send(&rest[rest.len() / 3..rest.len() / 2]);
            }
            match end {
                "kill" => serving.kill(),
                "term" => serving.terminate(),
                _ => {
                    drop(upload_now);
                    wait_until("it is lost", || serving.standing("upload-state") != "busy");
                    serving.kill();
                }
            }
            assert_ne!(serving.ends(), Some(0));
            assert!(!scratch.path("out.img").exists());
        }
        let mut serving = Serving::start(&scratch, "out.img", "");
        let from = serving.offset();
        assert!(from > 0, "nothing was kept");
        let wrong = serving.put(&upload[..10], "Content-Range: bytes 1-10/11");
        assert_eq!(wrong.status, 416, "{wrong:?}");
        assert_eq!(wrong.header("upload-offset"), from.to_string());
        let range = format!(
            "Content-Range: bytes {from}-{}/{}",
            upload.len() - 1,
            upload.len()
        );
        let answer = serving.put(&upload[from..], &range);
        assert_eq!(answer.status, 201, "{answer:?}");
        assert!(answer.body.contains(&digest), "{answer:?}");
        assert!(scratch.read("out.img") == bytes);
        assert_eq!(serving.ends(), Some(0));
        fs::remove_file(scratch.path("out.img")).unwrap();
        fs::remove_dir_all(scratch.path("state")).unwrap();
        assert!(!scratch.names().iter().any(|name| name.contains(".upload")));
    }
}

#[test]
fn a_rest_of_another_file_does_not_become_a_disk() {
    let scratch = Scratch::new("upload-other");
    let serving = Serving::start(&scratch, "out.img", "");
    let mut first = serving.connect();
    let digest = sha256(&[5; 8 << 20]);
    let head = format!("Content-Length: 8388608\r\nX-Checksum-Sha256: {digest}");
    first.send(serving.head("PUT", &head).as_bytes());
    first.send(&[5; 6 << 20]);
    drop(first);
    wait_until("it is lost", || serving.standing("upload-state") != "busy");
    let from = serving.offset();
    assert!(from > 0);
    let rest = vec![6; (8 << 20) - from];
    let range = |total| format!("Content-Range: bytes {from}-{}/{total}", total - 1);
    let longer = serving.put(&vec![6; (9 << 20) - from], &range(9 << 20));
    assert_eq!(longer.status, 400, "{longer:?}");
    assert_eq!(serving.offset(), from);
    let other = serving.put(&rest, &range(8 << 20));
    assert_eq!(other.status, 422, "{other:?}");
    assert_eq!(serving.offset(), 0);
    assert!(!scratch.names().iter().any(|name| name.contains("out.img")));
    assert_eq!(serving.put(&[5; 8 << 20], "").status, 201);
}

#[test]
fn whoever_is_killed_goes_on() {
    for compress in ["none", "zstd"] {
        kills::killed_and_gone_on_with(48 << 20, 6, compress);
    }
}

fn client(scratch: &Scratch, file: &str, url: &str, more: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args(["upload", file, url, "--token-file", "token"]);
    command.args(more.split_whitespace());
    command.env("KUBECONFIG", scratch.path("none"));
    command.env_remove("KUBERNETES_SERVICE_HOST");
    command.current_dir(scratch.path("")).output().unwrap()
}

#[test]
fn our_client_sends_goes_on_and_says_what_is_wrong() {
    let scratch = Scratch::new("upload-client");
    scratch.disk("disk.raw", 12);
    let wanted = scratch.read("disk.raw");
    let mut serving = Serving::start(&scratch, "out.img", "");
    let url = format!("http://{}/upload", serving.address);
    // A part has come before.
    let mut first = serving.connect();
    first.send(
        serving
            .head("PUT", &format!("Content-Length: {}", wanted.len()))
            .as_bytes(),
    );
    first.send(&wanted[..8 << 20]);
    drop(first);
    wait_until("it is lost", || serving.standing("upload-state") != "busy");
    let from = serving.offset();
    assert!(from > 0);
    let output = client(&scratch, "disk.raw", &url, "--progress json");
    assert!(output.status.success(), "{output:?}");
    assert!(scratch.read("out.img") == wanted);
    assert_eq!(serving.ends(), Some(0));

    fs::remove_dir_all(scratch.path("state")).unwrap();
    fs::remove_file(scratch.path("out.img")).unwrap();
    scratch.qemu("create -q -f qcow2 -b disk.raw -F raw over.qcow2 12M");
    let serving = Serving::start(&scratch, "out.img", "");
    let url = format!("http://{}/upload", serving.address);
    for (file, address, words) in [
        ("over.qcow2", url.as_str(), "backing file"),
        ("disk.raw", "pvc/name", "no kubeconfig"),
        ("disk.raw", "http://host.example/upload", "not encrypted"),
        ("nothing.raw", url.as_str(), "cannot be read"),
    ] {
        let output = client(&scratch, file, address, "--retries 1");
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert_eq!(told.matches("error: ").count(), 1, "{told}");
        assert!(told.contains(words), "{words}: {told}");
        assert!(!told.contains("secret"), "{told}");
    }
    fs::write(scratch.path("token"), "another").unwrap();
    let told = client(&scratch, "disk.raw", &url, "");
    let told = String::from_utf8(told.stderr).unwrap();
    assert!(told.contains("403"), "{told}");
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let scratch = Scratch::new("upload-memory");
    scratch.qemu("create -q -f qcow2 disk.qcow2 64G");
    let serving = Serving::start(&scratch, "out.img", "--keep-serving");
    let answer = serving.put(&scratch.read("disk.qcow2"), "");
    assert_eq!(answer.status, 201, "{answer:?}");
    let status = fs::read_to_string(format!("/proc/{}/status", serving.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
    let peak = kibibytes.parse::<u64>().unwrap() << 10;
    assert!(peak < 128 << 20, "{peak}");
    assert_eq!(
        fs::metadata(scratch.path("out.img")).unwrap().len(),
        64 << 30
    );
}
