//! What a launcher does for its VM, as far as the agent sees it.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use disklet_core::launch::protocol::{
    AGENT_SOCKET, FromAgent, FromLauncher, Inbox, Message, NET_SOCKET, SERIAL_SOCKET, VERSION,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

use crate::Error;

pub(crate) struct Launcher {
    agent: UnixListener,
    /// QEMU would connect to them.
    _guest: [UnixListener; 2],
}

impl Launcher {
    /// All of its sockets listen.
    pub(crate) fn listen(directory: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(directory)?;
        // A socket's own path would be longer than the kernel takes.
        let open = File::open(directory)?;
        let bind =
            |name: &str| UnixListener::bind(format!("/proc/self/fd/{}/{name}", open.as_raw_fd()));
        Ok(Self {
            agent: bind(AGENT_SOCKET)?,
            _guest: [bind(SERIAL_SOCKET)?, bind(NET_SOCKET)?],
        })
    }

    /// Until the agent says that the VM has ended; its exit code.
    pub(crate) async fn serve(self, mut stopped: watch::Receiver<bool>) -> Result<u8, Error> {
        loop {
            let (stream, _) = self.agent.accept().await?;
            if let Some(code) = converse(stream, &mut stopped).await {
                return Ok(code);
            }
            // The agent is being replaced.
        }
    }
}

async fn converse(mut stream: UnixStream, stopped: &mut watch::Receiver<bool>) -> Option<u8> {
    let hello = FromLauncher::Hello { version: VERSION };
    stream.write_all(hello.to_line().as_bytes()).await.ok()?;
    let mut inbox = Inbox::<FromAgent>::default();
    let mut bytes = [0; 4096];
    let mut told = false;
    loop {
        match inbox.take().ok()? {
            Some(FromAgent::Ended(ended)) => return Some(ended.how.exit_code()),
            Some(_) => continue,
            None => {}
        }
        tokio::select! {
            count = stream.read(&mut bytes) => match count.ok()? {
                0 => return None,
                count => inbox.feed(&bytes[..count]),
            },
            () = said(stopped), if !told => {
                told = true;
                let stop = FromLauncher::Stop { grace: 30 };
                stream.write_all(stop.to_line().as_bytes()).await.ok()?;
            }
        }
    }
}

/// Until somebody deletes the pod.
async fn said(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
