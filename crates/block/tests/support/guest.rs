//! A guest with Linux and little else: it uses images as a VM does, and its
//! kernel knows what that of the tests may not, such as ISO 9660.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What guests need; what these need comes with them. What a kernel has no module of is
/// built in.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_blk", "virtio_scsi", "sr_mod", "isofs"];

/// What a guest does and has. It is turned off when its script is done.
pub(crate) struct Guest {
    /// Goes on where `guest/begin.sh` ends.
    pub(crate) script: String,
    /// More files that the script can read, below the root.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// QEMU's arguments for its disks.
    pub(crate) devices: Vec<String>,
}

impl Guest {
    /// What the guest prints. The directory is for what it is started from.
    pub(crate) fn console(&self, directory: &Path) -> String {
        let kernel = Kernel::find();
        let initramfs = directory.join("initramfs.cpio");
        fs::write(&initramfs, self.initramfs(&kernel)).unwrap();
        let done = Command::new("timeout")
            .args(["600", "qemu-system-x86_64"])
            .args(["-machine", "q35,accel=tcg", "-m", "256"])
            .args(["-nodefaults", "-no-user-config", "-display", "none"])
            .args(["-no-reboot", "-serial", "stdio"])
            .arg("-kernel")
            .arg(&kernel.image)
            .arg("-initrd")
            .arg(&initramfs)
            .args([
                "-append",
                "console=ttyS0 quiet no_timer_check mitigations=off panic=-1",
            ])
            .args(&self.devices)
            .output()
            .unwrap();
        let console = String::from_utf8_lossy(&done.stdout).replace('\r', "");
        let complaints = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{console}\n{complaints}");
        console
    }

    fn initramfs(&self, kernel: &Kernel) -> Vec<u8> {
        let begin = include_str!("guest/begin.sh");
        let init = format!("{begin}{}\npoweroff -f\n", self.script);
        let mut archive = Vec::new();
        for directory in ["bin", "modules"] {
            append(&mut archive, directory, 0o040_755, &[]);
        }
        append(&mut archive, "init", 0o100_755, init.as_bytes());
        let busybox = fs::read("/bin/busybox").unwrap();
        append(&mut archive, "bin/busybox", 0o100_755, &busybox);
        for (name, bytes) in kernel.modules().iter().chain(&self.files) {
            append(&mut archive, name, 0o100_644, bytes);
        }
        append(&mut archive, "TRAILER!!!", 0, &[]);
        archive
    }
}

/// A kernel and its modules, as Debian's packages have them.
struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// The kernel below `DISKLET_TEST_KERNEL`, where a package was unpacked;
    /// else an installed one.
    fn find() -> Self {
        let root = std::env::var("DISKLET_TEST_KERNEL").unwrap_or_else(|_| "/".to_owned());
        let root = Path::new(&root);
        let boot = fs::read_dir(root.join("boot")).into_iter().flatten();
        boot.map(|entry| entry.unwrap().path())
            .find_map(|image| {
                let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
                let modules = root.join("lib/modules").join(version);
                modules.exists().then_some(Self { image, modules })
            })
            .unwrap_or_else(|| {
                panic!(
                    "no kernel below {}: DISKLET_TEST_KERNEL names a directory with boot/vmlinuz-* \
                     and lib/modules/*, such as the unpacked package of linux-image-cloud-amd64",
                    root.display()
                )
            })
    }

    /// In the order of their needs, which differs from kernel to kernel.
    fn modules(&self) -> Vec<(String, Vec<u8>)> {
        let mut taken = Vec::new();
        for module in MODULES {
            self.take(module, &mut taken);
        }
        let numbered = taken.into_iter().enumerate();
        let file = |(number, (module, bytes))| (format!("modules/{number:02}-{module}.ko"), bytes);
        numbered.map(file).collect()
    }

    fn take(&self, module: &str, taken: &mut Vec<(String, Vec<u8>)>) {
        if taken.iter().any(|(name, _)| name == module) {
            return;
        }
        let Some(path) = find(&self.modules, &format!("{module}.ko")) else {
            return;
        };
        let bytes = fs::read(path).unwrap();
        for need in needs(&bytes) {
            self.take(&need, taken);
        }
        taken.push((module.to_owned(), bytes));
    }
}

/// The other modules that a module says it needs.
fn needs(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let mut windows = module.windows(FIELD.len());
    let at = windows.position(|window| window == FIELD);
    // Every module says so.
    let listed = &module[at.unwrap() + FIELD.len()..];
    let listed = listed.split(|byte| *byte == 0).next().unwrap();
    let names = std::str::from_utf8(listed).unwrap().split(',');
    let names = names.filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

fn find(directory: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.find_map(|entry| {
        let entry = entry.ok()?;
        if entry.file_type().ok()?.is_dir() {
            find(&entry.path(), name)
        } else {
            (entry.file_name() == name).then(|| entry.path())
        }
    })
}

/// Adds to an archive in cpio's newc format: numbers of eight hexadecimal
/// digits, and everything padded to four bytes.
fn append(archive: &mut Vec<u8>, name: &str, mode: usize, bytes: &[u8]) {
    let inode = archive.len();
    let numbers = [
        inode,
        mode,
        0,
        0,
        1,
        0,
        bytes.len(),
        0,
        0,
        0,
        0,
        name.len() + 1,
        0,
    ];
    let mut header = "070701".to_owned();
    for number in numbers {
        write!(header, "{number:08x}").unwrap();
    }
    archive.extend(header.bytes());
    archive.extend(name.bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend(bytes);
    archive.resize(archive.len().next_multiple_of(4), 0);
}
