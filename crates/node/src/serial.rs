//! What guests write to their serial ports, as virtlogd keeps it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::inotify;
use uuid::Uuid;

use crate::interrupt;

/// A VM's log. virtlogd renames it when it is full and begins a new one.
#[derive(Debug, Clone)]
pub(crate) struct SerialLog {
    directory: PathBuf,
}

impl SerialLog {
    pub(crate) fn of(data_dir: &str, uuid: Uuid) -> Self {
        Self {
            directory: Path::new(data_dir).join("vms").join(uuid.to_string()),
        }
    }

    fn current(&self) -> PathBuf {
        self.directory.join("serial.log")
    }

    /// The parts that are full, oldest first.
    fn older(&self) -> Vec<PathBuf> {
        let older = (0..100_u32)
            .map(|number| self.directory.join(format!("serial.log.{number}")))
            .take_while(|path| path.exists());
        let mut parts: Vec<_> = older.collect();
        parts.reverse();
        parts
    }

    /// Hands over all that was written so far, until `take` has enough.
    pub(crate) fn read(&self, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        let current = [self.current()];
        for part in self.older().iter().chain(&current) {
            if !hand_over(part, &mut take)? {
                break;
            }
        }
        Ok(())
    }

    /// The current part, at its end; nothing if none is begun.
    pub(crate) fn at_end(&self) -> Option<File> {
        let mut file = File::open(self.current()).ok()?;
        file.seek(SeekFrom::End(0)).ok()?;
        Some(file)
    }

    /// The same, and all that is written from now on, until the VM has ended or
    /// is removed, or nobody reads from `out` any more.
    pub(crate) fn follow(
        &self,
        out: BorrowedFd<'_>,
        mut take: impl FnMut(&[u8]) -> bool,
        has_ended: impl FnMut() -> bool,
    ) -> io::Result<()> {
        for part in self.older() {
            if !hand_over(&part, &mut take)? {
                return Ok(());
            }
        }
        self.follow_from(None, Some(out), take, has_ended)
    }

    fn follow_from(
        &self,
        mut open: Option<File>,
        out: Option<BorrowedFd<'_>>,
        mut take: impl FnMut(&[u8]) -> bool,
        mut has_ended: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let watch = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
        inotify::add_watch(
            &watch,
            &self.directory,
            inotify::WatchFlags::MODIFY
                | inotify::WatchFlags::CREATE
                | inotify::WatchFlags::MOVED_TO
                | inotify::WatchFlags::DELETE_SELF,
        )?;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let is_over = has_ended();
            loop {
                let length = match &mut open {
                    Some(file) => file.read(&mut buffer)?,
                    None => 0,
                };
                if length > 0 {
                    if !take(&buffer[..length]) {
                        return Ok(());
                    }
                } else if !self.next_part(&mut open) {
                    break;
                }
            }
            let patience = if is_over { LINGERING } else { SECOND };
            let happened = wait(&watch, out, &mut buffer, &patience)?;
            let is_enough = match happened {
                Happened::Something => false,
                Happened::Nothing => is_over,
                Happened::ReaderGone => true,
            };
            if interrupt::asked() || is_enough || !self.directory.exists() {
                return Ok(());
            }
        }
    }

    /// Goes on to a part that was begun since.
    fn next_part(&self, open: &mut Option<File>) -> bool {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let Ok(current) = File::open(self.current()) else {
            return false;
        };
        let ours = open.as_ref().and_then(|file| file.metadata().ok());
        let theirs = current.metadata().ok().map(identity);
        if ours.map(identity) == theirs {
            return false;
        }
        *open = Some(current);
        true
    }
}

/// How often whoever follows looks up: whether somebody has asked to stop, and
/// whether the VM has ended.
const SECOND: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// How long virtlogd takes at most to write what a VM said last.
const LINGERING: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 300_000_000,
};

/// Hands over a part; whether more is wanted. One that is not there yet has
/// nothing in it.
fn hand_over(part: &Path, take: &mut impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
    let mut file = match File::open(part) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        opened => opened?,
    };
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(true),
            length if take(&buffer[..length]) => {}
            _ => return Ok(false),
        }
    }
}

/// What whoever waits has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happened {
    Nothing,
    Something,
    ReaderGone,
}

/// Waits until something happens in the directory, or whoever reads has gone.
fn wait(
    watch: &OwnedFd,
    out: Option<BorrowedFd<'_>>,
    buffer: &mut [u8],
    patience: &Timespec,
) -> io::Result<Happened> {
    let mut wanted = vec![PollFd::new(watch, PollFlags::IN)];
    // Errors are told without being asked for, and nothing else is wanted.
    wanted.extend(out.map(|out| PollFd::from_borrowed_fd(out, PollFlags::empty())));
    match poll(&mut wanted, Some(patience)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Happened::Nothing),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    if wanted[1..].iter().any(|out| !out.revents().is_empty()) {
        return Ok(Happened::ReaderGone);
    }
    while rustix::io::read(watch, &mut *buffer).is_ok_and(|length| length > 0) {}
    Ok(Happened::Something)
}

/// Calls when the guest says that it is ready; what its log has before `from`
/// does not count.
pub(crate) fn when_ready(log: SerialLog, from: Option<File>, then: impl FnOnce() + Send + 'static) {
    std::thread::spawn(move || {
        let mut signs = Signs::default();
        let mut seen = false;
        let look = |bytes: &[u8]| {
            seen = signs.take(bytes);
            !seen
        };
        let _ = log.follow_from(from, None, look, || false);
        if seen {
            then();
        }
    });
}

/// Looks for the words by which a guest says that it is ready: cloud-init is
/// done, or there is a login and nothing of cloud-init before it. A guest with
/// cloud-init has its login long before its files and commands.
#[derive(Debug, Default)]
struct Signs {
    line: Vec<u8>,
    has_cloud_init: bool,
}

impl Signs {
    fn take(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            match byte {
                b'\n' | b'\r' => self.line.clear(),
                // A line without an end shall not fill the memory.
                _ if self.line.len() >= 4096 => self.line.clear(),
                _ => self.line.push(*byte),
            }
            if self.is_sign() {
                return true;
            }
        }
        false
    }

    fn is_sign(&mut self) -> bool {
        let line = &self.line;
        let has = |part: &[u8]| line.windows(part.len()).any(|window| window == part);
        if line.ends_with(b" running '") && has(b"Cloud-init v. ") {
            self.has_cloud_init = true;
        }
        // A host name, and nothing else before it.
        let prompt = line.strip_suffix(b" login: ");
        let is_login = prompt.is_some_and(|name| !name.is_empty() && !name.contains(&b' '));
        // Its last words are the user's to choose; systemd's are not.
        is_login && !self.has_cloud_init
            || line.ends_with(b" finished at ") && has(b"Cloud-init")
            || line.ends_with(b"loud-init") && has(b"Reached target ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(text: &str) -> bool {
        let mut signs = Signs::default();
        // In pieces, as they come.
        text.as_bytes().chunks(3).any(|piece| signs.take(piece))
    }

    #[test]
    fn guests_say_that_they_are_ready_in_two_ways() {
        assert!(is_ready("Debian GNU/Linux 12 web ttyS0\r\n\r\nweb login: "));
        assert!(is_ready(
            "[   61.2] cloud-init[210]: Cloud-init v. 22.4.2 finished at Mon"
        ));
        assert!(!is_ready(
            "Cloud-init v. 22.4.2 running 'modules:final'\r\nfinished at last"
        ));
        assert!(!is_ready("no one can login: here\r\n"));
    }

    #[test]
    fn a_guest_with_cloud_init_is_not_ready_at_its_login() {
        let login = "[   28.6] cloud-init[189]: Cloud-init v. 22.4.2 running 'init-local' at\r\n\r\nweb login: ";
        assert!(!is_ready(login));
        let finished = "\r\n[   61.2] cloud-init[210]: Cloud-init v. 22.4.2 finished at Mon";
        assert!(is_ready(&format!("{login}{finished}")));
        let config = "\r\n[  OK  ] Reached target \x1b[0;1;39mcloud-config.target\x1b[0m - Cloud-config availability.";
        assert!(!is_ready(&format!("{login}{config}")));
        let target =
            "\r\n[  OK  ] Reached target \x1b[0;1;39mcloud-init.target\x1b[0m - Cloud-init target.";
        assert!(is_ready(&format!("{login}{target}")));
    }
}
