//! Finding the daemon, and starting it where nobody has.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use disklet_core::diag::shortened;
use virt::connect::Connect;

use crate::failure::{Failure, Result};
use crate::interrupt;

const SYSTEM: &str = "qemu:///system";
const SESSION: &str = "qemu:///session";
/// VMs that are only noted in this process, for measuring what is around them:
/// libvirt's own driver for tests. `test:` by mistake is still refused.
const MEMORY: &str = "memory:";

/// The daemon that was asked for, or that the variable of libvirt's own programs
/// names; else root's is the system's, which is started
/// if it is not there, and a user's is their own: the system's runs QEMU as
/// somebody to whom a user cannot give files.
pub(super) fn connect(wanted: Option<&str>) -> Result<Connect> {
    // Errors are returned; the library would print them as well.
    virt::error::clear_error_callback();
    let usual = std::env::var("LIBVIRT_DEFAULT_URI").ok();
    let wanted = wanted.or(usual.as_deref());
    if wanted == Some(MEMORY) {
        return open("test:///default").map_err(|error| no_answer(MEMORY, error));
    }
    if let Some(uri) = wanted.filter(|uri| !uri.is_empty()) {
        refuse_remote(uri)?;
        let connect = open(uri).map_err(|error| no_answer(uri, error))?;
        return demand_qemu(connect, uri);
    }
    if !rustix::process::geteuid().is_root() {
        return open(SESSION).map_err(|error| no_answer(SESSION, error));
    }
    let refused = match open(SYSTEM) {
        Ok(connect) => return Ok(connect),
        Err(refused) => refused,
    };
    if std::path::Path::new("/run/libvirt/libvirt-sock").exists() && daemon_runs() {
        return Err(no_answer(SYSTEM, refused));
    }
    start_daemon()
}

/// A daemon of another machine would look for the disks there.
fn refuse_remote(uri: &str) -> Result<()> {
    if !is_remote(uri) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{} is a libvirt of another machine, and the disks are made on this one",
        shortened(uri)
    ))
    .help("run disklet on that machine, or use --connect qemu:///system here"))
}

/// By a transport other than a socket, or by a host.
fn is_remote(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once("://") else {
        return false;
    };
    match scheme.split_once('+') {
        Some((_, transport)) => transport != "unix",
        None => !rest.is_empty() && !rest.starts_with(['/', '?']),
    }
}

fn demand_qemu(connect: Connect, uri: &str) -> Result<Connect> {
    let scheme = uri.split(':').next().unwrap_or(uri);
    match scheme.split('+').next() {
        Some("qemu") => Ok(connect),
        _ => Err(
            Failure::new(format!("{uri} is not a libvirt that runs QEMU"))
                .help("use qemu:///system or qemu:///session, or leave --connect out"),
        ),
    }
}

/// Why there is no connection.
enum Refused {
    /// It was told.
    Told(virt::error::Error),
    /// Somebody listens, and says nothing.
    Silence,
    /// The user wants no more of it.
    Cancelled,
}

/// Opens a connection, unless the daemon stands still: libvirt itself would wait
/// for ever.
fn open(uri: &str) -> std::result::Result<Connect, Refused> {
    let (answer, answered) = channel();
    let address = uri.to_owned();
    // Whoever is not waited for any more closes its connection itself.
    std::thread::spawn(move || answer.send(Connect::open(Some(&address))));
    let begun = Instant::now();
    loop {
        match answered.recv_timeout(Duration::from_millis(100)) {
            Ok(outcome) => return outcome.map_err(Refused::Told),
            Err(_) if interrupt::asked() => return Err(Refused::Cancelled),
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < PATIENCE => {}
            Err(_) => return Err(Refused::Silence),
        }
    }
}

/// Has calls fail when the daemon does not answer any more, rather than wait for
/// ever: it is asked every few seconds whether it is there, by libvirt itself,
/// which answers whatever else it is doing. libvirtd asks its clients as often.
pub(super) fn notice_silence(connect: &Connect) {
    const SECONDS: i32 = 5;
    const TIMES: u32 = 5;
    // VMs that are in this process do not go away.
    let _ = connect.set_keep_alive(SECONDS, TIMES);
}

fn no_answer(uri: &str, refused: Refused) -> Failure {
    let error = match refused {
        Refused::Told(error) => error,
        Refused::Cancelled => return Failure::cancelled(),
        Refused::Silence => {
            return Failure::new(format!("libvirt at {uri} does not answer"))
                .help("it listens, but stands still: see what libvirtd does, or start it again");
        }
    };
    let said = error.message();
    if said.contains("Permission denied") || said.contains("authentication") {
        return Failure::new(format!("libvirt at {uri} does not let this user in"))
            .because(error)
            .help("run this as root, or join the group that may use it (Debian: libvirt); a daemon of your own needs neither: leave --connect out");
    }
    Failure::new(format!("libvirt at {uri} does not answer"))
        .because(error)
        .help("start libvirtd, or say with --connect where it is")
}

fn daemon_runs() -> bool {
    let pid = std::fs::read_to_string("/run/libvirtd.pid").ok();
    pid.is_some_and(|pid| std::path::Path::new("/proc").join(pid.trim()).exists())
}

/// How long a daemon takes at most until it answers.
const PATIENCE: Duration = Duration::from_secs(30);

fn start_daemon() -> Result<Connect> {
    let _ = writeln!(
        io::stderr(),
        "no libvirt daemon answers: starting virtlogd and libvirtd"
    );
    for daemon in ["virtlogd", "libvirtd"] {
        let status = Command::new(daemon)
            .arg("-d")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .status()
            .map_err(|error| {
                Failure::new(format!("{daemon} cannot be started"))
                    .because(error)
                    .help("install libvirt (Debian: libvirt-daemon-system), or say with --connect where it is")
            })?;
        if !status.success() && daemon == "libvirtd" {
            return Err(Failure::new(format!(
                "libvirtd cannot be started ({status})"
            )));
        }
    }
    let begun = Instant::now();
    loop {
        match open(SYSTEM) {
            Ok(connect) => return Ok(connect),
            Err(Refused::Cancelled) => return Err(Failure::cancelled()),
            Err(refused) if begun.elapsed() > PATIENCE => return Err(no_answer(SYSTEM, refused)),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_remote;

    #[test]
    fn daemons_of_other_machines_are_told_by_their_addresses() {
        for uri in [
            "qemu+ssh://root@host/system",
            "qemu+tcp://host/system",
            "qemu+tcp:///system",
            "qemu+libssh2://host/system",
            "qemu://host.example/system",
        ] {
            assert!(is_remote(uri), "{uri}");
        }
        for uri in [
            "qemu:///system",
            "qemu:///session",
            "qemu+unix:///system?socket=/x",
            "test:///default",
            "qemu",
        ] {
            assert!(!is_remote(uri), "{uri}");
        }
    }
}
