//! `kubectl disklet console`: the terminal, and the launcher's standard input and
//! output, which are the guest's serial port.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use disklet::report::harmless_line;
use disklet::terminal::{DETACH, RawTerminal};
use disklet_core::names::ObjectName;
use futures::SinkExt;
use kube::api::{AttachParams, AttachedProcess, TerminalSize};
use rustix::termios::tcgetwinsize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, SimplexStream, WriteHalf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::ConsoleArgs;
use super::cluster::{Answer, Cluster, forbidden};
use crate::refusal::Refusal;

/// How long the last of a pipe takes to get to the guest, and its answer back.
const PARTING: Duration = Duration::from_millis(1500);
/// How long after the console's end the cluster takes to tell why.
const SETTLING: Duration = Duration::from_secs(10);

/// Why a console has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    /// The user has had enough, or nobody reads any more.
    Left,
    /// The other side has closed it.
    Closed,
}

pub(super) async fn console(args: &ConsoleArgs, cluster: &Cluster) -> Result<ExitCode, Refusal> {
    let vm = cluster.vm(&args.name).await?;
    let name = format!("{}/{}", cluster.namespace, args.name);
    demand_launcher(&vm, &name, cluster).await?;
    let how = AttachParams {
        container: Some(CONTAINER.to_owned()),
        stdin: true,
        stdout: true,
        stderr: false,
        // The launcher has a terminal: it wants one at the other end, too.
        tty: true,
        ..AttachParams::default()
    };
    let attached = cluster
        .ask(&name, cluster.pods().attach(args.name.as_str(), &how))
        .await?;
    let attached = match attached {
        Answer::Found(attached) => attached,
        Answer::Absent => return Err(not_running(&name)),
        Answer::Forbidden(why) => return Err(forbidden(&name, &why)),
    };
    let parting = {
        let _raw = RawTerminal::enter(&name)
            .map_err(|error| Refusal::new(format!("the terminal cannot be used: {error}")))?;
        converse(attached).await?
    };
    if parting == Parting::Closed {
        tell_end(&args.name, &name, cluster).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The launcher's container.
const CONTAINER: &str = "vm";

fn not_running(name: &str) -> Refusal {
    Refusal::new(format!("{name}: does not run"))
        .help("kubectl disklet describe says why; kubectl logs shows what it wrote")
}

async fn demand_launcher(vm: &Value, name: &str, cluster: &Cluster) -> Result<(), Refusal> {
    match cluster.launcher(vm).await? {
        Answer::Found(pod) => {
            let phase = pod.status.and_then(|status| status.phase);
            match phase.as_deref() {
                Some("Running") => Ok(()),
                _ => Err(not_running(name)),
            }
        }
        Answer::Absent => Err(not_running(name)),
        // Who may attach need not be one who may look.
        Answer::Forbidden(_) => Ok(()),
    }
}

/// Until either side has enough.
async fn converse(mut attached: AttachedProcess) -> Result<Parting, Refusal> {
    let lost = || Refusal::new("the console has no input or output");
    let guest_in = attached.stdin().ok_or_else(lost)?;
    let mut guest_out = attached.stdout().ok_or_else(lost)?;
    let size = attached.terminal_size();
    let sizes = tokio::spawn(follow_size(size));
    let keys = keys();
    let typed = tokio::spawn(type_in(keys, guest_in));
    let mut interrupted = listen(SignalKind::interrupt())?;
    let mut terminated = listen(SignalKind::terminate())?;
    let mut hung_up = listen(SignalKind::hangup())?;
    let parting = tokio::select! {
        parting = show_all(&mut guest_out) => parting,
        _ = typed => Ok(Parting::Left),
        _ = interrupted.recv() => Ok(Parting::Left),
        _ = terminated.recv() => Ok(Parting::Left),
        _ = hung_up.recv() => Ok(Parting::Left),
    };
    sizes.abort();
    // What was shown last, before the user left, has been shown.
    attached.abort();
    parting
}

fn listen(kind: SignalKind) -> Result<tokio::signal::unix::Signal, Refusal> {
    signal(kind).map_err(|error| Refusal::new(format!("signals cannot be heard: {error}")))
}

/// What the guest writes.
async fn show_all(guest: &mut ReadHalf<SimplexStream>) -> Result<Parting, Refusal> {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let length = match guest.read(&mut buffer).await {
            Ok(0) | Err(_) => return Ok(Parting::Closed),
            Ok(length) => length,
        };
        let shown = {
            let mut out = io::stdout().lock();
            out.write_all(&buffer[..length]).and_then(|()| out.flush())
        };
        match shown {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Parting::Left),
            Err(error) => {
                return Err(Refusal::new(format!(
                    "the console cannot be shown: {error}"
                )));
            }
        }
    }
}

/// What the user types, piece by piece; the end of it is an empty one. A thread
/// reads, since nothing else can be asked whether there is something to read.
fn keys() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        loop {
            let mut buffer = vec![0; 1024];
            let length = match rustix::io::read(io::stdin(), &mut buffer) {
                Ok(length) => length,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => continue,
                Err(_) => 0,
            };
            buffer.truncate(length);
            if sender.blocking_send(buffer).is_err() || length == 0 {
                return;
            }
        }
    });
    receiver
}

/// Returns when the user wants to leave.
async fn type_in(mut keys: mpsc::Receiver<Vec<u8>>, mut guest: WriteHalf<SimplexStream>) {
    while let Some(heard) = keys.recv().await {
        // In a pipe it is a byte like any other.
        let typed = io::stdin().is_terminal();
        let wanted = heard.iter().position(|byte| typed && *byte == DETACH);
        let sent = &heard[..wanted.unwrap_or(heard.len())];
        if guest.write_all(sent).await.is_err() || guest.flush().await.is_err() {
            // The other side is gone, and is the one to say so.
            return std::future::pending().await;
        }
        if wanted.is_some() {
            return;
        }
        if heard.is_empty() {
            tokio::time::sleep(PARTING).await;
            return;
        }
    }
}

/// Tells the other terminal how large this one is.
async fn follow_size(size: Option<futures::channel::mpsc::Sender<TerminalSize>>) {
    let (Some(mut size), Ok(mut changes)) = (size, signal(SignalKind::window_change())) else {
        return;
    };
    if !io::stdin().is_terminal() {
        // The sender must live: its end would be taken for a mistake.
        return std::future::pending().await;
    }
    loop {
        if let Ok(now) = tcgetwinsize(io::stdin()) {
            let now = TerminalSize {
                width: now.ws_col,
                height: now.ws_row,
            };
            if size.send(now).await.is_err() {
                return;
            }
        }
        changes.recv().await;
    }
}

/// The connection was closed: by the VM's end, or by something on the way.
async fn tell_end(name: &ObjectName, full_name: &str, cluster: &Cluster) -> Result<(), Refusal> {
    let ended = async {
        loop {
            let vm = cluster.vm(name).await;
            let Ok(vm) = vm else {
                return "is gone".to_owned();
            };
            let phase = vm["status"]["phase"].as_str().unwrap_or_default();
            let runs = match cluster.launcher(&vm).await {
                Ok(Answer::Found(pod)) => is_running(&pod),
                Ok(Answer::Forbidden(_)) => phase == "Running",
                _ => false,
            };
            if !runs {
                return format!("does not run any more ({phase})");
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    match timeout(SETTLING, ended).await {
        Ok(how) => {
            let _ = writeln!(
                io::stderr(),
                "{}",
                harmless_line(&format!("{full_name} {how}"))
            );
            Ok(())
        }
        Err(_) => Err(Refusal::new(format!("{full_name}: the connection is lost"))
            .help("the VM runs on; kubectl disklet console connects again")),
    }
}

fn is_running(pod: &k8s_openapi::api::core::v1::Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref());
    let containers = containers.unwrap_or_default();
    containers.iter().any(|container| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some())
    })
}
