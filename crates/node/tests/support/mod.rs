//! A machine of its own for a test: data directory, configuration, program.

#![allow(dead_code, reason = "each test program uses a part of this")]

pub(crate) mod daemon;
pub(crate) mod fixtures;
pub(crate) mod foreign;
pub(crate) mod guest;
pub(crate) mod names;
pub(crate) mod nobody;
pub(crate) mod servers;
pub(crate) mod terminal;
pub(crate) mod things;

use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use disklet_block::device::{Caching, FileDevice, ReadAt, Size};
use disklet_block::gate::BelowDirectories;
use disklet_block::image::{Format, Image};
use disklet_core::names::Sha256;

/// A data directory that goes with the test.
pub(crate) struct Machine {
    folder: PathBuf,
    run_dir: PathBuf,
    libvirt: String,
    /// The program is in the network of the private libvirtd.
    is_beside_servers: bool,
}

impl Machine {
    pub(crate) fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("disklet-node-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let run = std::env::var("DISKLET_TEST_RUN_DIR").expect("run by script/test");
        let run_dir = Path::new(&run).join(name);
        let config = format!(
            "dataDir: {}/data\nrunDir: {}\ndomainType: qemu\n",
            folder.display(),
            run_dir.display()
        );
        std::fs::write(folder.join("config.yaml"), config).unwrap();
        Self {
            folder,
            run_dir,
            libvirt: std::env::var("DISKLET_TEST_LIBVIRT_URI")
                .expect("run by script/test, which starts a private libvirtd"),
            is_beside_servers: false,
        }
    }

    /// The same in the network of the private libvirtd, where servers are.
    pub(crate) fn beside_servers(name: &str) -> Self {
        let mut machine = Self::new(name);
        machine.is_beside_servers = true;
        machine
    }

    fn folder(&self) -> &str {
        self.folder.to_str().unwrap()
    }

    /// Where devices and files of the machine are shown.
    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub(crate) fn write_zeroes(&self, name: &str, size: u64) -> PathBuf {
        let path = self.path(name);
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    /// `disklet-node`, with this machine's configuration and daemon.
    pub(crate) fn node(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The same, killed at a boundary between two steps; at which, if it got
    /// there.
    pub(crate) fn killed(&self, arguments: &[&str], boundary: u32) -> Option<String> {
        self.killed_at(arguments, &boundary.to_string())
    }

    /// The same by the boundary's name.
    pub(crate) fn killed_at(&self, arguments: &[&str], boundary: &str) -> Option<String> {
        let output = self
            .command(arguments)
            // By this, what it has started is known; see `processes`.
            .current_dir(&self.folder)
            .env("DISKLET_CUT", boundary)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let cut = said.lines().find_map(|line| line.strip_prefix("cut: "));
        assert_eq!(cut.is_some(), output.status.signal() == Some(9), "{said}");
        cut.map(str::to_owned)
    }

    /// Programs that were started by one that was killed, and are still there.
    pub(crate) fn processes(&self) -> Vec<String> {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let ours = all.filter(|entry| {
            let place = std::fs::read_link(entry.path().join("cwd"));
            place.is_ok_and(|place| place == self.folder)
        });
        let command = |path: PathBuf| std::fs::read_to_string(path.join("cmdline"));
        ours.map(|entry| command(entry.path()).unwrap_or_default())
            .collect()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        names::claim(&self.libvirt, arguments);
        let program = env!("CARGO_BIN_EXE_disklet-node");
        let mut command = match self.is_beside_servers {
            true => servers::beside_servers(program),
            false => Command::new(program),
        };
        command
            .args(arguments)
            .arg("--config")
            .arg(self.path("config.yaml"))
            .env("LIBVIRT_DEFAULT_URI", &self.libvirt);
        command
    }

    /// The same with signals as `env` says, such as `--ignore-signal=HUP`, however
    /// the tests were started.
    pub(crate) fn command_with(&self, signals: &str, arguments: &[&str]) -> Command {
        let inner = self.command(arguments);
        let mut command = Command::new("env");
        command.arg(signals).arg(inner.get_program());
        command.args(inner.get_args());
        let envs = inner.get_envs();
        command.envs(envs.filter_map(|(key, value)| Some((key, value?))));
        command
    }

    /// The same, which must succeed; what it printed.
    pub(crate) fn done(&self, arguments: &[&str]) -> String {
        let output = self.node(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Says it until the guest has switched itself off.
    pub(crate) fn run_to_end(&self, manifest: &str) {
        self.done(&["up", "-f", manifest, "--wait", "exit", "--timeout", "6m"]);
    }

    /// The same, which must fail; what it said.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.node(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The one volume whose name has this in it.
    pub(crate) fn volume(&self, part: &str) -> PathBuf {
        std::fs::read_dir(self.path("data/volumes"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| path.to_str().unwrap().contains(part))
            .unwrap()
    }

    /// The same, as soon as it is there.
    pub(crate) fn wait_for_volume(&self, part: &str) -> PathBuf {
        let begun = std::time::Instant::now();
        loop {
            let entries = std::fs::read_dir(self.path("data/volumes"));
            let mut paths = entries
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.path());
            if let Some(path) = paths.find(|path| path.to_str().unwrap().ends_with(part)) {
                return path;
            }
            assert!(begun.elapsed().as_secs() < 180, "no volume {part}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Has whoever shows a device or a file wait, until this is dropped.
    pub(crate) fn hold_places(&self) -> std::fs::File {
        let places = self.run_dir.join("vms");
        let mut builder = std::fs::DirBuilder::new();
        builder.mode(0o711).recursive(true);
        builder.create(&places).unwrap();
        let held = std::fs::File::open(&places).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
        held
    }

    /// Opens a volume with all that is below it.
    pub(crate) fn open_volume(&self, path: &Path) -> Image {
        let file = FileDevice::open(path, Caching::Buffered).unwrap();
        let gate = BelowDirectories::new([self.path("data")], Caching::Buffered);
        Image::open(file, Format::Qcow2, &gate).unwrap()
    }

    /// Copies a volume from an offset on into a file.
    pub(crate) fn read_volume(&self, volume: &Path, offset: u64, to: &Path) {
        let volume = self.open_volume(volume);
        let length = volume.size().unwrap() - offset;
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        volume.read_at(&mut bytes, offset).unwrap();
        std::fs::write(to, bytes).unwrap();
    }

    /// Takes a disk into the image store.
    pub(crate) fn add_image(&self, name: &str, disk: &[u8]) -> Sha256 {
        self.add_image_to(&self.path("data"), name, disk)
    }

    /// The same for another data directory.
    pub(crate) fn add_image_to(&self, data: &Path, name: &str, disk: &[u8]) -> Sha256 {
        add_image(data, name, disk)
    }

    /// The same from a file.
    pub(crate) fn add_image_file(&self, name: &str, path: &Path) -> Sha256 {
        add_image(&self.path("data"), name, std::fs::File::open(path).unwrap())
    }

    /// The UUID of the only VM.
    pub(crate) fn uuid(&self) -> String {
        let shown = self.done(&["ps", "-o", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        shown[0]["uuid"].as_str().unwrap().to_owned()
    }

    /// The UUID of a VM.
    pub(crate) fn uuid_of(&self, name: &str) -> String {
        let shown = self.done(&["ps", "-o", "json"]);
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let vms = shown.as_array().unwrap();
        let vm = vms.iter().find(|vm| vm["name"] == name).unwrap();
        vm["uuid"].as_str().unwrap().to_owned()
    }

    /// Ends a VM as somebody with virsh would.
    pub(crate) fn destroy(&self, name: &str) {
        self.virsh(&["destroy", &self.uuid_of(name)]).unwrap();
    }

    /// The same, if it has not ended by itself.
    pub(crate) fn destroy_if_runs(&self, name: &str) {
        self.virsh(&["destroy", &self.uuid_of(name)]);
    }

    /// Waits for a text in a VM's log.
    pub(crate) fn until_it_says(&self, name: &str, text: &str) {
        let begun = std::time::Instant::now();
        loop {
            let output = self.node(&["logs", name]);
            if String::from_utf8_lossy(&output.stdout).contains(text) {
                return;
            }
            assert!(
                begun.elapsed().as_secs() < 180,
                "{name} does not say {text}"
            );
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Waits for a VM to be in a state.
    pub(crate) fn until_it_is(&self, name: &str, state: &str) {
        let begun = std::time::Instant::now();
        loop {
            let shown = self.done(&["ps", "-o", "json"]);
            let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
            let mut vms = shown.as_array().unwrap().iter();
            if vms.any(|vm| vm["name"] == name && vm["state"] == state) {
                return;
            }
            assert!(begun.elapsed().as_secs() < 180, "{name} is not {state}");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }

    /// Types a key on a VM's console, and leaves.
    pub(crate) fn press_a_key(&self, name: &str) {
        let mut console = self
            .command(&["console", name])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::io::Write::write_all(console.stdin.as_mut().unwrap(), b"k").unwrap();
        console.wait().unwrap();
    }

    /// What virsh prints; it must succeed.
    pub(crate) fn virsh_done(&self, arguments: &[&str]) -> String {
        let output = self.virsh_output(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn virsh_output(&self, arguments: &[&str]) -> Output {
        Command::new("virsh")
            .args(["-q", "-c", &self.libvirt])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// What virsh prints, if it succeeds.
    pub(crate) fn virsh(&self, arguments: &[&str]) -> Option<String> {
        let output = self.virsh_output(arguments);
        output
            .status
            .success()
            .then(|| String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Waits until somebody waits for a lock that is held.
pub(crate) fn until_waited_for(held: &std::fs::File) {
    let inode = format!(":{} ", held.metadata().unwrap().ino());
    let begun = std::time::Instant::now();
    loop {
        // 1: -> FLOCK  ADVISORY  WRITE 4711 fe:00:12345 0 EOF
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let mut waiting = locks.lines().filter(|line| line.contains("-> FLOCK"));
        if waiting.any(|line| line.contains(&inode)) {
            return;
        }
        assert!(begun.elapsed().as_secs() < 180, "nobody waits for the lock");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn add_image(data: &Path, name: &str, stream: impl Read + Send) -> Sha256 {
    let store = disklet::store::Store::of(data.to_str().unwrap());
    let incoming = disklet::store::Incoming {
        name,
        stream,
        digest: None,
        most: disklet_core::units::ByteSize::from_bytes(1 << 30),
    };
    let added = store.add(incoming, &disklet_block::convert::Unwatched);
    added.unwrap().fact.digest
}
