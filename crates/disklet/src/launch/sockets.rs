//! The launcher's directory: docs/formats/launcher.md.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use disklet_core::launch::protocol::{AGENT_SOCKET, NET_SOCKET, SERIAL_SOCKET};

/// The agent's socket until everything else listens.
const NOT_READY: &str = ".agent";

/// The sockets, of which the agent's does not show yet.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) agent: UnixListener,
    pub(super) serial: UnixListener,
    pub(super) net: UnixListener,
    pub(super) shown: Shown,
}

/// The name by which the agent finds its socket.
#[derive(Debug)]
pub(super) struct Shown(PathBuf);

impl Sockets {
    /// Makes them, in place of those of a launcher that has ended: the
    /// directory is the pod's and outlives its containers.
    pub(super) fn make(directory: &Path) -> Result<Self, String> {
        for name in [AGENT_SOCKET, NOT_READY, SERIAL_SOCKET, NET_SOCKET] {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(cannot("remove", &path, &error));
                }
                _ => {}
            }
        }
        Ok(Self {
            serial: listen(&directory.join(SERIAL_SOCKET))?,
            net: listen(&directory.join(NET_SOCKET))?,
            agent: listen(&directory.join(NOT_READY))?,
            shown: Shown(directory.to_owned()),
        })
    }
}

impl Shown {
    /// Everything listens: the agent may come.
    pub(super) fn show(&self) -> Result<(), String> {
        let (from, to) = (self.0.join(NOT_READY), self.0.join(AGENT_SOCKET));
        fs::rename(from, &to).map_err(|error| cannot("make", &to, &error))
    }

    /// Nobody will answer any more.
    pub(super) fn hide(&self) {
        let _ = fs::remove_file(self.0.join(AGENT_SOCKET));
    }
}

/// Everybody who can come here may connect: the kubelet's directory lets
/// nobody in but root and QEMU.
fn listen(path: &Path) -> Result<UnixListener, String> {
    let socket = UnixListener::bind(path).map_err(|error| cannot("make", path, &error))?;
    fs::set_permissions(path, Permissions::from_mode(0o666))
        .map_err(|error| cannot("open", path, &error))?;
    Ok(socket)
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> String {
    format!(
        "cannot {verb} the socket {}: {error}\n\
         help: the pod has to have a volume for sockets there that its user may write, such as an emptyDir",
        path.display()
    )
}
