//! All that is there because of a machine's VMs. A test compares it before and
//! after: nothing may be left, whatever kind of thing it is.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use super::Machine;

thread_local! {
    /// Whether it is this test's VM that has secrets.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Secrets do not tell whose they are: of all tests beside one libvirtd, whatever program
/// they are in, only one has a VM with some at a time.
fn lock_of_secrets() -> File {
    let shared = std::env::var("DISKLET_TEST_RUN_DIR").expect("run by script/test");
    let path = Path::new(&shared).join("secrets.lock");
    let mut options = File::options();
    let file = options.create(true).append(true).open(path);
    file.unwrap()
}

/// For as long as a VM has secrets.
pub(crate) struct WithSecrets {
    _lock: File,
}

pub(crate) fn with_secrets() -> WithSecrets {
    let lock = lock_of_secrets();
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
    OURS.set(true);
    WithSecrets { _lock: lock }
}

impl Drop for WithSecrets {
    fn drop(&mut self) {
        OURS.set(false);
    }
}

impl Machine {
    /// Files and directories, mounts, loop devices, held locks; domains, pools,
    /// secrets and processes.
    pub(crate) fn things(&self) -> Vec<String> {
        let data = self.path("data");
        let mut files = Vec::new();
        for top in [&data, &self.run_dir] {
            list(top, &mut files);
        }
        // Images are the store's, and these directories stay once they are made.
        let stays = |path: &Path| {
            ["images", "volumes", "vms", "cloud-init", "ceph", "uefi"]
                .map(|name| data.join(name))
                .contains(&path.to_owned())
                || ["vms", "read"]
                    .map(|name| self.run_dir.join(name))
                    .contains(&path.to_owned())
        };
        files.retain(|path| !stays(path) && !path.starts_with(data.join("images")));
        let mut found = locks(&files);
        found.extend(files.iter().map(|path| path.display().to_string()));
        found.extend(self.lines_about_us(&contents("/proc/self/mountinfo")));
        found.extend(
            self.lines_about_us(&printed("losetup", &["-l", "-n", "-O", "NAME,BACK-FILE"])),
        );
        for (list, show) in [
            (&["list", "--all", "--uuid"][..], "dumpxml"),
            (&["pool-list", "--all", "--uuid"][..], "pool-dumpxml"),
        ] {
            let names = self.virsh(list).unwrap();
            let names = names.lines().map(str::trim).filter(|name| !name.is_empty());
            // Another test's may be gone by now.
            let ours = |name: &&str| {
                let xml = self.virsh(&[show, name]).unwrap_or_default();
                !self.lines_about_us(&xml).is_empty()
            };
            found.extend(names.filter(ours).map(|name| format!("{show} {name}")));
        }
        found.extend(self.secrets());
        found.extend(orphans());
        found
    }

    /// The rights on all that VMs have here.
    pub(crate) fn modes(&self) -> Vec<String> {
        let mut files = vec![self.run_dir.clone()];
        for top in [&self.path("data"), &self.run_dir] {
            list(top, &mut files);
        }
        let mode = |path: &PathBuf| path.symlink_metadata().unwrap().mode();
        let lines = files
            .iter()
            .filter(|path| !path.starts_with(self.path("data/images")));
        lines
            .map(|path| format!("{:o} {}", mode(path), path.display()))
            .collect()
    }

    fn lines_about_us(&self, text: &str) -> Vec<String> {
        let ours = [&self.folder, &self.run_dir].map(|path| path.to_str().unwrap().to_owned());
        let is_ours = |line: &&str| ours.iter().any(|path| has_path(line, path));
        text.lines().filter(is_ours).map(str::to_owned).collect()
    }

    /// All of libvirt's, unless another test has some at this moment.
    fn secrets(&self) -> Vec<String> {
        let lock = lock_of_secrets();
        let nobodys = || rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
        if !OURS.get() && !nobodys() {
            return Vec::new();
        }
        let secrets = self.virsh(&["secret-list"]).unwrap();
        let secrets = secrets.lines().filter(|line| !line.trim().is_empty());
        secrets.map(|line| format!("secret {line}")).collect()
    }
}

/// What one of our programs has started, and nobody waits for any more. The kernel ends
/// them with whom they work for, which takes a moment; what scripts start ends by itself.
fn orphans() -> Vec<String> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let found: Vec<_> = processes.filter_map(|it| orphan(&it.path())).collect();
        if found.is_empty() || Instant::now() > until {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn orphan(process: &Path) -> Option<String> {
    // It may have ended meanwhile.
    let of = |process: &Path, file: &str| std::fs::read_to_string(process.join(file)).ok();
    let name = of(process, "comm")?;
    // The kernel keeps 15 letters.
    if !["mke2fs", "qemu-storage-da"].contains(&name.trim()) {
        return None;
    }
    let status = of(process, "status")?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    let parent = of(&Path::new("/proc").join(parent.trim()), "comm")?;
    // Tests make filesystems as well.
    let is_waited_for = ["disklet", "real_"].iter().any(|it| parent.starts_with(it));
    (!is_waited_for).then(|| format!("{} of {}", name.trim(), parent.trim()))
}

/// Whether a path or one below it is in a line; names of other tests may begin
/// with this one's.
fn has_path(line: &str, path: &str) -> bool {
    let mut rest = line;
    while let Some(at) = rest.find(path) {
        rest = &rest[at + path.len()..];
        if !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-') {
            return true;
        }
    }
    false
}

/// Everything below a directory, directories included.
fn list(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let is_directory = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        found.push(path.clone());
        if is_directory {
            list(&path, found);
        }
    }
}

/// The locks that anybody holds on any of these, or on where they are.
fn locks(files: &[PathBuf]) -> Vec<String> {
    let names = files.iter().filter_map(|path| {
        let meta = path.symlink_metadata().ok()?;
        let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        Some((format!("{major:02x}:{minor:02x}:{}", meta.ino()), path))
    });
    let names: BTreeMap<String, &PathBuf> = names.collect();
    let locks = contents("/proc/locks");
    let held = locks.lines().filter_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF
        let words: Vec<_> = line
            .split_whitespace()
            .filter(|word| *word != "->")
            .collect();
        let path = names.get(*words.get(5)?)?;
        Some(format!(
            "{} {} lock on {}",
            words[1],
            words[3],
            path.display()
        ))
    });
    let mut held: Vec<_> = held.collect();
    held.sort();
    held
}

fn contents(path: &str) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}
