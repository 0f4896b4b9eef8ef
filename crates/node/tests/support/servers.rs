//! Storage servers to read disks from: real ones, in the network of the private
//! libvirtd, so that its VMs reach them.

use std::ffi::OsStr;
use std::fs::File;
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

    /// What serves, beside what has started it.
    fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Ceph => &["ceph-mon", "ceph-osd"],
            Self::Gluster => &["glusterd", "glusterfsd"],
            Self::Http => &["apache2"],
            Self::Iscsi => &["tgtd"],
            Self::Nbd => &["qemu-nbd"],
        }
    }
}

/// A running server and what it says of itself. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    facts: serde_json::Value,
    directory: PathBuf,
    script: Child,
    /// Let go of when the server is gone.
    _turn: Option<File>,
}

/// Gluster listens where it always does: beside one libvirtd there is one at a time,
/// whatever program its test is in.
fn turn(kind: Kind) -> Option<File> {
    if kind != Kind::Gluster {
        return None;
    }
    let shared = std::env::var("DISKLET_TEST_RUN_DIR").expect("run by script/test");
    let path = Path::new(&shared).join("gluster.lock");
    let file = File::options().create(true).append(true).open(path);
    let file = file.unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    // The server has it, too, and may end after this program.
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
    Some(file)
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
        Self::start_with(kind, "no")
    }

    /// The same, whose programs come again when they were killed.
    pub(crate) fn start_lasting(kind: Kind) -> Self {
        Self::start_with(kind, "yes")
    }

    fn start_with(kind: Kind, again: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let turn = turn(kind);
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
        .env("SERVER_AGAIN", again)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
        if let Some(turn) = &turn {
            rustix::io::fcntl_setfd(turn, rustix::io::FdFlags::CLOEXEC).unwrap();
        }
        let mut line = String::new();
        BufReader::new(script.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let facts = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{kind:?} said {line:?} instead of its facts: {error}"));
        Self {
            kind,
            facts,
            directory,
            script,
            _turn: turn,
        }
    }

    /// Kills its programs; they come again when what is returned is dropped.
    pub(crate) fn vanish(&self) -> Away {
        let away = self.directory.join("away");
        File::create_new(&away).unwrap();
        self.signal("KILL");
        Away(away)
    }

    /// Has its programs stand still until what is returned is dropped: they are
    /// connected to, and do not answer.
    pub(crate) fn hang(&self) -> Hanging<'_> {
        self.signal("STOP");
        Hanging(self)
    }

    fn signal(&self, signal: &str) {
        let first = std::fs::read_to_string(self.directory.join("pid")).unwrap();
        let mut found = Vec::new();
        descendants(first.split(' ').next().unwrap(), &mut found);
        found.retain(|process| {
            let name = std::fs::read_to_string(format!("/proc/{process}/comm"));
            name.is_ok_and(|name| self.kind.programs().contains(&name.trim()))
        });
        assert!(!found.is_empty(), "{:?} does not run", self.kind);
        let mut kill = Command::new("kill");
        // One may end with another.
        kill.args(["-s", signal]).args(found).stderr(Stdio::null());
        kill.status().unwrap();
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

/// A server that is not there for a while.
pub(crate) struct Away(PathBuf);

impl Drop for Away {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

/// A server that stands still for a while.
pub(crate) struct Hanging<'s>(&'s Server);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT");
    }
}

fn descendants(of: &str, found: &mut Vec<String>) {
    let children = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children"));
    for child in children.unwrap_or_default().split_whitespace() {
        found.push(child.to_owned());
        descendants(child, found);
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
