//! The pod's network for the guest: a `passt` for each connection of QEMU's.
//!
//! The socket is the launcher's own and stays: when passt ends, QEMU connects
//! again and finds a new one. See docs/decisions/0024-passt.md.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, WaitStatus};

use super::children::{Children, Started};
use super::tell::Teller;

/// How passt is run.
#[derive(Debug, Clone)]
pub(super) struct Passt {
    pub(super) program: PathBuf,
    pub(super) tcp_ports: String,
    pub(super) udp_ports: String,
}

/// More of what it said is not kept.
const LAST_LINES: usize = 20;
const LINE: u64 = 1024;
/// It ends when its connection does.
const END: Duration = Duration::from_secs(2);
const TRIAL: Duration = Duration::from_secs(20);

impl Passt {
    fn command(&self, connection: OwnedFd, ports: bool) -> Command {
        let mut command = Command::new(&self.program);
        // The guest reaches the pod's gateway itself, not the pod behind it.
        command.args([
            "--foreground",
            "--stderr",
            "--quiet",
            "--no-map-gw",
            "--fd",
            "0",
        ]);
        if ports {
            command.args(["--tcp-ports", &self.tcp_ports]);
            command.args(["--udp-ports", &self.udp_ports]);
        }
        command
            .stdin(connection)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    /// Whether it can work here: with a connection that has ended already, it
    /// sets everything up and ends.
    pub(super) fn trial(&self, children: &Children) -> Result<(), String> {
        let connection = || Ok::<_, io::Error>(OwnedFd::from(UnixStream::pair()?.0));
        let connection = connection().map_err(|error| format!("no socket: {error}"))?;
        let Started { pid, stderr } = children
            .start(&mut self.command(connection, false))
            .map_err(|error| self.missing(&error))?;
        let said = thread::spawn(move || last_lines(stderr));
        let end = children.end_of(pid, TRIAL);
        children.kill(pid);
        let said = said.join().unwrap_or_default();
        match end {
            Some(end) if end.exit_status() == Some(0) => Ok(()),
            end => Err(self.failed(end, &said)),
        }
    }

    fn missing(&self, error: &io::Error) -> String {
        format!(
            "{} cannot be started: {error}\n\
             help: the launcher's image has to have passt; a VM with interfaces: [] needs none",
            self.program.display()
        )
    }

    fn failed(&self, end: Option<WaitStatus>, said: &str) -> String {
        let how = match end {
            None => "does not end".to_owned(),
            Some(end) => match (end.exit_status(), end.terminating_signal()) {
                (Some(code), _) => format!("ended with code {code}"),
                (_, Some(signal)) => format!("was ended by signal {signal}"),
                _ => "ended".to_owned(),
            },
        };
        let help = if said.contains("user namespace") || said.contains("sandbox") {
            "\nhelp: passt shuts itself in with unshare, mount and pivot_root: the pod's seccomp and \
             AppArmor profiles and the node's kernel have to let it"
        } else {
            ""
        };
        let program = self.program.display();
        format!("the guest's network: {program} {how}: {said}{help}")
    }
}

/// Serves QEMU at a listening socket.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) passt: Passt,
    pub(super) children: Arc<Children>,
    pub(super) teller: Teller,
}

/// The passt that serves QEMU now.
struct Serving {
    pid: Pid,
    connection: Arc<UnixStream>,
}

impl Network {
    /// From now on. A second connection takes the place of the first.
    pub(super) fn serve(self, listener: UnixListener) {
        let network = Arc::new(self);
        thread::spawn(move || {
            let told = Arc::new(Mutex::new(String::new()));
            let mut serving: Option<Serving> = None;
            loop {
                let Ok((connection, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(100));
                    continue;
                };
                if let Some(old) = serving.take() {
                    network.end(&old);
                }
                match network.start(connection, &told) {
                    Ok(new) => serving = Some(new),
                    Err(why) => tell_once(&network.teller, &told, why),
                }
            }
        });
    }

    fn start(
        self: &Arc<Self>,
        connection: UnixStream,
        told: &Arc<Mutex<String>>,
    ) -> Result<Serving, String> {
        let cannot = |error: io::Error| self.passt.missing(&error);
        let own = Arc::new(connection.try_clone().map_err(cannot)?);
        let mut command = self.passt.command(connection.into(), true);
        let Started { pid, stderr } = self.children.start(&mut command).map_err(cannot)?;
        let serving = Serving {
            pid,
            connection: Arc::clone(&own),
        };
        let (network, told) = (Arc::clone(self), Arc::clone(told));
        thread::spawn(move || {
            let said = last_lines(stderr);
            // Who closes standard error, ends.
            let end = network.children.end_of(pid, Duration::MAX);
            // QEMU shall see that, and connect again.
            let _ = own.shutdown(Shutdown::Both);
            if end.is_some_and(|end| end.exit_status() != Some(0)) {
                tell_once(&network.teller, &told, network.passt.failed(end, &said));
            }
        });
        Ok(serving)
    }

    /// Two cannot have the same ports.
    fn end(&self, old: &Serving) {
        let _ = old.connection.shutdown(Shutdown::Both);
        if !self.children.has_ended(old.pid, END) {
            self.children.kill(old.pid);
            self.children.has_ended(old.pid, END);
        }
    }
}

/// QEMU connects again every second: what has not changed is not news.
fn tell_once(teller: &Teller, told: &Mutex<String>, why: String) {
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    if *told != why {
        teller.tell(&why);
        *told = why;
    }
}

/// What passt said last, in one line, when it has ended.
fn last_lines(stderr: Option<ChildStderr>) -> String {
    let Some(stderr) = stderr else {
        return String::new();
    };
    let mut reader = BufReader::new(stderr);
    let mut lines = VecDeque::new();
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let line = String::from_utf8_lossy(&line).trim().to_owned();
        // There is no syslog in a container, and it says so for every line.
        if line.is_empty() || (line.starts_with("Failed to send") && line.ends_with("syslog")) {
            continue;
        }
        lines.push_back(line);
        if lines.len() > LAST_LINES {
            lines.pop_front();
        }
    }
    Vec::from(lines).join("; ")
}
