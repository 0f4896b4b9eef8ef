//! `ls`, `rm` and `gc`.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::scratch::{Outcome, Scratch, digest, noise, wait_until};

/// A store with images of these names; their digests.
fn store(scratch: &Scratch, names: &[&str]) -> Vec<String> {
    let one = |(number, name): (usize, &&str)| {
        let bytes = noise(number as u64 + 1, 1 << 20);
        scratch.write("disk.raw", &bytes);
        scratch.succeeds(&["pull", name, "--from", "disk.raw"]);
        digest(&bytes)
    };
    names.iter().enumerate().map(one).collect()
}

#[test]
fn images_are_listed_with_size_use_and_age() {
    let scratch = Scratch::new("ls");
    assert_eq!(
        scratch.succeeds(&["ls"]),
        "NAME  DIGEST  SIZE  ALLOCATED  AGE  IN USE\n"
    );
    let digests = store(&scratch, &["virtlet.cloud/one", "host.example/two.img"]);
    scratch.vm("web", &[&digests[0]]);
    let table = scratch.succeeds(&["ls"]);
    // Columns are two blanks apart.
    let is_cell = |cell: &&str| !cell.is_empty();
    let lines: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split("  ").map(str::trim).filter(is_cell).collect())
        .collect();
    assert_eq!(
        lines[1][..4],
        [
            "host.example/two.img",
            &digests[1][..12],
            "1.0 MiB",
            "1.0 MiB"
        ]
    );
    assert_eq!((lines[1][5], lines[2][0], lines[2][5]), ("-", "one", "1"));
    let wide = scratch.succeeds(&["ls", "-o", "wide"]);
    assert!(
        wide.contains(&digests[0]) && wide.contains("default/web"),
        "{wide}"
    );
    let listed = scratch.listed();
    assert_eq!(listed[1]["name"], "one");
    assert_eq!(listed[1]["digest"], format!("sha256:{}", digests[0]));
    assert_eq!(listed[1]["size"], 1 << 20);
    assert_eq!(listed[1]["inUseBy"][0], "default/web");
}

#[test]
fn images_in_use_are_not_removed_and_then_none_is() {
    let scratch = Scratch::new("rm-used");
    let digests = store(&scratch, &["one", "two"]);
    scratch.vm("web", &[&digests[1]]);
    let told = scratch.fails(&["rm", "one", "two"]);
    assert!(
        told.contains("image two is in use by default/web"),
        "{told}"
    );
    assert_eq!(scratch.listed().len(), 2);
    scratch.succeeds(&["gc"]);
    assert_eq!(scratch.listed().len(), 2);
    let told = scratch.fails(&["rm", "three"]);
    assert!(told.contains("image three is not in the store"), "{told}");
    fs::remove_dir_all(scratch.path("data/vms")).unwrap();
    let told = scratch.succeeds(&["rm", "one", "virtlet.cloud/two", "one"]);
    assert_eq!(told, "removed one (1.0 MiB)\nremoved two (1.0 MiB)\n");
    assert_eq!(scratch.files(), [] as [&str; 0]);
}

#[test]
fn a_disk_goes_with_the_last_of_its_names() {
    let scratch = Scratch::new("rm-names");
    let digests = store(&scratch, &["one"]);
    scratch.write("disk.raw", noise(1, 1 << 20));
    scratch.succeeds(&["pull", "other", "--from", "disk.raw"]);
    scratch.succeeds(&["rm", "one"]);
    assert!(scratch.stored(&digests[0]).exists());
    scratch.succeeds(&["rm", &format!("other@sha256:{}", digests[0])]);
    assert!(!scratch.stored(&digests[0]).exists());
}

/// A volume in a pool counts although no record names it.
#[test]
fn a_volume_over_an_image_keeps_it() {
    let scratch = Scratch::new("rm-volume");
    let digests = store(&scratch, &["one"]);
    let volumes = scratch.path("data/volumes");
    fs::create_dir_all(&volumes).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_disklet"))
        .args(["image", "create", "-f", "qcow2", "-F", "raw", "-b"])
        .arg(scratch.stored(&digests[0]))
        .arg(volumes.join("root"))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let told = scratch.fails(&["rm", "one"]);
    assert!(
        told.contains("in use by") && told.contains("volumes/root"),
        "{told}"
    );
    fs::remove_file(volumes.join("root")).unwrap();
    scratch.succeeds(&["rm", "one"]);
}

#[test]
fn what_is_not_known_to_be_unused_stays() {
    let scratch = Scratch::new("rm-unclear");
    store(&scratch, &["one"]);
    for (file, text) in [
        ("data/vms/x/record.json", &b"{"[..]),
        ("data/volumes/x", b"QFI\xfb and no header"),
    ] {
        let path = scratch.write(file, text);
        for args in [&["rm", "one"][..], &["gc"]] {
            let told = scratch.fails(args);
            assert!(told.contains(&path.display().to_string()), "{told}");
            assert!(told.contains("not known which images it uses"), "{told}");
        }
        let listed = scratch.images(&["ls"]);
        assert!(listed.stdout.contains("unknown"), "{listed:?}");
        fs::remove_file(path).unwrap();
    }
    assert_eq!(scratch.listed().len(), 1);
}

#[test]
fn gc_removes_what_nobody_needs_and_nothing_else() {
    let scratch = Scratch::new("gc");
    let digests = store(&scratch, &["one", "two", "three"]);
    // The names of two and three now stand for another disk each.
    for name in ["two", "three"] {
        scratch.write("disk.raw", noise(9, 1 << 20));
        scratch.succeeds(&["pull", name, "--from", "disk.raw"]);
    }
    scratch.vm("web", &[&digests[2]]);
    scratch.write("data/images/sha256/.x.17.partial", b"x");
    scratch.write("data/images/sha256/README", b"not ours");
    let before = scratch.files();
    let told = scratch.succeeds(&["gc", "--dry-run"]);
    assert!(
        told.contains(&format!("would remove the disk sha256:{}", digests[1])),
        "{told}"
    );
    assert!(told.ends_with("would free 1.0 MiB\n"), "{told}");
    assert_eq!(scratch.files(), before);
    let told = scratch.succeeds(&["gc"]);
    assert!(told.ends_with("freed 1.0 MiB\n"), "{told}");
    let gone: Vec<_> = before
        .iter()
        .filter(|file| !scratch.files().contains(file))
        .collect();
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert!(!scratch.stored(&digests[1]).exists() && scratch.stored(&digests[2]).exists());
    assert_eq!(scratch.succeeds(&["gc"]), "freed 0 B\n");
}

/// Between finding an image and writing the record, the lock is all there is.
#[test]
fn images_stay_while_somebody_is_about_to_use_them() {
    let scratch = Scratch::new("rm-lock");
    store(&scratch, &["one"]);
    let lock = File::open(scratch.path("data/images/locks/store")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::LockShared).unwrap();
    let mut command = scratch.command(&["rm", "one"]);
    let stderr = File::create(scratch.path("stderr")).unwrap();
    let mut child = command
        .stderr(stderr)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let told = || fs::read_to_string(scratch.path("stderr")).unwrap();
    wait_until("it says that it waits", || told().contains("waiting for"));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(child.try_wait().unwrap(), None);
    let names = scratch.path("data/images/names");
    assert_eq!(fs::read_dir(&names).unwrap().count(), 1);
    // The record is there before the lock is given back.
    let listed = scratch.listed();
    scratch.vm("web", &[listed[0]["digest"].as_str().unwrap()]);
    drop(lock);
    let outcome = Outcome::of(child.wait_with_output().unwrap());
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(told().contains("in use by default/web"), "{}", told());
    assert_eq!(scratch.listed().len(), 1);
}

/// Whoever pulls, removes and sweeps at once: no command fails for a reason of
/// the others, and what is there in the end is sound.
#[test]
fn pulls_and_sweeps_do_not_hurt_each_other() {
    const ROUNDS: usize = 6;
    let scratch = Scratch::new("all-at-once");
    for number in 0..3 {
        scratch.write(&format!("{number}.raw"), noise(number, 1 << 20));
    }
    std::thread::scope(|scope| {
        for number in 0..3 {
            let scratch = &scratch;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // All of them fight for one name, and each has its own.
                    let file = format!("{number}.raw");
                    for name in ["common", &format!("own-{number}")] {
                        scratch.succeeds(&["pull", name, "--from", &file]);
                    }
                    if round % 2 == 0 {
                        scratch.succeeds(&["rm", &format!("own-{number}")]);
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..2 * ROUNDS {
                scratch.succeeds(&["gc"]);
            }
        });
    });
    for number in 0..3 {
        assert!(scratch.disk(&format!("own-{number}")) == noise(number, 1 << 20));
    }
    let common = scratch.disk("common");
    assert!((0..3).any(|number| common == noise(number, 1 << 20)));
    scratch.succeeds(&["gc"]);
    assert_eq!(scratch.listed().len(), 4);
    assert_eq!(scratch.files().len(), 4 + 3, "{:?}", scratch.files());
}
