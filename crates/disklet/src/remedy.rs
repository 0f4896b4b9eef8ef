//! What a user can do about what the system refuses.

use std::io;
use std::path::Path;

/// What can be done about an error of the system on a path, where that is the
/// same whoever meets it.
#[must_use]
pub fn remedy_for(path: &Path, error: &io::Error) -> Option<String> {
    let remedy = match error.kind() {
        io::ErrorKind::PermissionDenied => denied(path)?,
        io::ErrorKind::ReadOnlyFilesystem => ELSEWHERE,
        io::ErrorKind::FileTooLarge => TOO_LARGE,
        _ if is_full(error) => MAKE_ROOM,
        _ => return None,
    };
    Some(remedy.to_owned())
}

/// Root is denied what nobody here can give, such as on a server's directory.
fn denied(path: &Path) -> Option<&'static str> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let is_file = path.metadata().is_ok_and(|meta| !meta.is_dir());
    Some(if is_file { AS_OWNER } else { OWN_DIRECTORIES })
}

/// Whether the system said that there is no room, in one of its ways.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

const AS_OWNER: &str = "run this as root, or have the owner of that file let you use it";
const OWN_DIRECTORIES: &str = "run this as root, or have directories of your own: \
     dataDir, runDir and pools of a configuration (--config FILE)";
const ELSEWHERE: &str =
    "have dataDir, runDir and the pools of the configuration where it can be written";
const TOO_LARGE: &str = "no file can be that large there: make it smaller, or have it on another \
     filesystem; ulimit -f shows whether this user may write no more";
const MAKE_ROOM: &str = "make room there: disklet images gc removes images that nobody needs, \
     disklet gc what interrupted commands have left; or have dataDir, or the pool, where there is more";

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    /// Room that is made does not help what no filesystem could hold.
    #[test]
    fn a_full_disk_and_a_file_that_is_too_large_are_told_apart() {
        let remedy = |errno: Errno| remedy_for(Path::new("/x"), &errno.into()).unwrap();
        assert!(remedy(Errno::NOSPC).contains("make room"));
        let too_large = remedy(Errno::FBIG);
        assert!(too_large.contains("make it smaller"), "{too_large}");
        assert!(!too_large.contains("make room"), "{too_large}");
    }
}
