//! Who may enter what of the store.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::FlockOperation;

use crate::scratch::{Outcome, Scratch, digest, noise};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn locks_and_what_is_coming_are_their_owners_alone() {
    let scratch = Scratch::new("rights");
    scratch.write("disk.raw", noise(1, 1 << 20));
    let mut pull = scratch.after("umask 0", &["pull", "one", "--from", "disk.raw"]);
    assert_eq!(Outcome::of(pull.output().unwrap()).code, Some(0));
    for directory in ["locks", "pulling"] {
        let path = scratch.path("data/images").join(directory);
        assert_eq!(mode(&path), 0o700, "{directory}");
    }
}

/// Earlier versions left their locks where everybody could hold them.
#[test]
fn locks_of_earlier_versions_hold_nobody_up() {
    let scratch = Scratch::new("rights-earlier");
    scratch.write("disk.raw", noise(1, 1 << 20));
    let hash = digest(b"one");
    let old = ["lock".to_owned(), format!("pulling/{hash}.lock")];
    let held = old.map(|name| {
        let path = scratch.write(&format!("data/images/{name}"), b"");
        let lock = File::open(path).unwrap();
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).unwrap();
        lock
    });
    for directory in ["locks", "pulling"] {
        let path = scratch.path("data/images").join(directory);
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    }
    for args in [
        &["pull", "one", "--from", "disk.raw"][..],
        &["rm", "one"],
        &["gc"],
    ] {
        let outcome = scratch.in_time(args);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }
    drop(held);
    for directory in ["locks", "pulling"] {
        let path = scratch.path("data/images").join(directory);
        assert_eq!(mode(&path), 0o700, "{directory}");
    }
    assert_eq!(scratch.files(), ["lock"]);
}
