//! The program that reads what only QEMU's drivers can read.
//!
//! ```text
//!   we --orders, keys--> qemu-storage-daemon --iSCSI, RBD, Gluster, …--> server
//!      <----- NBD ------
//! ```
//!
//! It hears orders by its standard input and serves on a socket that has no name
//! by the time it starts: nobody else can ask it, and nothing is left of it. Keys
//! are among the orders, so they are in no argument and no file.

use std::fs::DirBuilder;
use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use disklet_block::sys::end_with_parent;

use super::qmp::Qmp;
use crate::failure::{Failure, Result, on};
use crate::libvirt::QemuUser;

const PROGRAM: &str = "qemu-storage-daemon";

/// How long a server may leave everybody waiting. Ceph does not answer a wrong
/// key at all.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The daemon: its process, what it is told by, and connections to what it
/// serves, on which nobody has said anything yet.
pub(super) struct Daemon {
    pub(super) process: Process,
    pub(super) orders: Qmp<BufReader<UnixStream>, UnixStream>,
    pub(super) streams: Vec<UnixStream>,
}

/// A process that ends with this.
pub(super) struct Process(Mutex<Child>);

impl Process {
    /// Whoever waits for it, waits no more.
    pub(super) fn end(&self) {
        let mut child = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill().and_then(|()| child.wait());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

impl Daemon {
    /// Starts it, with so many connections. It runs as QEMU does, and ends with
    /// the thread that starts it.
    pub(super) fn start(directory: &Path, user: Option<QemuUser>, streams: usize) -> Result<Self> {
        let (listener, streams) = connected(directory, streams)?;
        let (ours, theirs) = UnixStream::pair().map_err(unstarted)?;
        let mut command = Command::new(PROGRAM);
        command
            .args([
                "--chardev",
                "socket,id=orders,fd=0",
                "--monitor",
                "chardev=orders",
            ])
            .arg("--nbd-server")
            // It has been connected to before it listens: nobody is late.
            .arg(format!(
                "addr.type=fd,addr.str=1,max-connections={},handshake-max-seconds=0",
                streams.len()
            ))
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(OwnedFd::from(theirs))
            .stdout(OwnedFd::from(listener))
            .stderr(Stdio::null());
        if let Some(QemuUser { user, group }) = user {
            command.uid(user).gid(group);
        }
        end_with_parent(&mut command);
        let process = Process(Mutex::new(command.spawn().map_err(unstarted)?));
        // Its ends are its own now; who waits for it shall see when it has gone.
        drop(command);
        ours.set_read_timeout(Some(PATIENCE)).map_err(unstarted)?;
        for stream in &streams {
            let both = stream.set_read_timeout(Some(PATIENCE));
            both.and_then(|()| stream.set_write_timeout(Some(PATIENCE)))
                .map_err(unstarted)?;
        }
        let answers = BufReader::new(ours.try_clone().map_err(unstarted)?);
        match Qmp::greet(answers, ours) {
            Ok(orders) => Ok(Self {
                process,
                orders,
                streams,
            }),
            Err(_) => Err(Failure::new(format!("{PROGRAM} does not say a word"))
                .help("see what it says with --version; QEMU 9.2 is the oldest that can be used")),
        }
    }
}

/// A socket that listens, and connections to it. Its name is gone at once.
fn connected(directory: &Path, streams: usize) -> Result<(UnixListener, Vec<UnixStream>)> {
    let private = Private::new(directory)?;
    let path = private.0.join("s");
    let failed = |error| on(&path, "made", error);
    let listener = UnixListener::bind(&path).map_err(failed)?;
    let streams: io::Result<Vec<_>> = (0..streams).map(|_| UnixStream::connect(&path)).collect();
    Ok((listener, streams.map_err(failed)?))
}

/// A directory that only we can enter, and that goes with this.
struct Private(PathBuf);

static TURN: AtomicU32 = AtomicU32::new(0);

impl Private {
    fn new(within: &Path) -> Result<Self> {
        let failed = |error| on(within, "used", error);
        std::fs::create_dir_all(within).map_err(failed)?;
        sweep(within).map_err(failed)?;
        // Sockets have short paths.
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let path = within.join(format!("{}-{turn}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(failed)?;
        Ok(Self(path))
    }
}

/// Those of processes that were killed at the wrong moment.
fn sweep(within: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(within)? {
        let entry = entry?;
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('-'));
        let lives = owner.is_some_and(|(pid, _)| Path::new("/proc").join(pid).exists());
        if !lives {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    Ok(())
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn unstarted(error: io::Error) -> Failure {
    let failure = Failure::new(format!("{PROGRAM} cannot be started"));
    match error.kind() {
        io::ErrorKind::NotFound => failure
            .because(error)
            .help("install qemu-utils and qemu-block-extra: QEMU's own drivers read the master"),
        _ => failure.because(error),
    }
}
