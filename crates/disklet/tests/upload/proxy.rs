//! Somebody between a client and a server of uploads, who does harm to what is sent.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What happens to an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection ends behind so many bytes of the body.
    Cut(usize),
    /// Behind so many bytes nothing goes on, and nobody says so.
    Stall(usize),
    /// One bit at this byte becomes another.
    Flip(usize),
    /// All of it arrives, and the answer does not come back.
    Unheard,
    /// The server is not asked; this is said instead.
    Say(String),
}

#[derive(Clone)]
pub(crate) struct Proxy {
    pub(crate) address: String,
    uploads: Arc<Mutex<VecDeque<Fault>>>,
    looks: Arc<Mutex<VecDeque<Fault>>>,
    to: String,
    /// The connections of whom nothing goes on any more.
    stalled: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Before a server; each upload and each question how it stands meets one fault, until
    /// there are no more.
    pub(crate) fn before(to: &str, uploads: &[Fault], looks: &[Fault]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let queue = |faults: &[Fault]| Arc::new(Mutex::new(faults.iter().cloned().collect()));
        let proxy = Self {
            address: listener.local_addr().unwrap().to_string(),
            uploads: queue(uploads),
            looks: queue(looks),
            to: to.to_owned(),
            stalled: Arc::default(),
        };
        let ours = proxy.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let ours = ours.clone();
                // Whoever goes away is none of its business.
                std::thread::spawn(move || ours.attend(client));
            }
        });
        proxy
    }

    /// Whether every fault has happened.
    pub(crate) fn is_spent(&self) -> bool {
        let is_empty = |queue: &Mutex<VecDeque<_>>| queue.lock().unwrap().is_empty();
        is_empty(&self.uploads) && is_empty(&self.looks)
    }

    /// Whether nothing goes on any more.
    pub(crate) fn has_stalled(&self) -> bool {
        !self.stalled.lock().unwrap().is_empty()
    }

    /// Ends what has stalled.
    pub(crate) fn end(&self) {
        for stream in self.stalled.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn stall(&self, stream: &TcpStream) -> io::Result<()> {
        self.stalled.lock().unwrap().push(stream.try_clone()?);
        std::thread::sleep(Duration::from_secs(60));
        Ok(())
    }

    fn attend(&self, mut client: TcpStream) -> io::Result<()> {
        let head = read_head(&mut client)?;
        let faults = match head.starts_with(b"PUT") {
            true => &self.uploads,
            false => &self.looks,
        };
        let fault = faults.lock().unwrap().pop_front();
        if let Some(Fault::Say(words)) = &fault {
            client.write_all(words.as_bytes())?;
            client.shutdown(Shutdown::Write)?;
            io::copy(&mut client, &mut io::sink())?;
            return Ok(());
        }
        if fault == Some(Fault::Stall(0)) {
            return self.stall(&client);
        }
        let mut server = TcpStream::connect(&self.to)?;
        server.write_all(&head)?;
        let back = (server.try_clone()?, client.try_clone()?);
        let is_unheard = fault == Some(Fault::Unheard);
        let answering = std::thread::spawn(move || answer(back, is_unheard));
        let forwarded = forward(&mut client, &mut server, fault.as_ref());
        if matches!(fault, Some(Fault::Stall(_))) && forwarded.is_err() {
            self.stall(&server)?;
        }
        if forwarded.is_err() {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
        let _ = answering.join();
        forwarded
    }
}

fn read_head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(head)
}

fn answer((mut server, mut client): (TcpStream, TcpStream), is_unheard: bool) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        let is_final = !buffer.starts_with(b"HTTP/1.1 100");
        if is_unheard && is_final {
            break;
        }
        if client.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}

/// The body, until a fault ends it.
fn forward(
    client: &mut TcpStream,
    server: &mut TcpStream,
    fault: Option<&Fault>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let mut done = 0;
    loop {
        let most = match fault {
            Some(Fault::Cut(at) | Fault::Stall(at)) => buffer.len().min(at - done),
            _ => buffer.len(),
        };
        if most == 0 {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let length = match client.read(&mut buffer[..most]) {
            Ok(0) | Err(_) => return server.shutdown(Shutdown::Write),
            Ok(length) => length,
        };
        if let Some(Fault::Flip(at)) = fault
            && (done..done + length).contains(at)
        {
            buffer[at - done] ^= 8;
        }
        server.write_all(&buffer[..length])?;
        done += length;
    }
}
