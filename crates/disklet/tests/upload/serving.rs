//! A server of uploads, and plain requests to it.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::scratch::{Scratch, send};

const TOKEN: &str = "secret-of-the-upload";

/// The real program, until it is dropped.
pub(crate) struct Serving {
    child: Child,
    _stdout: BufReader<ChildStdout>,
    pub(crate) address: String,
    told: std::path::PathBuf,
}

impl Serving {
    /// Ready to be run, with its state in `state`.
    pub(crate) fn command(scratch: &Scratch, target: &str, more: &str) -> Command {
        fs::write(scratch.path("token"), format!("{TOKEN}\n")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
        command.args(["serve", "upload", "--target", target]);
        command.args(["--state-dir", "state", "--token-file", "token"]);
        command.args(["--listen", "127.0.0.1:0"]);
        command.args(more.split_whitespace());
        command.current_dir(scratch.path(""));
        command
    }

    pub(crate) fn start(scratch: &Scratch, target: &str, more: &str) -> Self {
        let told = scratch.path("told");
        let mut command = Self::command(scratch, target, more);
        command.stdout(Stdio::piped());
        let mut child = command
            .stderr(fs::File::create(&told).unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at http");
        let address =
            address.unwrap_or_else(|| panic!("{line}{}", fs::read_to_string(&told).unwrap()));
        let address = address.trim_start_matches("s://").trim_start_matches("://");
        Self {
            address: address.trim_end_matches("/upload").to_owned(),
            child,
            _stdout: stdout,
            told,
        }
    }

    /// Does not begin to serve; what it says.
    pub(crate) fn refused(scratch: &Scratch, target: &str, more: &str) -> String {
        let output = Self::command(scratch, target, more).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        told
    }

    pub(crate) fn told(&self) -> String {
        fs::read_to_string(&self.told).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Connection(stream)
    }

    /// The head of a request with the token.
    pub(crate) fn head(&self, method: &str, headers: &str) -> String {
        let more = if headers.is_empty() { "" } else { "\r\n" };
        format!(
            "{method} /upload HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}{more}{headers}\r\n\r\n"
        )
    }

    pub(crate) fn request(&self, method: &str, headers: &str, body: &[u8]) -> Answer {
        let mut connection = self.connect();
        connection.send(self.head(method, headers).as_bytes());
        connection.send(body);
        match method {
            "HEAD" => connection.answer_until(has_head),
            _ => connection.answer(),
        }
    }

    pub(crate) fn put(&self, body: &[u8], headers: &str) -> Answer {
        let more = if headers.is_empty() { "" } else { "\r\n" };
        let headers = format!("Content-Length: {}{more}{headers}", body.len());
        self.request("PUT", &headers, body)
    }

    /// A request line and headers, as they are.
    pub(crate) fn ask(&self, head: &str, body: &[u8]) -> Answer {
        let mut connection = self.connect();
        connection.send(format!("{head}\r\nHost: x\r\n\r\n").as_bytes());
        connection.send(body);
        connection.answer()
    }

    /// What HEAD tells.
    pub(crate) fn standing(&self, header: &str) -> String {
        self.request("HEAD", "", b"").header(header)
    }

    pub(crate) fn offset(&self) -> usize {
        self.standing("upload-offset").parse().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn terminate(&self) {
        send("TERM", &self.child);
    }

    /// Waits for its end; its exit code.
    pub(crate) fn ends(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) struct Connection(TcpStream);

impl Connection {
    /// Who has been refused may have closed the connection.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.write_all(bytes);
    }

    pub(crate) fn answer(self) -> Answer {
        self.answer_until(is_whole)
    }

    fn answer_until(mut self, is_all: fn(&[u8]) -> bool) -> Answer {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4096];
        while !is_all(&bytes) {
            match self.0.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            }
        }
        let _ = self.0.shutdown(Shutdown::Both);
        Answer::of(&String::from_utf8(bytes).unwrap())
    }
}

/// The answer to HEAD tells of a body that does not come.
fn has_head(bytes: &[u8]) -> bool {
    bytes.windows(4).any(|it| it == b"\r\n\r\n")
}

/// Whether the head, and the body of which it tells, have come.
fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|it| it.lines().next()?.parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: String,
    pub(crate) body: String,
}

impl Answer {
    fn of(text: &str) -> Self {
        let text = text.trim_start_matches("HTTP/1.1 100 Continue\r\n\r\n");
        let (headers, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = headers.split(' ').nth(1).and_then(|it| it.parse().ok());
        Self {
            status: status.unwrap_or(0),
            headers: headers.to_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> String {
        let lines = self.headers.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.next().unwrap_or_default().to_owned()
    }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    let mut sum = Command::new("sha256sum");
    let mut sum = sum
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    sum.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = sum.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}
