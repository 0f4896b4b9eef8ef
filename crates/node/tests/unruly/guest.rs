//! A guest that reads and writes its disks all the time, and says how that goes.

use std::time::{Duration, Instant};

use crate::support::Machine;
use crate::support::guest::bootable;

/// Each disk by itself, so that one that stands still keeps no other: a line with the
/// first line of its first sector, whether its last sector can be read, and whether it
/// could be written and flushed.
const SCRIPT: &str = "#!/bin/sh
#guest: disks >/dev/null; for d in /dev/disk-by-serial/*; do s=${d##*/}; case $s in root*|cloud*) continue;; esac; (n=0; while :; do n=$((n+1)); h=$(dd if=$d bs=512 count=1 2>/dev/null | head -n 1 | tr -cd ' -~'); l=$(dd if=$d bs=512 skip=8191 count=1 2>/dev/null | wc -c); w=no; echo round-$n | dd of=$d bs=512 seek=6 conv=sync,fsync 2>/dev/null && w=yes; echo \"SEES $s [${h:-nothing}] last=$l wrote=$w\"; sleep 0.5; done) & done; wait
";

/// A VM of that guest with more disks.
pub(crate) fn started(machine: &Machine, name: &str, items: &str, objects: &str) {
    machine.add_image_file("small", &bootable("small"));
    let script = SCRIPT.replace('\n', "\n      ");
    let text = format!(
        "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {{name: {name}}}\nspec:\n  domain:\n    memory: 256Mi\n    devices:\n      disks:\n\
         \x20     - name: root\n        source: {{image: {{name: virtlet.cloud/small}}}}\n{items}  cloudInit:\n    userData: |\n      {script}\n{objects}"
    );
    let manifest = machine.write(&format!("{name}.yaml"), text);
    machine.done(&["up", "-f", manifest.to_str().unwrap()]);
}

/// What it says from now on.
pub(crate) struct Ear<'e> {
    machine: &'e Machine,
    name: &'e str,
    from: usize,
}

impl<'e> Ear<'e> {
    pub(crate) fn new(machine: &'e Machine, name: &'e str) -> Self {
        let from = machine.done(&["logs", name]).len();
        Self {
            machine,
            name,
            from,
        }
    }

    /// All that it has said meanwhile of a disk, in whole lines.
    pub(crate) fn heard(&self, disk: &str) -> Vec<String> {
        let log = self.machine.done(&["logs", self.name]);
        let said = log.get(self.from..).unwrap_or_default();
        let begun = format!("SEES {disk} [");
        let lines = said.split_inclusive('\n');
        let lines = lines.filter(|line| line.ends_with('\n') && line.contains(&begun));
        lines.map(|line| line.trim().to_owned()).collect()
    }

    /// Waits for a line about a disk that has these words; all up to it.
    pub(crate) fn until(&self, disk: &str, words: &str) -> Vec<String> {
        let begun = Instant::now();
        loop {
            let heard = self.heard(disk);
            if heard.iter().any(|line| line.contains(words)) {
                return heard;
            }
            assert!(
                begun.elapsed().as_secs() < 300,
                "{disk} never has {words}: {heard:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What is said of a disk that is as it should be.
pub(crate) fn well(text: &str) -> String {
    format!("[{text}] last=512 wrote=yes")
}
