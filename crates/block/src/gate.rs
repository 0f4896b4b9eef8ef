//! Which files an image may lead to.
//!
//! An image can name others: a backing file, a data file. Whoever opens one
//! must say through a gate what becomes of such names. There is no gate that
//! opens everything, and no default.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, readlinkat};
use rustix::io::Errno;

use crate::device::{Caching, FileDevice};
use crate::error::{Error, ErrorKind, Result};

/// What a file would be to the image that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What the image was laid over.
    Backing,
    /// Where the image keeps its data.
    Data,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Backing => "backing file",
            Self::Data => "data file",
        }
    }
}

/// Decides on files that images name.
pub trait Gate {
    /// Opens the file that an image names, or refuses. A relative name is
    /// meant from the directory of the image.
    fn open(&self, name: &str, role: Role, image: &FileDevice) -> Result<FileDevice>;
}

/// Opens nothing: for images from outside.
#[derive(Debug, Clone, Copy)]
pub struct NoImplicitFiles;

impl Gate for NoImplicitFiles {
    fn open(&self, name: &str, role: Role, _image: &FileDevice) -> Result<FileDevice> {
        Err(from_outside(name, role))
    }
}

/// What becomes of a name in an image from outside.
pub(crate) fn from_outside(name: &str, role: Role) -> Error {
    forbidden(name, role, "an image from outside may not name other files")
}

/// Opens files below given directories only, and through no link that leads
/// out of them. A file may be a link from one of them into another.
#[derive(Debug, Clone)]
pub struct BelowDirectories {
    directories: Vec<PathBuf>,
    caching: Caching,
}

impl BelowDirectories {
    /// A gate for our own volume directories and image store.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>, caching: Caching) -> Self {
        Self {
            directories: directories.into_iter().collect(),
            caching,
        }
    }
}

impl Gate for BelowDirectories {
    fn open(&self, name: &str, role: Role, image: &FileDevice) -> Result<FileDevice> {
        let path = absolute(name, image).map_err(|why| forbidden(name, role, why))?;
        let outside = || forbidden(name, role, "it is outside the directories of this image");
        let (directory, below) = self.place_of(&path).ok_or_else(outside)?;
        let file = match open_below(directory, below) {
            Err(Errno::XDEV) => self.open_linked(directory, below),
            opened => opened,
        };
        let name = path.display().to_string();
        let file = file.map_err(|error| {
            let what = format!("the {} cannot be opened", role.name());
            Error::io(what, error.into()).of(name.escape_debug().to_string())
        })?;
        Ok(FileDevice::new(file.into(), name, self.caching)?.opened_at(&path))
    }
}

impl BelowDirectories {
    /// In which of the directories a path is, and where there.
    fn place_of<'p>(&self, path: &'p Path) -> Option<(&Path, &'p Path)> {
        self.directories
            .iter()
            .find_map(|directory| Some((directory.as_path(), path.strip_prefix(directory).ok()?)))
    }

    /// As a user's store has links to disks of the system's.
    fn open_linked(&self, directory: &Path, below: &Path) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let link = open_beneath(directory, below, flags)?;
        // What is no link has one among the directories above it.
        let target = readlinkat(link, "", Vec::new()).map_err(|_| Errno::XDEV)?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        let (directory, below) = self.place_of(target).ok_or(Errno::XDEV)?;
        open_below(directory, below)
    }
}

fn open_below(directory: &Path, below: &Path) -> rustix::io::Result<OwnedFd> {
    open_beneath(directory, below, OFlags::RDONLY | OFlags::NONBLOCK)
}

fn open_beneath(directory: &Path, below: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let to_enter = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let root = rustix::fs::open(directory, to_enter, Mode::empty())?;
    rustix::fs::openat2(
        root,
        below,
        flags | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
    )
}

/// The path that an image means. Nothing of it is looked up but the directory
/// of the image itself.
fn absolute(name: &str, image: &FileDevice) -> std::result::Result<PathBuf, &'static str> {
    let path = Path::new(name);
    if path.is_absolute() {
        let plain = path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        return plain
            .then(|| path.to_owned())
            .ok_or("an absolute path may not have \"..\"");
    }
    // To QEMU it is not a path then, but nbd:, json: and the like.
    let is_protocol = name
        .find([':', '/'])
        .is_some_and(|at| name[at..].starts_with(':'));
    if name.is_empty() || is_protocol {
        return Err("it is not the path of a file");
    }
    let mut directory =
        directory_of(image).ok_or("it is relative, and the directory of the image is not known")?;
    let mut parts = path.components().peekable();
    // Going up from a directory without links is what the kernel would do, too.
    while let Some(Component::CurDir | Component::ParentDir) = parts.peek() {
        if parts.next() == Some(Component::ParentDir) {
            directory.pop();
        }
    }
    for part in parts {
        match part {
            Component::Normal(part) => directory.push(part),
            _ => return Err("a relative path may have \"..\" at its beginning only"),
        }
    }
    Ok(directory)
}

/// Where an image is by the path that it was opened with, as QEMU has it: if
/// that is a link, where the link is, not what it leads to.
fn directory_of(image: &FileDevice) -> Option<PathBuf> {
    let parent = image.path()?.parent()?;
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    parent.canonicalize().ok()
}

fn forbidden(name: &str, role: Role, why: &str) -> Error {
    // The name comes from the image: it is shown, but not with control
    // characters.
    let shown: String = name
        .chars()
        .take(200)
        .flat_map(char::escape_debug)
        .collect();
    Error::new(
        ErrorKind::Forbidden,
        format!("the image names the {} \"{shown}\": {why}", role.name()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn scratch(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("disklet-gate-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// An image that names others.
    fn image(directory: &Path) -> FileDevice {
        let path = directory.join("image");
        fs::write(&path, b"").unwrap();
        FileDevice::open(&path, Caching::Buffered).unwrap()
    }

    #[test]
    fn nothing_opens_for_images_from_outside() {
        let directory = scratch("nothing");
        let refused = NoImplicitFiles
            .open("/etc/passwd", Role::Backing, &image(&directory))
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Forbidden);
        assert!(refused.to_string().contains("/etc/passwd"));
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn files_open_below_their_directories_only() {
        let directory = scratch("below");
        fs::write(directory.join("base"), b"x").unwrap();
        symlink("base", directory.join("inside")).unwrap();
        symlink("/etc/passwd", directory.join("outside")).unwrap();
        let gate = BelowDirectories::new([directory.clone()], Caching::Buffered);
        let image = image(&directory);
        let name = |file: &str| directory.join(file).display().to_string();
        for good in [&name("base"), &name("inside"), "base", "./inside"] {
            gate.open(good, Role::Backing, &image).unwrap();
        }
        for bad in [
            &name("outside"),
            &name("../x"),
            "outside",
            "absent",
            "../../../../../etc/passwd",
            "/etc/passwd",
        ] {
            gate.open(bad, Role::Data, &image).unwrap_err();
        }
        for bad in ["", "nbd://x", "json:{}", "file:base", "x/../base"] {
            let refused = gate.open(bad, Role::Data, &image).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Forbidden, "{bad}: {refused}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn links_lead_from_one_directory_to_another_and_no_further() {
        let directory = scratch("links");
        let [own, system] = ["own", "system"].map(|name| directory.join(name));
        for place in [&own, &system] {
            fs::create_dir(place).unwrap();
        }
        fs::write(system.join("disk"), b"x").unwrap();
        fs::write(directory.join("secret"), b"x").unwrap();
        symlink(system.join("disk"), own.join("disk")).unwrap();
        symlink(system.join("../secret"), own.join("climbs")).unwrap();
        symlink(directory.join("secret"), system.join("leads-out")).unwrap();
        symlink(system.join("leads-out"), own.join("twice")).unwrap();
        symlink(&system, own.join("whole")).unwrap();
        let image = image(&directory);
        let open = |directories: Vec<PathBuf>, name: &str| {
            let gate = BelowDirectories::new(directories, Caching::Buffered);
            let path = own.join(name).display().to_string();
            gate.open(&path, Role::Backing, &image)
        };
        let both = || vec![own.clone(), system.clone()];
        let disk = open(both(), "disk").unwrap();
        assert_eq!(disk.path(), Some(&*own.join("disk")));
        for bad in ["climbs", "twice", "whole/disk"] {
            open(both(), bad).unwrap_err();
        }
        open(vec![own.clone()], "disk").unwrap_err();
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn relative_names_are_meant_from_where_the_image_was_opened() {
        let directory = scratch("relative");
        let (one, other) = (directory.join("one"), directory.join("other"));
        for place in [&one, &other] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("base"), b"x").unwrap();
        }
        fs::write(one.join("image"), b"").unwrap();
        symlink(one.join("image"), other.join("image")).unwrap();
        let gate = BelowDirectories::new([other.clone()], Caching::Buffered);
        let opened = |path: PathBuf| FileDevice::open(&path, Caching::Buffered).unwrap();
        let through_link = opened(other.join("image"));
        let base = gate.open("base", Role::Backing, &through_link).unwrap();
        assert_eq!(base.path(), Some(&*other.join("base")));
        let itself = opened(one.join("image"));
        gate.open("base", Role::Backing, &itself).unwrap_err();
        gate.open("../other/base", Role::Backing, &itself).unwrap();
        let nowhere = fs::File::open(one.join("image")).unwrap();
        let nowhere = FileDevice::new(nowhere, "image", Caching::Buffered).unwrap();
        gate.open("base", Role::Backing, &nowhere).unwrap_err();
        fs::remove_dir_all(directory).unwrap();
    }
}
