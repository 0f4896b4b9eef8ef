//! Images for cloud-init, read by others: Linux, genisoimage's `isoinfo`,
//! `blkid` and cloud-init.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use disklet_block::iso9660::{IsoFile, IsoImage};
use sha2::{Digest, Sha256};
use support::guest::Guest;

/// Debian's own, which has cloud-init's modules.
const PYTHON: &str = "/usr/bin/python3";

fn file(path: &str, bytes: impl Into<Vec<u8>>) -> IsoFile {
    IsoFile {
        path: path.to_owned(),
        bytes: bytes.into(),
        mode: 0o444,
    }
}

fn no_cloud() -> IsoImage {
    IsoImage {
        label: "cidata".to_owned(),
        files: vec![
            file("user-data", "#cloud-config\nhostname: a\n"),
            file("meta-data", "instance-id: i-1\n"),
            file("network-config", "version: 2\n"),
        ],
    }
}

fn config_drive() -> IsoImage {
    IsoImage {
        label: "config-2".to_owned(),
        files: vec![
            file("openstack/latest/meta_data.json", r#"{"uuid": "i-1"}"#),
            file("openstack/latest/user_data", "#cloud-config\n"),
            file("openstack/latest/network_data.json", "{}"),
            file("openstack/content/0000", "content"),
        ],
    }
}

/// Large, empty, long, deep, numerous, and alike in plain names.
fn odd() -> IsoImage {
    let large: Vec<u8> = (0..24_u32 << 18).flat_map(u32::to_le_bytes).collect();
    let mut files = vec![
        file("user-data", large),
        file("meta-data", ""),
        file("a/b/c/d/e/f/g/deep", "deep"),
        file(&format!("long/{}", "n".repeat(64)), "long"),
        file("alike-1", "dash"),
        file("alike+1", "plus"),
        IsoFile {
            mode: 0o555,
            ..file("bin/start.sh", "#!/bin/sh\n")
        },
        IsoFile {
            mode: 0o600,
            ..file("bin/.hidden", "hidden")
        },
    ];
    files.extend((0..100).map(|number| file(&format!("many/{number}"), number.to_string())));
    IsoImage {
        label: "cidata".to_owned(),
        files,
    }
}

/// A directory with the image in it, which goes away in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn with(name: &str, image: &IsoImage) -> Self {
        let name = format!("disklet-{name}-{}", std::process::id());
        let scratch = Self(std::env::temp_dir().join(name));
        fs::create_dir(&scratch.0).unwrap();
        fs::write(scratch.image(), image.to_bytes().unwrap()).unwrap();
        scratch
    }

    fn image(&self) -> PathBuf {
        self.0.join("image.iso")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A loop device, detached in the end.
struct Loop(String);

impl Loop {
    fn over(image: &Path) -> Self {
        let image = image.to_str().unwrap();
        Self(
            run("losetup", &["--find", "--show", "--read-only", image])
                .trim()
                .to_owned(),
        )
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

fn run(program: &str, args: &[&str]) -> String {
    String::from_utf8(run_for_bytes(program, args)).unwrap()
}

fn run_for_bytes(program: &str, args: &[&str]) -> Vec<u8> {
    let done = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
    let complaints = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {complaints}");
    done.stdout
}

/// What Linux says of a file: permissions, owner, group, links and time; and
/// the digest of its content.
type Seen = BTreeMap<String, (String, String)>;

fn seen_by_linux(console: &str, device: &str, options: &str) -> Seen {
    let mark = format!("FOUND {device} {options} ");
    let lines = console.lines().filter_map(|line| line.strip_prefix(&mark));
    lines
        .map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            let mut word = || words.next().unwrap();
            (word(), (word(), word()))
        })
        .collect()
}

fn expected(image: &IsoImage) -> Seen {
    let mut seen = Seen::new();
    for file in &image.files {
        let digest = Sha256::digest(&file.bytes);
        let digest = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let status = format!("{:o}:0:0:1:315532800", file.mode);
        seen.insert(file.path.clone(), (status, digest));
        for (slash, _) in file.path.match_indices('/') {
            let path = &file.path[..slash];
            let below = image.files.iter().filter_map(|file| {
                let (name, _) = file
                    .path
                    .strip_prefix(path)?
                    .strip_prefix('/')?
                    .split_once('/')?;
                Some(name)
            });
            let links = 2 + below.collect::<std::collections::BTreeSet<_>>().len();
            let status = format!("555:0:0:{links}:315532800");
            seen.insert(path.to_owned(), (status, "directory".to_owned()));
        }
    }
    seen
}

/// Without what Rock Ridge alone can say.
fn contents(seen: &Seen) -> BTreeMap<&str, &str> {
    let contents = seen.iter();
    contents
        .map(|(path, (_, content))| (&**path, &**content))
        .collect()
}

/// What a guest prints with the image as its CD-ROM and as its disk.
fn console(scratch: &Scratch) -> String {
    let image = scratch.image();
    let file = format!("format=raw,readonly=on,file={}", image.display());
    let devices = [
        "-device",
        "virtio-scsi-pci",
        "-drive",
        &format!("if=none,id=cdrom,media=cdrom,{file}"),
        "-device",
        "scsi-cd,drive=cdrom",
        "-drive",
        &format!("if=none,id=disk,{file}"),
        "-device",
        "virtio-blk-pci,drive=disk",
    ];
    let guest = Guest {
        script: include_str!("real_iso/init.sh").to_owned(),
        files: Vec::new(),
        devices: devices.map(str::to_owned).to_vec(),
    };
    guest.console(&scratch.0)
}

#[test]
#[ignore = "needs QEMU and a kernel: script/test"]
fn linux_mounts_it_by_every_name() {
    let image = odd();
    let scratch = Scratch::with("mount", &image);
    let console = console(&scratch);
    let expected = expected(&image);
    for device in ["sr0", "vda"] {
        let seen = |options| seen_by_linux(&console, device, options);
        assert_eq!(seen("ro"), expected, "{console}");
        assert_eq!(contents(&seen("ro,norock")), contents(&expected));
        let plain = seen("ro,norock,nojoliet");
        let plain = contents(&plain);
        let expected = contents(&expected);
        let mut digests: Vec<_> = plain.values().collect();
        let mut expected_digests: Vec<_> = expected.values().collect();
        digests.sort();
        expected_digests.sort();
        assert_eq!(digests, expected_digests);
        for (path, same) in [
            ("user_data", "user-data"),
            ("alike_1", "alike+1"),
            ("alike_1_0", "alike-1"),
            ("bin/start.sh", "bin/start.sh"),
            ("bin/_hidden", "bin/.hidden"),
            ("many/99", "many/99"),
        ] {
            assert_eq!(plain.get(path), expected.get(same), "{path}");
        }
    }
}

#[test]
#[ignore = "needs genisoimage: script/test"]
fn isoinfo_reads_every_name() {
    for (number, image) in [no_cloud(), config_drive(), odd()].iter().enumerate() {
        let scratch = Scratch::with(&format!("isoinfo-{number}"), image);
        let iso = scratch.image();
        let iso = iso.to_str().unwrap();
        let about = run("isoinfo", &["-d", "-i", iso]);
        assert!(about.contains(&format!("Volume id: {}\n", image.label)));
        assert!(about.contains("Joliet with UCS level 3 found"));
        assert!(about.contains("Rock Ridge signatures version 1 found"));
        for names in ["-R", "-J"] {
            let listed = run("isoinfo", &[names, "-f", "-i", iso]);
            let mut listed: Vec<_> = listed.lines().collect();
            listed.sort_unstable();
            let expected = expected(image);
            let expected: Vec<_> = expected.keys().map(|path| format!("/{path}")).collect();
            assert_eq!(listed, expected);
            for file in &image.files {
                let path = format!("/{}", file.path);
                let bytes = run_for_bytes("isoinfo", &[names, "-x", &path, "-i", iso]);
                assert!(bytes == file.bytes, "{names} {path}");
            }
        }
    }
}

#[test]
#[ignore = "needs root: script/test"]
fn blkid_knows_the_label() {
    for image in [no_cloud(), config_drive()] {
        let scratch = Scratch::with(&format!("blkid-{}", image.label), &image);
        let device = Loop::over(&scratch.image());
        let about = run("blkid", &["--probe", "--output", "export", &device.0]);
        let about: Vec<_> = about.lines().collect();
        assert!(about.contains(&&*format!("LABEL={}", image.label)));
        assert!(about.contains(&"TYPE=iso9660"));
        assert!(!about.iter().any(|line| line.starts_with("UUID=")));
    }
}

/// Both data sources find their volume among the machine's devices, and read
/// what is in it.
#[test]
#[ignore = "needs root, genisoimage and cloud-init: script/test"]
fn cloud_init_finds_and_reads_it() {
    let sources = [
        ("NoCloud", no_cloud(), "hostname: a"),
        ("ConfigDrive", config_drive(), "#cloud-config"),
    ];
    for (source, image, user_data) in sources {
        let scratch = Scratch::with(source, &image);
        let device = Loop::over(&scratch.image());
        let unpacked = unpack(&scratch, &image);
        let script = include_str!("real_iso/cloud_init.py");
        let read = run(
            PYTHON,
            &["-c", script, source, &device.0, unpacked.to_str().unwrap()],
        );
        assert!(read.contains("instance i-1"), "{read}");
        assert!(read.contains(user_data), "{read}");
    }
}

fn unpack(scratch: &Scratch, image: &IsoImage) -> PathBuf {
    let iso = scratch.image();
    let unpacked = scratch.0.join("unpacked");
    for file in &image.files {
        let path = format!("/{}", file.path);
        let bytes = run_for_bytes("isoinfo", &["-R", "-x", &path, "-i", iso.to_str().unwrap()]);
        let target = unpacked.join(&file.path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, bytes).unwrap();
    }
    unpacked
}
