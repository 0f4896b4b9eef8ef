//! Client and server are killed at points that nobody has chosen, and the disk is whole in
//! the end.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use super::proxy::{Fault, Proxy};
use super::scratch::{Scratch, wait_until};
use super::serving::Serving;

/// Numbers that are others at each run; who fails tells the first.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self(now.as_secs() ^ u64::from(now.subsec_nanos()) << 20 | 1)
    }

    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % most
    }
}

fn client(scratch: &Scratch, address: &str, compress: &str) -> Child {
    let url = format!("http://{address}/upload");
    let mut command = Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.args(["upload", "disk.raw", &url, "--token-file", "token"]);
    command.args(["--compress", compress, "--progress", "none"]);
    command.current_dir(scratch.path("")).stdout(Stdio::null());
    command.spawn().unwrap()
}

/// A disk of so many bytes, as it is or as frames.
pub(crate) fn killed_and_gone_on_with(size: usize, rounds: usize, compress: &str) {
    let scratch = Scratch::new(&format!("upload-kills-{compress}"));
    let mut dice = Dice::new();
    let seed = dice.0;
    let noise: Vec<u8> = (0..u32::try_from(size / 4).unwrap())
        .flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_le_bytes())
        .collect();
    fs::write(scratch.path("disk.raw"), &noise).unwrap();
    let mut reached = 0;
    for round in 0..rounds {
        let mut serving = Serving::start(&scratch, "out.img", "");
        let offset = serving.offset();
        assert!(offset >= reached, "{seed}: {offset} after {reached}");
        reached = offset;
        // Frames are shorter than what is in them.
        let left = size / 2 - reached.min(size / 2);
        let stall = Fault::Stall(dice.below(left.max(1)));
        let proxy = Proxy::before(&serving.address, &[stall], &[]);
        let mut child = client(&scratch, &proxy.address, compress);
        wait_until("it has come so far", || proxy.has_stalled());
        // So long that some of it may have been written, or not.
        std::thread::sleep(std::time::Duration::from_millis(dice.below(100) as u64));
        if round % 3 == 2 {
            serving.kill();
            child.kill().unwrap();
        } else {
            child.kill().unwrap();
            // What connects the two goes with the client.
            proxy.end();
            wait_until("it is lost", || serving.standing("upload-state") != "busy");
            reached = serving.offset();
            serving.kill();
        }
        child.wait().unwrap();
        assert_ne!(serving.ends(), Some(0), "{seed}");
        assert!(!scratch.path("out.img").exists(), "{seed}");
    }
    let mut serving = Serving::start(&scratch, "out.img", "");
    assert!(serving.offset() >= reached, "{seed}");
    let mut child = client(&scratch, &serving.address, compress);
    assert!(child.wait().unwrap().success(), "{seed}");
    assert_eq!(serving.ends(), Some(0), "{seed}");
    assert!(scratch.read("out.img") == noise, "{seed}");
    assert!(!scratch.names().iter().any(|name| name.contains(".upload")));
}
