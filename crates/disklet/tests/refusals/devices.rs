//! Devices and links of the machine that the tests run on. Nothing here needs
//! root: paths are only asked what they are.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};

use super::program::{Outcome, POD, Scratch, plan};

fn plan_raw(path: &Path, globs: &str) -> Outcome {
    let text = format!(
        "{POD}  volumes:\n  - name: raw\n    flexVolume:\n      driver: virtlet/flexvolume_driver\n      \
         options: {{type: raw, path: {}}}\n",
        path.display()
    );
    plan(&["--raw-devices", globs, "-f", "-"], text.as_bytes())
}

/// A plan with a claim whose volume is at a path of the node.
fn plan_claim(mode: &str, path: &Path) -> Outcome {
    let text = format!(
        "{POD}  volumes: [{{name: data, persistentVolumeClaim: {{claimName: data}}}}]\n\
         ---\nkind: PersistentVolumeClaim\nmetadata: {{name: data}}\n\
         spec: {{volumeMode: {mode}, resources: {{requests: {{storage: 1}}}}}}\n\
         ---\nkind: PersistentVolume\nmetadata: {{name: data}}\n\
         spec: {{volumeMode: {mode}, capacity: {{storage: 1}}, local: {{path: {}}}}}\n",
        path.display()
    );
    plan(&["-f", "-"], text.as_bytes())
}

/// Some block device of this machine, if it has one.
fn block_device(wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir("/dev")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.to_str().is_some_and(&wanted))
        .filter(|path| {
            fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
        })
        .collect();
    paths.sort();
    paths.into_iter().next()
}

/// A directory below /dev in which anybody may make links, if there is one.
struct Below(PathBuf);

impl Below {
    fn new(name: &str) -> Option<Self> {
        let path = PathBuf::from(format!("/dev/shm/disklet-{name}-{}", std::process::id()));
        fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) -> PathBuf {
        let link = self.0.join(name);
        symlink(target, &link).unwrap();
        link
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_no_block_device_is_refused_even_if_whitelisted() {
    for (path, what) in [
        (
            "/dev/null",
            "something that is neither a file nor a block device",
        ),
        ("/dev/fd", "a directory"),
    ] {
        plan_raw(Path::new(path), "*").assert_says(&format!("not a block device, but {what}"));
    }
    plan_raw(Path::new("/dev/disklet-absent"), "*").assert_says("does not exist");
}

#[test]
fn a_link_is_what_it_leads_to() {
    let Some(below) = Below::new("links") else {
        return;
    };
    let file = below.0.join("file");
    fs::write(&file, "x").unwrap();
    for (name, target, what) in [
        (
            "null",
            PathBuf::from("/dev/null"),
            "not a block device, but something",
        ),
        (
            "file",
            file.clone(),
            "not a block device, but a regular file",
        ),
        (
            "up",
            PathBuf::from("../../../etc/passwd"),
            "not a block device, but a regular file",
        ),
        (
            "directory",
            PathBuf::from("/etc"),
            "not a block device, but a directory",
        ),
        ("dangling", PathBuf::from("/absent"), "does not exist"),
        ("circle", PathBuf::from("circle"), "does not exist"),
    ] {
        let link = below.0.join(name);
        if !link.exists() {
            below.link(name, target);
        }
        plan_raw(&link, "shm/*/*").assert_says(what);
    }
}

#[test]
fn a_link_to_a_device_counts_as_that_device() {
    let Some(below) = Below::new("devices") else {
        return;
    };
    if let Some(device) = block_device(|path| path.starts_with("/dev/loop")) {
        let link = below.link("loop", &device);
        assert_eq!(plan_raw(&link, "loop*").code, Some(0));
        // Its number counts, not how its name looks.
        let named = below.link("loop0", &device);
        plan_raw(&named, "sd*").assert_says("not on this node's whitelist");
    }
    if let Some(device) = block_device(|path| !path.starts_with("/dev/loop")) {
        let link = below.link("loop1", &device);
        for path in [device, link] {
            plan_raw(&path, "loop*").assert_says("not on this node's whitelist");
        }
    }
}

#[test]
fn a_block_claim_must_lead_to_a_block_device() {
    let scratch = Scratch::new("claims");
    let file = scratch.file("file", "x");
    let link = |name: &str, target: &Path| {
        let link = scratch.path().join(name);
        symlink(target, &link).unwrap();
        link
    };
    for (path, what) in [
        (file.clone(), "a regular file"),
        (scratch.path().to_owned(), "a directory"),
        (
            link("null", Path::new("/dev/null")),
            "something that is neither",
        ),
        (link("link", &file), "a regular file"),
        (link("dangling", Path::new("/absent")), "nothing"),
        (link("circle", Path::new("circle")), "nothing"),
        (file.join("below"), "nothing"),
    ] {
        let outcome = plan_claim("Block", &path);
        outcome.assert_says("which is not a block device");
        outcome.assert_says(&format!("found: {what}"));
    }
}

#[test]
fn a_filesystem_claim_must_hold_a_disk_image() {
    let scratch = Scratch::new("images");
    plan_claim("Filesystem", scratch.path()).assert_says("put a raw disk image named disk.img");
    let image = scratch.path().join("disk.img");
    symlink("/dev/null", &image).unwrap();
    plan_claim("Filesystem", scratch.path()).assert_says("found: something that is neither");
    fs::remove_file(&image).unwrap();
    fs::create_dir(&image).unwrap();
    plan_claim("Filesystem", scratch.path()).assert_says("found: a directory");
}
