//! Paths of the machine, which a container sees below another directory.

use std::fs::File;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The machine's root directory, as far as we see it.
#[derive(Debug, Clone, Copy)]
pub struct Host<'h>(pub &'h str);

impl Host<'_> {
    /// Our own root is the machine's.
    pub const OURS: Self = Self("/");

    /// Opens a path of the machine. Links are followed as they are there.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open(self, path: &Path, flags: OFlags) -> Result<File, Errno> {
        if self.0 == Self::OURS.0 {
            return rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty()).map(File::from);
        }
        let root = self.directory(Path::new(self.0))?;
        let flags = flags | OFlags::CLOEXEC;
        let within = ResolveFlags::IN_ROOT;
        rustix::fs::openat2(&root, path, flags, Mode::empty(), within).map(File::from)
    }

    fn directory(self, path: &Path) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
    }
}
