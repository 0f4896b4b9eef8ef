//! A web server that does as a test says, over TCP or TLS.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ServerConnection;

/// What was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
}

/// What is answered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The connection ends after so many bytes of the body.
    pub(crate) drop_at: Option<usize>,
    /// After so many bytes of the body nothing comes any more.
    pub(crate) stall_at: Option<usize>,
    pub(crate) framing: Framing,
}

/// How it is said where a body ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    #[default]
    Length,
    Chunked,
    /// By the end of the connection.
    Close,
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A server; it goes with the test program.
#[derive(Clone)]
pub(crate) struct Server {
    scheme: &'static str,
    port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::serve(None, Arc::new(handler))
    }

    pub(crate) fn with_tls(
        config: Arc<rustls::ServerConfig>,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::serve(Some(config), Arc::new(handler))
    }

    fn serve(tls: Option<Arc<rustls::ServerConfig>>, handler: Arc<Handler>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            scheme: if tls.is_some() { "https" } else { "http" },
            port: listener.local_addr().unwrap().port(),
            seen: Arc::default(),
        };
        let seen = server.seen.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (seen, handler, tls) = (seen.clone(), handler.clone(), tls.clone());
                std::thread::spawn(move || {
                    // A client that goes away is none of the server's business.
                    let _ = match tls {
                        None => converse(socket, &seen, &*handler),
                        Some(config) => {
                            let connection = ServerConnection::new(config).unwrap();
                            let stream = rustls::StreamOwned::new(connection, socket);
                            converse(stream, &seen, &*handler)
                        }
                    };
                });
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://127.0.0.1:{}{path}", self.scheme, self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    /// What was asked with a header, request by request.
    pub(crate) fn seen_header(&self, name: &str) -> Vec<Option<String>> {
        let one = |request: &Request| request.headers.get(name).cloned();
        self.seen().iter().map(one).collect()
    }
}

/// One request and its answer; a proxy's client gets to say another.
fn converse(
    stream: impl Read + Write,
    seen: &Mutex<Vec<Request>>,
    handler: &Handler,
) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let request = read_request(&mut stream)?;
        seen.lock().unwrap().push(request.clone());
        if request.method == "CONNECT" {
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            continue;
        }
        return answer(stream.get_mut(), &handler(&request));
    }
}

fn read_request(stream: &mut impl BufRead) -> io::Result<Request> {
    let mut request = Request::default();
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    request.method = words.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    request.path = words.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else {
            return Ok(request);
        };
        let name = name.to_ascii_lowercase();
        request.headers.insert(name, value.trim().to_owned());
    }
}

fn answer(stream: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Said\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match reply.framing {
        Framing::Length
            if reply
                .headers
                .iter()
                .any(|(name, _)| *name == "Content-Length") => {}
        Framing::Length => head.push_str(&format!("Content-Length: {}\r\n", reply.body.len())),
        Framing::Chunked => head.push_str("Transfer-Encoding: chunked\r\n"),
        Framing::Close => {}
    }
    stream.write_all(head.as_bytes())?;
    stream.write_all(b"\r\n")?;
    let end = reply.drop_at.or(reply.stall_at).unwrap_or(reply.body.len());
    let sent = &reply.body[..end.min(reply.body.len())];
    if reply.framing == Framing::Chunked {
        for chunk in sent.chunks(10_000) {
            stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes())?;
            stream.write_all(chunk)?;
            stream.write_all(b"\r\n")?;
        }
        if end == reply.body.len() {
            stream.write_all(b"0\r\n\r\n")?;
        }
    } else {
        stream.write_all(sent)?;
    }
    stream.flush()?;
    if reply.stall_at.is_some() {
        std::thread::sleep(Duration::from_secs(60));
    }
    Ok(())
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::status(302).header("Location", to)
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// A file, as servers send it that know parts.
    pub(crate) fn file(request: &Request, bytes: &[u8], etag: &str) -> Self {
        let range = request.headers.get("range");
        let same = request.headers.get("if-range").is_none_or(|it| it == etag);
        let length = bytes.len();
        let part = range.filter(|_| same).map(|range| {
            let (from, to) = range
                .strip_prefix("bytes=")
                .unwrap()
                .split_once('-')
                .unwrap();
            let last = to.parse().map_or(length, |to: usize| length.min(to + 1));
            (from.parse::<usize>().unwrap(), last)
        });
        let reply = match part {
            Some((from, _)) if from >= length => {
                Self::status(416).header("Content-Range", &format!("bytes */{length}"))
            }
            Some((from, end)) => {
                let part = format!("bytes {from}-{}/{length}", end - 1);
                let mut reply = Self::status(206).header("Content-Range", &part);
                reply.body = bytes[from..end].to_vec();
                reply
            }
            None => Self::whole(bytes),
        };
        reply.header("ETag", etag)
    }

    /// A file, as servers send it that know no parts.
    pub(crate) fn whole(bytes: &[u8]) -> Self {
        Self {
            status: 200,
            body: bytes.to_vec(),
            ..Self::default()
        }
    }

    pub(crate) fn dropped_at(self, at: usize) -> Self {
        Self {
            drop_at: Some(at),
            ..self
        }
    }

    pub(crate) fn stalled_at(self, at: usize) -> Self {
        Self {
            stall_at: Some(at),
            ..self
        }
    }

    pub(crate) fn framed(self, framing: Framing) -> Self {
        Self { framing, ..self }
    }
}

/// The address of somebody who says this, whatever is asked.
pub(crate) fn saying(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            // All of the question: else the end would be a reset.
            let (mut asked, mut byte) = (Vec::new(), [0]);
            while !asked.ends_with(b"\r\n\r\n") && socket.read(&mut byte).is_ok_and(|n| n == 1) {
                asked.push(byte[0]);
            }
            let _ = socket.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}/x")
}

/// An address at which nobody answers.
pub(crate) fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    TcpStream::connect(("127.0.0.1", port)).unwrap_err();
    format!("http://127.0.0.1:{port}/x.img")
}
