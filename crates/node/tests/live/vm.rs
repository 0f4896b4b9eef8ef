//! A VM that runs, and disks for it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::support::guest::{self, bootable};
use crate::support::{Machine, fixtures::LoopDevice};

/// What the guest does all the time: it says which disks it has, their first line,
/// what stands in their fifth sector, and writes once to their sixth.
const SCRIPT: &str = "#!/bin/sh
#guest: while :; do disks; for d in /dev/disk-by-serial/*; do s=${d##*/}; case $s in root*|cloud*) continue;; esac; echo \"HEAD $s $(dd if=$d bs=512 count=1 2>/dev/null | head -n 1 | tr -cd ' -~')\"; echo \"READ $s $(dd if=$d bs=512 skip=5 count=1 2>/dev/null | head -c 12 | tr -cd ' -~')\"; [ -e /run/wrote-$s ] || { echo guest-$s | dd of=$d bs=512 seek=6 conv=sync,fsync 2>/dev/null && touch /run/wrote-$s; }; done; echo ROUND; sleep 1; done
";

/// A Linux that looks at its disks.
pub(crate) fn looking(machine: &Machine, name: &str) -> String {
    machine.add_image_file("small", &bootable("small"));
    let script = SCRIPT.replace('\n', "\n      ");
    let text = format!(
        "{}    memory: 256Mi\n    devices:\n      disks:\n      - name: root\n        source: {{image: {{name: virtlet.cloud/small}}}}\n  cloudInit:\n    userData: |\n      {script}\n",
        head(name)
    );
    started(machine, name, &text)
}

/// The smallest guest, which knows nothing of hot-plug.
pub(crate) fn deaf(machine: &Machine, name: &str) -> String {
    machine.add_image("tiny", &guest::waiting_disk());
    let text = format!(
        "{}    memory: 64Mi\n    devices:\n      disks:\n      - name: root\n        source: {{image: {{name: virtlet.cloud/tiny}}}}\n",
        head(name)
    );
    let manifest = started(machine, name, &text);
    machine.until_it_says(name, guest::HELLO);
    manifest
}

fn head(name: &str) -> String {
    format!(
        "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {{name: {name}}}\nspec:\n  domain:\n"
    )
}

fn started(machine: &Machine, name: &str, text: &str) -> String {
    let manifest = machine.write(&format!("{name}.yaml"), text);
    let manifest = manifest.display().to_string();
    machine.done(&["up", "-f", &manifest]);
    manifest
}

/// The last whole round of a guest that looks at its disks, begun after this
/// was asked.
pub(crate) fn round(machine: &Machine, name: &str) -> String {
    let rounds = || {
        let log = machine.done(&["logs", name]).replace('\r', "");
        let rounds: Vec<_> = log.split("ROUND\n").map(str::to_owned).collect();
        rounds
    };
    let before = rounds().len();
    let begun = std::time::Instant::now();
    loop {
        let now = rounds();
        // One was under way, the next is whole.
        if now.len() >= before + 2 {
            return now[now.len() - 2].clone();
        }
        assert!(begun.elapsed().as_secs() < 240, "the guest stands still");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

/// Waits for a line in a round.
pub(crate) fn until_seen(machine: &Machine, name: &str, words: &[&str]) {
    let begun = std::time::Instant::now();
    loop {
        let round = round(machine, name);
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        if round.lines().any(has) {
            return;
        }
        assert!(begun.elapsed().as_secs() < 240, "no {words:?}: {round}");
    }
}

/// A claim of a directory or a device, and its volume; the file that has both.
pub(crate) fn claim(machine: &Machine, name: &str, mode: &str, path: &str) -> String {
    let text = format!(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\n\
         spec: {{volumeName: {name}, accessModes: [ReadWriteOnce], volumeMode: {mode}, storageClassName: '', resources: {{requests: {{storage: 4Mi}}}}}}\n\
         ---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: {name}}}\n\
         spec: {{accessModes: [ReadWriteOnce], volumeMode: {mode}, capacity: {{storage: 8Mi}}, hostPath: {{path: {path}}}}}\n"
    );
    let file = machine.write(&format!("claim-{name}.yaml"), text);
    file.display().to_string()
}

/// A directory with a disk image that has a mark in its fifth sector; the claim
/// of it, and the image.
pub(crate) fn marked_image(machine: &Machine, name: &str, size: u64) -> (String, PathBuf) {
    let directory = machine.path(&format!("volume-{name}"));
    std::fs::create_dir_all(&directory).unwrap();
    let image = directory.join("disk.img");
    mark(&image, name, size);
    let claim = claim(machine, name, "Filesystem", directory.to_str().unwrap());
    (claim, image)
}

/// The same as a device.
pub(crate) fn marked_device(machine: &Machine, name: &str, size: u64) -> (String, LoopDevice) {
    let file = machine.path(&format!("{name}.device"));
    mark(&file, name, size);
    let device = LoopDevice::attach(&file);
    (claim(machine, name, "Block", &device.path), device)
}

fn mark(path: &Path, name: &str, size: u64) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    file.write_all_at(format!("host-{name}\n").as_bytes(), 5 * 512)
        .unwrap();
}

/// What the guest has written.
pub(crate) fn sixth_sector(path: impl AsRef<Path>) -> String {
    let mut sector = [0; 512];
    let disk = File::open(path).unwrap();
    disk.read_exact_at(&mut sector, 6 * 512).unwrap();
    let text = String::from_utf8(sector.to_vec()).unwrap();
    text.trim_matches(['\0', '\n']).to_owned()
}

/// The disks that a VM is said to have.
pub(crate) fn disks(machine: &Machine, name: &str) -> Vec<String> {
    let shown = machine.done(&["describe", name, "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let disks = shown["disks"].as_array().unwrap().iter();
    disks
        .map(|disk| disk["name"].as_str().unwrap().to_owned())
        .collect()
}

/// The targets that libvirt has, of the domain as it runs and as it is defined.
pub(crate) fn targets(machine: &Machine, name: &str) -> [Vec<String>; 2] {
    let uuid = machine.uuid_of(name);
    [
        &["domblklist", &uuid][..],
        &["domblklist", &uuid, "--inactive"][..],
    ]
    .map(|list| {
        let listed = machine.virsh_done(list);
        let targets = listed
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        targets.map(str::to_owned).collect()
    })
}
