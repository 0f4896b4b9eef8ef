//! Servers that take connections and never say a word: whoever wants a disk of theirs
//! is told so, by name and in time.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "network/disks.rs"]
#[allow(dead_code, reason = "each test program uses a part of this")]
mod disks;
mod support;
#[path = "live/vm.rs"]
#[allow(dead_code, reason = "each test program uses a part of this")]
mod vm;

use std::io::{BufRead, BufReader};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use support::Machine;
use support::servers::beside_servers;
use support::things::with_secrets;

/// A port that takes connections, and one that greets as NBD servers do and then hangs.
struct Silence {
    process: Child,
    silent: u16,
    greeting: u16,
}

const PROGRAM: &str = "
import socket, sys, threading
def listen():
    s = socket.socket()
    s.bind(('127.0.0.1', 0))
    s.listen(100)
    return s
silent, greeting = listen(), listen()
kept = []
def greet():
    while True:
        c = greeting.accept()[0]
        c.sendall(b'NBDMAGICIHAVEOPT\\0\\3')
        kept.append(c)
threading.Thread(target=greet, daemon=True).start()
print(silent.getsockname()[1], greeting.getsockname()[1], flush=True)
sys.stdin.read()
";

impl Silence {
    fn begin() -> Self {
        let mut process = beside_servers("sh")
            .args(["-c", "ip link set lo up && exec python3 -c \"$0\"", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let ports: Vec<u16> = line
            .split_whitespace()
            .map(|port| port.parse().unwrap())
            .collect();
        Self {
            process,
            silent: ports[0],
            greeting: ports[1],
        }
    }

    /// A disk of each kind at the port that says nothing.
    fn sources(&self) -> Vec<(&'static str, String)> {
        let host = format!("{{name: 127.0.0.1, port: {}}}", self.silent);
        vec![
            (
                "iscsi",
                format!(
                    "iscsi: {{host: {host}, portal: 'iqn.2024-01.test.disklet:silent', lun: 1}}"
                ),
            ),
            (
                "rbd",
                format!(
                    "rbd: {{monitors: [{host}], pool: p, image: i, user: u, auth: {{secretRef: ceph}}}}"
                ),
            ),
            ("nbd", format!("nbd: {{host: {host}, export: e}}")),
            (
                "gluster",
                format!("gluster: {{hosts: [{host}], volume: v, path: /p}}"),
            ),
            (
                "http",
                format!("http: {{url: 'http://127.0.0.1:{}/disk'}}", self.silent),
            ),
        ]
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

const SECRET: &str = "---\napiVersion: v1\nkind: Secret\nmetadata: {name: ceph}\nstringData: {key: AQAAAAAAAAAAABAAMDEyMzQ1Njc4OWFiY2RlZg==}\n";

/// How something ended that was begun, and when.
struct Ended {
    name: String,
    output: Output,
    after: Duration,
}

impl Ended {
    fn said(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// One message, with the disk and the server in it.
    fn assert_told(&self, port: u16, most: u64) {
        let said = self.said();
        let name = &self.name;
        assert_eq!(self.output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("disk data"), "{name}: {said}");
        assert!(
            said.contains(&format!("127.0.0.1:{port}")),
            "{name}: {said}"
        );
        let messages = said.lines().filter(|line| line.starts_with("error: "));
        assert_eq!(messages.count(), 1, "{name}: {said}");
        assert!(
            self.after < Duration::from_secs(most),
            "{name} took {:?}: {said}",
            self.after
        );
    }
}

/// Has all of these done at once.
fn at_once(machine: &Machine, commands: Vec<(String, Vec<String>)>) -> Vec<Ended> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = commands
            .into_iter()
            .map(|(name, command)| {
                scope.spawn(move || {
                    let words: Vec<_> = command.iter().map(String::as_str).collect();
                    let output = machine.node(&words);
                    let after = begun.elapsed();
                    Ended {
                        name,
                        output,
                        after,
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn manifest(machine: &Machine, name: &str, source: &str, mode: &str) -> String {
    let item = format!(
        "      - source: {{{source}}}\n        name: data\n        access-mode: read-only\n        copy: {{mode: {mode}}}\n"
    );
    let text = disks::vm(name, &item, SECRET);
    let file = machine.write(&format!("{name}.yaml"), text);
    file.display().to_string()
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn an_up_against_servers_that_say_nothing_ends_in_time() {
    let machine = Machine::beside_servers("silent-up");
    let _secrets = with_secrets();
    let silence = Silence::begin();
    let before = machine.things();
    let up = |name: &str, source: &str, mode: &str| {
        let file = manifest(&machine, name, source, mode);
        let words = ["up", "-f", &file].map(str::to_owned);
        (name.to_owned(), words.to_vec())
    };
    let mut commands = Vec::new();
    for (kind, source) in silence.sources() {
        for mode in ["none", "clone"] {
            commands.push(up(&format!("silent-{kind}-{mode}"), &source, mode));
        }
    }
    let count = commands.len();
    // Who says a word, and then nothing.
    let halfway = format!(
        "nbd: {{host: {{name: 127.0.0.1, port: {}}}, export: e}}",
        silence.greeting
    );
    commands.push(up("silent-halfway", &halfway, "none"));
    let over = silence.sources()[2].1.clone();
    commands.push(up("silent-over", &over, "copy-on-write"));
    let ended = at_once(&machine, commands);
    for (nth, one) in ended.iter().enumerate() {
        eprintln!("{} {:?}: {}", one.name, one.after, one.said());
        let port = match nth == count {
            true => silence.greeting,
            false => silence.silent,
        };
        one.assert_told(port, 90);
    }
    assert_eq!(machine.things(), before);
}

/// The guest would stand still as long as QEMU waits.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_disk_of_a_server_that_says_nothing_is_not_attached() {
    let name = "silent-attach";
    let machine = Machine::beside_servers(name);
    let _secrets = with_secrets();
    let silence = Silence::begin();
    let nothing = machine.things();
    vm::deaf(&machine, name);
    let before = machine.things();
    let attach = |kind: &str, source: &str, port: u16, most: u64| {
        let text = format!("name: data\nsource: {{{source}}}\n");
        let file = machine.write("data.yaml", text).display().to_string();
        let attach = ["disk", "attach", name, "-f", &file].map(str::to_owned);
        let ended = at_once(&machine, vec![(kind.to_owned(), attach.to_vec())]);
        ended[0].assert_told(port, most);
        assert_eq!(machine.things(), before);
    };
    // One at a time has the VM.
    for (kind, source) in silence.sources() {
        if ["nbd", "iscsi"].contains(&kind) {
            attach(kind, &source, silence.silent, 30);
        }
    }
    // Who says a word, and then nothing.
    let halfway = silence.sources()[2].1.clone();
    let halfway = halfway.replace(&silence.silent.to_string(), &silence.greeting.to_string());
    attach("halfway", &halfway, silence.greeting, 90);
    // It goes on.
    machine.press_a_key(name);
    machine.until_it_is(name, "stopped");
    machine.done(&["down", name, "--grace", "0"]);
    assert_eq!(machine.things(), nothing);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn who_waits_for_a_server_may_change_their_mind() {
    let name = "silent-mind";
    let machine = Machine::beside_servers(name);
    let silence = Silence::begin();
    let before = machine.things();
    let source = &silence.sources()[2].1;
    let file = manifest(&machine, name, source, "none");
    let mut up = machine.command_with("--default-signal=INT", &["up", "-f", &file]);
    let up = up.stderr(Stdio::piped()).spawn().unwrap();
    machine.until_it_is(name, "starting");
    let begun = Instant::now();
    let pid = rustix::process::Pid::from_child(&up);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = up.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(begun.elapsed().as_secs() < 20, "{said}");
    assert_eq!(machine.things(), before);
}
