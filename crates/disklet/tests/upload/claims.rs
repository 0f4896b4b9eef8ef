//! `disklet upload FILE pvc/NAME`, with an API server of a few answers before the real
//! server of uploads.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::scratch::Scratch;
use super::serving::Serving;

const PORT: u16 = 9443;

fn pod() -> Value {
    json!({
        "metadata": {"name": "filler", "namespace": "here"},
        "spec": {
            "containers": [{
                "name": "upload", "image": "registry.example/kubevirt-pvc-upload:1",
                "args": ["--token-file", "/upload/token"],
                "ports": [{"name": "upload", "containerPort": PORT}],
                "volumeMounts": [
                    {"name": "claim", "mountPath": "/target"}, {"name": "token", "mountPath": "/upload"},
                ],
            }],
            "volumes": [
                {"name": "claim", "persistentVolumeClaim": {"claimName": "disk"}},
                {"name": "token", "secret": {"secretName": "upload-disk"}},
            ],
        },
        "status": {"phase": "Running"},
    })
}

/// An API server that forwards to a server of uploads; its kubeconfig.
fn cluster(scratch: &Scratch, to: &str, token: Option<&[u8]>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (to, token) = (to.to_owned(), token.map(|token| STANDARD.encode(token)));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (to, token) = (to.clone(), token.clone());
            std::thread::spawn(move || attend(stream, &to, token.as_deref()));
        }
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": "here"}}],
    });
    fs::write(scratch.path("kubeconfig"), config.to_string()).unwrap();
}

fn attend(mut stream: TcpStream, to: &str, token: Option<&str>) -> io::Result<()> {
    loop {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let (code, answer) = match path.split('?').next().unwrap() {
            "/api/v1/namespaces/here/pods" => (
                200,
                json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod()]}),
            ),
            "/api/v1/namespaces/here/secrets/upload-disk" => match token {
                Some(token) => (
                    200,
                    json!({
                        "kind": "Secret", "apiVersion": "v1", "metadata": {"name": "upload-disk"},
                        "data": {"token": token},
                    }),
                ),
                None => (
                    403,
                    json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "you may not", "reason": "Forbidden", "code": 403,
                    }),
                ),
            },
            "/api/v1/namespaces/here/pods/filler/portforward" => {
                assert!(path.contains(&format!("ports={PORT}")), "{path}");
                return forward(stream, &head, TcpStream::connect(to)?);
            }
            _ => (
                404,
                json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "there is none", "reason": "NotFound", "code": 404,
                }),
            ),
        };
        let body = answer.to_string();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {code} -\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
    }
}

/// A WebSocket with two channels for the port: what goes on, and errors.
fn forward(mut stream: TcpStream, head: &str, server: TcpStream) -> io::Result<()> {
    let header = |name: &str| {
        let mut lines = head.lines();
        let found = lines.find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then(|| value.to_owned())
        });
        found.unwrap_or_default()
    };
    let protocol = header("sec-websocket-protocol");
    let protocol = protocol
        .split(',')
        .next()
        .unwrap_or_default()
        .trim()
        .to_owned();
    let accept = accept(&header("sec-websocket-key"));
    stream.write_all(
        format!("HTTP/1.1 101 -\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n").as_bytes(),
    )?;
    let [low, high] = PORT.to_le_bytes();
    for channel in [0, 1] {
        send(&mut stream, 2, &[channel, low, high])?;
    }
    let (mut back, mut from) = (stream.try_clone()?, server.try_clone()?);
    let answering = std::thread::spawn(move || -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match from.read(&mut buffer[1..])? {
                0 => break,
                length => send(&mut back, 2, &buffer[..=length])?,
            }
        }
        send(&mut back, 8, &[])?;
        back.shutdown(Shutdown::Both)
    });
    let mut server = server;
    while let Ok((kind, bytes)) = receive(&mut stream) {
        match (kind, bytes.split_first()) {
            (2, Some((0, bytes))) => server.write_all(bytes)?,
            (8, _) => break,
            _ => {}
        }
    }
    server.shutdown(Shutdown::Both)?;
    let _ = answering.join();
    Ok(())
}

fn accept(key: &str) -> String {
    let mut sum = Command::new("sha1sum");
    let mut sum = sum
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    sum.stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let hex = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    let bytes = (0..20).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
    STANDARD.encode(bytes.collect::<Vec<_>>())
}

fn send(stream: &mut TcpStream, kind: u8, bytes: &[u8]) -> io::Result<()> {
    let length = u16::try_from(bytes.len()).unwrap();
    let mut frame = vec![0x80 | kind];
    match u8::try_from(length) {
        Ok(short) if short < 126 => frame.push(short),
        _ => {
            frame.push(126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
    }
    frame.extend_from_slice(bytes);
    stream.write_all(&frame)
}

/// Its kind, and what is in it.
fn receive(stream: &mut TcpStream) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    stream.read_exact(&mut head)?;
    let long = match head[1] & 0x7f {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mut length = [0; 8];
    stream.read_exact(&mut length[8 - long..])?;
    let length = match long {
        0 => usize::from(head[1] & 0x7f),
        _ => usize::try_from(u64::from_be_bytes(length)).unwrap(),
    };
    let mut mask = [0; 4];
    stream.read_exact(&mut mask)?;
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes)?;
    for (byte, mask) in bytes.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    Ok((head[0] & 15, bytes))
}

fn send_to(scratch: &Scratch, claim: &str, more: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args(["upload", "disk.raw", &format!("pvc/{claim}")]);
    command.args(more.split_whitespace());
    command.env("KUBECONFIG", scratch.path("kubeconfig"));
    command.current_dir(scratch.path("")).output().unwrap()
}

#[test]
fn a_claim_is_reached_through_the_api_server() {
    let scratch = Scratch::new("upload-claim");
    scratch.disk("disk.raw", 12);
    let mut serving = Serving::start(&scratch, "out.img", "");
    let token = scratch.read("token");
    cluster(&scratch, &serving.address, Some(&token));
    let output = send_to(&scratch, "disk", "");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(serving.ends(), Some(0));
    assert!(scratch.read("out.img") == scratch.read("disk.raw"));
}

#[test]
fn what_stands_between_us_and_a_claim_is_said() {
    let scratch = Scratch::new("upload-claim-refused");
    scratch.disk("disk.raw", 1);
    let serving = Serving::start(&scratch, "out.img", "");
    cluster(&scratch, &serving.address, None);
    for (claim, more, words) in [
        ("disk", "", "you may not"),
        ("disk", "", "--token-file"),
        (
            "other",
            "",
            "claim here/other: no pod is there that fills it",
        ),
        ("disk", "-n nowhere", "there is none"),
    ] {
        let output = send_to(&scratch, claim, more);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(words), "{words}: {told}");
    }
    // Whoever may not read it may know it.
    let output = send_to(&scratch, "disk", "--token-file token");
    assert!(output.status.success(), "{output:?}");
    // Its pod has ended: nobody answers any more.
    drop(serving);
    let output = send_to(&scratch, "disk", "--token-file token --retries 1");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
