//! A launcher that runs, in a directory of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory that goes with the test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        // A socket's path has at most 107 bytes.
        let name = format!("launch-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How to start one.
pub(crate) struct Launcher {
    pub(crate) scratch: Scratch,
    pub(crate) command: Command,
}

impl Launcher {
    /// With sockets and a file for the termination message in a new directory.
    pub(crate) fn new(args: &[&str]) -> Self {
        Self::within(Scratch::new(), args)
    }

    pub(crate) fn within(scratch: Scratch, args: &[&str]) -> Self {
        let log = scratch.path().join("log");
        fs::write(&log, "").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
        command.arg("launch").args(args);
        command.arg("--directory").arg(scratch.path());
        command.arg("--termination-log").arg(log);
        command.env_remove("DISKLET_GRACE");
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { scratch, command }
    }

    pub(crate) fn start(mut self) -> Launched {
        let mut child = self.command.spawn().unwrap();
        let stderr = child.stderr.take().map(collect);
        Launched {
            scratch: self.scratch,
            stderr,
            child,
        }
    }
}

/// One that runs.
pub(crate) struct Launched {
    scratch: Scratch,
    pub(crate) child: Child,
    stderr: Option<JoinHandle<Vec<u8>>>,
}

/// What came of it.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
    /// The termination message.
    pub(crate) message: String,
}

impl Launched {
    /// A VM without a network: nothing but the program itself is needed.
    pub(crate) fn alone() -> Self {
        Launcher::new(&["--no-network"]).start()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent::new(self.connect("agent"))
    }

    /// An agent that was greeted.
    pub(crate) fn greeted(&self) -> Agent {
        let mut agent = self.agent();
        agent.say(r#"{"type":"hello","version":1}"#);
        assert_eq!(agent.hear(), r#"{"type":"hello","version":1}"#);
        agent
    }

    pub(crate) fn connect(&self, name: &str) -> UnixStream {
        let path = self.path(name);
        wait_until(&format!("{name} shows"), || self.path("agent").exists());
        UnixStream::connect(path).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end; whoever wants its output has taken it.
    pub(crate) fn end(mut self) -> Outcome {
        let start = Instant::now();
        let code = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status.code();
            }
            assert!(start.elapsed() < LONG, "it does not end");
            thread::sleep(Duration::from_millis(10));
        };
        let stderr = self.stderr.take().unwrap().join().unwrap();
        Outcome {
            code,
            stderr: String::from_utf8(stderr).unwrap(),
            message: fs::read_to_string(self.path("log")).unwrap(),
        }
    }
}

impl Launched {
    /// Kills it, and leaves its directory as it is.
    pub(crate) fn killed(mut self) -> Scratch {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.scratch, Scratch::new())
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The agent's end of a connection.
pub(crate) struct Agent {
    pub(crate) stream: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Agent {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        Self { stream, lines }
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.stream.write_all(line.as_bytes()).unwrap();
        self.stream.write_all(b"\n").unwrap();
    }

    /// The next line; empty when the connection has ended.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(_) => line.trim_end().to_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            Err(error) => panic!("{error}"),
        }
    }
}

pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "not in time: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Reads all of something in the background.
pub(crate) fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        let _ = from.read_to_end(&mut all);
        all
    })
}
