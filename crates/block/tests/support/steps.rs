//! What `qemu-io` is told to do with an image, and what its disk must be
//! afterwards: kept here, byte by byte, and asked of nobody.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{Random, Scratch, run, shown};

/// One command. Places and lengths are any numbers; the disk makes them fit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Write(Fill, u64, u64),
    Zero(Unmap, u64, u64),
    Discard(u64, u64),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fill {
    Byte(u8),
    Text,
    Noise,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Unmap {
    No,
    Yes,
}

/// What bytes are written from, over and over: lengths that fit no cluster, so
/// that every place differs.
pub(crate) struct Patterns {
    text: (PathBuf, Vec<u8>),
    noise: (PathBuf, Vec<u8>),
}

impl Patterns {
    pub(crate) fn new(scratch: &Scratch) -> Self {
        let mut text = vec![0; 70_001];
        super::ours::write_text(&mut text, 0);
        let mut noise = vec![0; 50_021];
        Random::new(3).fill(&mut noise);
        let file = |name: &str, bytes: Vec<u8>| {
            let path = scratch.file(name);
            std::fs::write(&path, &bytes).unwrap();
            (path, bytes)
        };
        Self {
            text: file("text", text),
            noise: file("noise", noise),
        }
    }

    /// Fills a range as `qemu-io` does; its option for it.
    fn fill(&self, fill: Fill, range: &mut [u8]) -> String {
        let (path, pattern) = match fill {
            Fill::Byte(byte) => {
                range.fill(byte);
                return format!("-P {byte}");
            }
            Fill::Text => &self.text,
            Fill::Noise => &self.noise,
        };
        for piece in range.chunks_mut(pattern.len()) {
            piece.copy_from_slice(&pattern[..piece.len()]);
        }
        format!("-s {}", shown(path))
    }
}

/// The disk in an image that QEMU writes.
pub(crate) struct Written<'p> {
    pub(crate) image: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pub(crate) cluster: usize,
    /// Whether a discarded cluster reads as zeroes. In version 2 nothing could
    /// hide what lies below it, and QEMU leaves it.
    pub(crate) discards: bool,
    pub(crate) patterns: &'p Patterns,
}

impl Written<'_> {
    /// Packs some clusters, in a run of its own and each only once: QEMU 10.0
    /// damages an image in which it packs a cluster after others were
    /// overwritten. Each number is how many clusters to pass over.
    pub(crate) fn pack(&mut self, gaps: &[(Fill, usize)]) {
        let mut commands = Vec::new();
        let mut at = 0;
        for (fill, gap) in gaps {
            let start = at + gap * self.cluster;
            at = start + self.cluster;
            if at > self.bytes.len() {
                break;
            }
            let source = self.patterns.fill(*fill, &mut self.bytes[start..at]);
            commands.push(format!("write -c {source} {start} {}", self.cluster));
        }
        qemu_io(&self.image, &commands);
    }

    pub(crate) fn apply(&mut self, steps: &[Step]) {
        let commands: Vec<_> = steps.iter().map(|step| self.command(*step)).collect();
        qemu_io(&self.image, &commands);
    }

    fn command(&mut self, step: Step) -> String {
        match step {
            Step::Write(fill, at, length) => {
                let range = self.sectors(at, length);
                let (at, length) = (range.start, range.len());
                let source = self.patterns.fill(fill, &mut self.bytes[range]);
                format!("write {source} {at} {length}")
            }
            Step::Zero(unmap, at, length) => {
                let range = self.sectors(at, length);
                self.bytes[range.clone()].fill(0);
                let unmap = match unmap {
                    Unmap::No => "",
                    Unmap::Yes => "-u",
                };
                format!("write -z {unmap} {} {}", range.start, range.len())
            }
            Step::Discard(first, count) => {
                let range = self.clusters(first, count);
                if self.discards {
                    self.bytes[range.clone()].fill(0);
                }
                format!("discard {} {}", range.start, range.len())
            }
        }
    }

    fn sectors(&self, at: u64, length: u64) -> Range<usize> {
        let longest = (4 * self.cluster as u64).clamp(64 << 10, 1 << 20) / 512;
        self.fitted(512, at, length % longest)
    }

    fn clusters(&self, first: u64, count: u64) -> Range<usize> {
        self.fitted(self.cluster, first, count % 4)
    }

    /// So many units and one more, on the disk.
    fn fitted(&self, unit: usize, first: u64, more: u64) -> Range<usize> {
        let (unit, size) = (unit as u64, self.bytes.len() as u64);
        let start = first % size.div_ceil(unit) * unit;
        let end = size.min(start + (more + 1) * unit);
        usize::try_from(start).unwrap()..usize::try_from(end).unwrap()
    }
}

/// Runs commands that must all succeed.
fn qemu_io(image: &Path, commands: &[String]) {
    let mut arguments = vec!["-t", "unsafe", "-d", "unmap", "-f", "qcow2"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command.as_str()]));
    // Without any command it would read them from its standard input.
    let image = shown(image);
    arguments.extend(["-c", "flush", &image]);
    run("qemu-io", &arguments);
}
