//! A guest under QEMU, whose console and network are the launcher's.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::launched::Launched;
use crate::pod::run;

/// Emulated, on a busy machine.
const TO_BOOT: Duration = Duration::from_secs(300);

pub(crate) struct Guest {
    pub(crate) launched: Launched,
    qemu: Child,
    pieces: Receiver<Vec<u8>>,
    seen: String,
    commands: usize,
}

impl Guest {
    /// Boots the small guest, which then has a shell.
    pub(crate) fn boot(mut launched: Launched) -> Self {
        let disk = small_disk();
        let seed = seed(&launched);
        let socket = |name: &str| launched.path(name).display().to_string();
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-accel",
            "tcg",
            "-m",
            "96",
            "-nodefaults",
            "-display",
            "none",
        ]);
        qemu.args([
            "-snapshot",
            "-drive",
            &format!("file={disk},format=raw,if=virtio"),
        ]);
        qemu.args([
            "-drive",
            &format!("file={seed},format=raw,if=virtio,readonly=on"),
        ]);
        qemu.args([
            "-chardev",
            &format!("socket,id=serial,path={}", socket("serial")),
        ]);
        qemu.args(["-serial", "chardev:serial"]);
        let net = format!(
            "stream,id=net,server=off,addr.type=unix,addr.path={}{}",
            socket("net"),
            reconnect()
        );
        qemu.args(["-netdev", &net, "-device", "virtio-net-pci,netdev=net"]);
        let qemu = qemu.stdin(Stdio::null()).spawn().unwrap();
        let mut guest = Self {
            pieces: pieces(launched.child.stdout.take().unwrap()),
            launched,
            qemu,
            seen: String::new(),
            commands: 0,
        };
        guest.until("GUEST-READY");
        guest
    }

    /// What a command prints.
    pub(crate) fn shell(&mut self, command: &str) -> String {
        self.commands += 1;
        // The echo of the command is not its end.
        let line = format!("{command}; echo \"\"END-{}-\n", self.commands);
        let input = self.launched.child.stdin.as_mut().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        let said = self.until(&format!("\nEND-{}-", self.commands));
        let start = said.find("\"\"END-").unwrap_or_default();
        let output = said[start..].split_once('\n').unwrap_or_default().1;
        output.to_owned()
    }

    /// Ends QEMU, and leaves the launcher.
    pub(crate) fn kill(mut self) -> Launched {
        self.qemu.kill().unwrap();
        self.qemu.wait().unwrap();
        self.launched
    }

    fn until(&mut self, mark: &str) -> String {
        let start = Instant::now();
        loop {
            if let Some(at) = self.seen.find(mark) {
                let rest = self.seen.split_off(at + mark.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            assert!(start.elapsed() < TO_BOOT, "no {mark:?} in:\n{}", self.seen);
            if let Ok(piece) = self.pieces.recv_timeout(Duration::from_secs(1)) {
                self.seen
                    .push_str(&String::from_utf8_lossy(&piece).replace('\r', ""));
            }
        }
    }
}

fn pieces(mut output: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = output.read(&mut bytes) {
            if sender.send(bytes[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn small_disk() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../script/lib/guest_image.sh");
    let output = Command::new("bash")
        .arg(script)
        .arg("small")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// User data by which the guest stays.
fn seed(launched: &Launched) -> String {
    let (directory, image) = (launched.path("seed"), launched.path("seed.iso"));
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("user-data"), "#guest: stay\n").unwrap();
    let image = image.display().to_string();
    let directory = directory.display().to_string();
    run(&[
        "genisoimage",
        "-quiet",
        "-V",
        "cidata",
        "-r",
        "-o",
        &image,
        &directory,
    ]);
    image
}

/// How this QEMU is told to connect again: since 8.0, and in milliseconds since 9.2.
fn reconnect() -> &'static str {
    let output = Command::new("qemu-system-x86_64")
        .arg("--version")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let version = text.split_whitespace().nth(3).unwrap();
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let version: (u32, u32) = (parts.next().unwrap(), parts.next().unwrap());
    if version >= (9, 2) {
        ",reconnect-ms=1000"
    } else {
        ",reconnect=1"
    }
}
