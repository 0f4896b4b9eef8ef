//! Attempts on an image in a process of its own that may take 64 MiB, and a
//! second for each: it is checked, opened, read whole, and copied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use disklet_block::convert::{Before, Options, Unwatched, to_raw};
use disklet_block::device::{Caching, MemoryDevice, ReadAt, Size};
use disklet_block::error::{Error, ErrorKind, Result};
use disklet_block::gate::{BelowDirectories, Gate, NoImplicitFiles};
use disklet_block::image::{Format, Image};
use disklet_block::qcow2::{Verdict, check};

use super::forge::Forged;
use super::{Scratch, open};

const IMAGE: &str = "DISKLET_HOSTILE_IMAGE";
const FORMAT: &str = "DISKLET_HOSTILE_FORMAT";
const GATE: &str = "DISKLET_HOSTILE_GATE";

/// What the child says of each step: `step: outcome`.
pub(crate) struct Outcome {
    pub(crate) lines: String,
    time: Duration,
}

impl Outcome {
    pub(crate) fn of(&self, step: &str) -> &str {
        let prefix = format!("| {step}: ");
        let line = self.lines.lines().find_map(|line| {
            let (_, rest) = line.split_once(&prefix)?;
            Some(rest)
        });
        line.unwrap_or_else(|| panic!("no {step} in {}", self.lines))
    }

    /// A step is refused: with this kind, in these words.
    pub(crate) fn refused(&self, step: &str, kind: &str, words: &str) -> &Self {
        let line = self.of(step);
        assert!(line.starts_with(&format!("{kind}: ")), "{step}: {line}");
        assert!(line.contains(words), "{step}: {line}");
        self
    }

    /// Steps that took too long, and how many milliseconds.
    fn slow(&self) -> Vec<(&str, u64)> {
        let spent = self.spent().into_iter();
        spent.filter(|(_, spent)| *spent >= LIMIT_MS).collect()
    }

    /// What each step took, in milliseconds.
    fn spent(&self) -> Vec<(&str, u64)> {
        let at = |step| self.of(&format!("{step} done")).parse::<u64>().unwrap();
        let pairs = [
            ("start", "check"),
            ("check", "open"),
            ("open", "read"),
            ("read", "copy"),
        ];
        pairs
            .map(|(before, step)| (step, at(step) - at(before)))
            .to_vec()
    }

    pub(crate) fn fine(&self, step: &str) -> &Self {
        assert_eq!(self.of(step), "fine");
        self
    }
}

/// Tries an image in a child with limits. `ulimit -d` is about memory that
/// can be written; what is only reserved does not count.
pub(crate) fn attempt(path: &Path, format: &str, gate: Option<&Path>) -> Outcome {
    let mut child = Command::new("sh");
    child
        .args(["-c", "ulimit -d 65536 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(IMAGE, path)
        .env(FORMAT, format)
        .env_remove(GATE);
    if let Some(gate) = gate {
        child.env(GATE, gate);
    }
    let start = Instant::now();
    let output = child.output().unwrap();
    let time = start.elapsed();
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{lines}\n{error}");
    assert!(lines.contains("| end: fine"), "{lines}\n{error}");
    Outcome { lines, time }
}

pub(crate) fn tried(name: &str, image: &Forged) -> Outcome {
    let scratch = Scratch::new(&format!("hostile-{name}"));
    let path = scratch.file("image");
    fs::write(&path, &image.bytes).unwrap();
    in_time(&path, "qcow2", None)
}

/// A second of the processor for each step, and twice that for a build that checks every
/// sum: on a core that others share, the largest of all tables takes it 1.04.
const LIMIT_MS: u64 = if cfg!(debug_assertions) { 2000 } else { 1000 };

/// Each step within its limit: how busy the machine is must not
/// matter. What else runs on the same core makes it slower all the same, so that one
/// of three attempts has to do.
pub(crate) fn in_time(path: &Path, format: &str, gate: Option<&Path>) -> Outcome {
    let mut outcome = attempt(path, format, gate);
    for _ in 0..2 {
        if outcome.slow().is_empty() {
            break;
        }
        outcome = attempt(path, format, gate);
    }
    assert_eq!(outcome.slow(), [], "{}", outcome.lines);
    assert!(outcome.time < Duration::from_secs(20), "{:?}", outcome.time);
    outcome
}

/// What this process has spent so far, of its own and in the kernel.
fn processor_time() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1.split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|n| n.parse::<u64>().unwrap())
        .sum();
    // The kernel's ticks are hundredths of a second.
    ticks * 10
}

type Step = fn(&Image) -> Result<()>;

/// What the test with the name `child` runs. It is none by itself.
#[expect(clippy::print_stdout, reason = "the parent reads it")]
pub(crate) fn child() {
    let Some(path) = std::env::var_os(IMAGE).map(PathBuf::from) else {
        return;
    };
    let say = |step: &str, outcome: &str| println!("| {step}: {outcome}");
    if std::env::var(FORMAT).unwrap() == "greedy" {
        let bytes = vec![1u8; 80 << 20];
        say("greedy", &bytes.len().to_string());
        return;
    }
    let told = |outcome: Result<()>| match outcome {
        Ok(()) => "fine".to_owned(),
        Err(error) => chain(&error),
    };
    let done = |step: &str| say(&format!("{step} done"), &processor_time().to_string());
    done("start");
    say("check", &told(checked(&path)));
    done("check");
    let image = opened(&path);
    let failed = image.as_ref().err().map(chain);
    say("open", failed.as_deref().unwrap_or("fine"));
    done("open");
    let each: [(&str, Step); 2] = [("read", read_whole), ("copy", copied)];
    for (step, work) in each {
        match &image {
            Ok(image) => say(step, &told(work(image))),
            Err(error) => say(step, &chain(error)),
        }
        done(step);
    }
    say("end", "fine");
}

fn chain(error: &Error) -> String {
    format!("{:?}: {error}", error.kind())
}

fn opened(path: &Path) -> Result<Image> {
    let format = Format::from_name(&std::env::var(FORMAT).unwrap()).unwrap();
    let gate: Box<dyn Gate> = match std::env::var_os(GATE) {
        None => Box::new(NoImplicitFiles),
        Some(directory) => Box::new(BelowDirectories::new([directory.into()], Caching::Buffered)),
    };
    Image::open(open(path), format, &*gate)
}

fn checked(path: &Path) -> Result<()> {
    let report = check(&open(path), "image")?;
    match report.verdict() {
        Verdict::Corrupt => Err(Error::new(
            ErrorKind::Corrupt,
            report.problems[0].to_string(),
        )),
        Verdict::Clean | Verdict::Leaks => Ok(()),
    }
}

/// Reads the first and the last 32 MiB: all of most disks.
fn read_whole(image: &Image) -> Result<()> {
    const MOST: u64 = 32 << 20;
    let size = image.size()?;
    let mut buffer = vec![0; 1 << 20];
    for start in [0, size.saturating_sub(MOST)] {
        let mut at = start;
        while at < size.min(start + MOST) {
            let step = (size - at).min(buffer.len() as u64);
            let piece = &mut buffer[..usize::try_from(step).unwrap()];
            image.read_at(piece, at)?;
            at += step;
        }
    }
    Ok(())
}

fn copied(image: &Image) -> Result<()> {
    let size = image.size()?.min(4 << 20);
    let target = MemoryDevice::zeroed(usize::try_from(size).unwrap());
    let options = Options {
        threads: 1,
        target: Before::Zeroes,
        share: false,
    };
    to_raw(image, &target, &options, &Unwatched).map(drop)
}
