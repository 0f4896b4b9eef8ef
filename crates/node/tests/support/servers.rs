//! Storage servers to read disks from: real ones, in the network of the private
//! libvirtd, so that its VMs reach them.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::daemon::repository;

/// A server that `script/lib/servers` has a script for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ceph,
    Gluster,
    Http,
    Iscsi,
    Nbd,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [
        Self::Ceph,
        Self::Gluster,
        Self::Http,
        Self::Iscsi,
        Self::Nbd,
    ];

    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// A running server and what it says of itself. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    facts: serde_json::Value,
    directory: PathBuf,
    script: Child,
}

impl Server {
    /// The one that all tests of this program share; started by the first.
    ///
    /// Nothing drops it: the script ends the server as soon as this program is
    /// gone, and its end of the pipe with it, however that came.
    pub(crate) fn shared(kind: Kind) -> &'static Self {
        static SHARED: [OnceLock<Server>; Kind::ALL.len()] =
            [const { OnceLock::new() }; Kind::ALL.len()];
        SHARED[kind as usize].get_or_init(|| Self::start(kind))
    }

    /// One of a test's own.
    pub(crate) fn start(kind: Kind) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short, for its sockets, and open to QEMU's user.
        let directory = std::env::temp_dir().join(format!(
            "disklet-{}-{}-{count}",
            kind.name(),
            std::process::id()
        ));
        let mut script = Command::new(
            repository()
                .join("script/lib/servers")
                .join(format!("{}.sh", kind.name())),
        )
        .arg("run")
        .arg(&directory)
        .env("SERVER_NETWORK", network())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        let mut line = String::new();
        BufReader::new(script.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let facts = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{kind:?} said {line:?} instead of its facts: {error}"));
        Self {
            facts,
            directory,
            script,
        }
    }

    /// A text of its facts, by JSON pointer.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.fact(pointer).as_str().unwrap()
    }

    /// A number of its facts.
    pub(crate) fn number(&self, pointer: &str) -> u64 {
        self.fact(pointer).as_u64().unwrap()
    }

    /// What is in a file that its facts name.
    pub(crate) fn contents(&self, pointer: &str) -> String {
        std::fs::read_to_string(self.text(pointer)).unwrap()
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    fn fact(&self, pointer: &str) -> &serde_json::Value {
        let fact = self.facts.pointer(pointer);
        fact.unwrap_or_else(|| panic!("no {pointer} in {}", self.facts))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let ended = self.script.wait().unwrap();
        // A test that fails already shall say why itself.
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

/// Where the servers are, and the VMs of the private libvirtd.
fn network() -> String {
    let daemon = std::env::var("LIBVIRTD_PID").expect("run by script/test");
    format!("/proc/{daemon}/ns/net")
}

/// A program that reaches the servers.
pub(crate) fn beside_servers(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", network())).arg(program);
    command
}
