//! A QEMU that nobody has told us of.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use super::terminal::read_until;

/// It has a disk open, and does nothing with it; it ends with this.
pub(crate) struct ForeignQemu {
    process: Child,
}

impl ForeignQemu {
    pub(crate) fn with(disk: &str) -> Self {
        let drive = format!("file={disk},format=raw,if=virtio");
        let mut process = Command::new("qemu-system-x86_64")
            .args([
                "-S", "-accel", "tcg", "-display", "none", "-monitor", "stdio",
            ])
            .args(["-drive", &drive])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = process.stdin.as_mut().unwrap();
        ask.write_all(b"info block\n").unwrap();
        read_until(process.stdout.as_mut().unwrap(), disk);
        Self { process }
    }
}

impl Drop for ForeignQemu {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
