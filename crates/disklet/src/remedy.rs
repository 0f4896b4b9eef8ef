//! What a user can do about what the system refuses.

use std::io;
use std::path::Path;

/// What can be done about an error of the system on a path, where that is the
/// same whoever meets it.
#[must_use]
pub fn remedy_for(_path: &Path, error: &io::Error) -> Option<String> {
    if is_full(error) {
        return Some(MAKE_ROOM.to_owned());
    }
    None
}

/// Whether the system said that there is no room, in one of its ways.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

const MAKE_ROOM: &str = "make room there: disklet images gc removes images that nobody needs, \
     disklet gc what interrupted commands have left; or have dataDir, or the pool, where there is more";
