//! A directory for images, the program, and QEMU's tools.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A directory that goes away. Programs run in it; their arguments are given in
/// one line.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("image-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        Self(directory)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// `disklet image`, ready to be run.
    pub(crate) fn command(&self, line: &str) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_disklet"), "image");
        command.args(line.split_whitespace());
        command
    }

    fn program(&self, program: &str, line: &str) -> Command {
        let mut command = Command::new(program);
        command.args(line.split_whitespace()).current_dir(&self.0);
        command.env("LC_ALL", "C.UTF-8");
        command
    }

    pub(crate) fn disklet(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    pub(crate) fn succeeds(&self, line: &str) -> String {
        let output = self.disklet(line);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}: {told}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Fails with an exit code; what it says on standard error.
    pub(crate) fn fails(&self, code: i32, line: &str) -> String {
        refused(code, line, &self.disklet(line))
    }

    /// With a file as its standard input, through a pipe.
    pub(crate) fn piped(&self, file: &str, line: &str) -> Output {
        let mut cat = self.cat(file);
        let pipe = cat.stdout.take().unwrap();
        let output = self.command(line).stdin(pipe).output().unwrap();
        let _ = cat.wait();
        output
    }

    /// Something that pipes a file.
    pub(crate) fn cat(&self, file: &str) -> Child {
        let mut cat = self.program("cat", file);
        cat.stdout(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn qemu(&self, line: &str) -> String {
        self.tool("qemu-img", line)
    }

    /// Runs a program that must succeed.
    pub(crate) fn tool(&self, program: &str, line: &str) -> String {
        let output = self.program(program, line).output().unwrap();
        assert!(output.status.success(), "{program} {line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a program that may fail.
    pub(crate) fn attempt(&self, program: &str, line: &str) -> Output {
        self.program(program, line).output().unwrap()
    }

    /// A disk with data, text and holes.
    pub(crate) fn disk(&self, name: &str, mebibytes: usize) {
        let mut bytes = vec![0; mebibytes << 20];
        for (index, block) in bytes.chunks_mut(65536).enumerate() {
            match index % 4 {
                0 => block.fill(u8::try_from(index % 200 + 1).unwrap()),
                1 => block.iter_mut().enumerate().for_each(|(at, byte)| {
                    *byte = u8::try_from((at * 31 + index * 7) % 251).unwrap();
                }),
                _ => {}
            }
        }
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// A QEMU that exports an image for writing, as a VM would use it.
    pub(crate) fn in_use(&self, format: &str, image: &str) -> InUse {
        let socket = self.path("nbd.sock");
        let _ = fs::remove_file(&socket);
        let driver = if image.starts_with("/dev/") {
            "host_device"
        } else {
            "file"
        };
        // The path of a socket must be short; here it is relative.
        let mut command = self.program("qemu-storage-daemon", "");
        command.args([
            "--blockdev",
            &format!("driver={driver},node-name=file,filename={image}"),
            "--blockdev",
            &format!("driver={format},node-name=disk,file=file"),
            "--nbd-server",
            "addr.type=unix,addr.path=nbd.sock",
            "--export",
            "type=nbd,id=disk,node-name=disk,writable=on",
        ]);
        let child = InUse(command.spawn().unwrap());
        // The export is there when the image has been opened.
        wait_until("the image is exported", || {
            let asked = self.attempt(
                "qemu-img",
                "info --output=json nbd+unix:///disk?socket=nbd.sock",
            );
            asked.status.success()
        });
        child
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that has an image open, until it is dropped.
pub(crate) struct InUse(pub(crate) Child);

impl Drop for InUse {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a program that was refused something says on standard error.
pub(crate) fn refused(code: i32, line: &str, output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{line}: {told}");
    assert!(told.starts_with("error: "), "{line}: {told}");
    told
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    wait_within(Duration::from_secs(20), what, is_so);
}

pub(crate) fn wait_within(most: Duration, what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < most, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Until the program has the file open that has no name yet: it is at work.
pub(crate) fn wait_for_nameless_file(pid: u32) {
    wait_until("a new file is open", || {
        let files = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let mut links = files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok());
        links.any(|link| link.to_string_lossy().ends_with("(deleted)"))
    });
}

/// Sends a signal to a program.
pub(crate) fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(sent.unwrap().success(), "{signal}");
}

/// Sends a signal to a program at work, which must end by it.
pub(crate) fn end_by(signal: &str, child: &mut Child) {
    send(signal, child);
    let status = child.wait().unwrap();
    assert!(!status.success(), "it was over before the signal");
}

/// The file, cut to a length.
pub(crate) fn first_part(scratch: &Scratch, from: &str, to: &str, length: usize) {
    let mut file = File::create(scratch.path(to)).unwrap();
    file.write_all(&scratch.read(from)[..length]).unwrap();
}
