//! A user's store above the system's.

use std::fs;

use disklet::pull::{Observer, Order, ensure};
use disklet::store::Store;
use disklet_block::device::{Access, Caching, FileDevice};
use disklet_core::config::Config;
use disklet_core::facts::{Facts, Questions};
use disklet_core::names::{ImageName, Sha256};

use crate::scratch::{Outcome, Scratch, digest, noise};
use crate::server::{Reply, Server};

/// A user's data, and a system's with an image; the image's digest.
fn above_a_system(name: &str) -> (Scratch, String) {
    let scratch = Scratch::new(name);
    let bytes = noise(1, 1 << 20);
    scratch.write("disk.raw", &bytes);
    let system = scratch.path("system").display().to_string();
    let its_own = format!("dataDir: {system}\nsystemDataDir: {system}\n");
    scratch.write("system.yaml", its_own);
    as_root(&scratch, &["pull", "one", "--from", "disk.raw"]);
    scratch.configure(&format!("systemDataDir: {system}\n"));
    (scratch, digest(&bytes))
}

/// With the system's configuration.
fn as_root(scratch: &Scratch, args: &[&str]) -> Outcome {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_disklet"));
    command.current_dir(scratch.path("."));
    command.arg("images").args(args);
    command.args(["--config", "system.yaml"]);
    Outcome::of(command.output().unwrap())
}

fn config(scratch: &Scratch) -> Config {
    let path = |name: &str| scratch.path(name).display().to_string();
    Config {
        data_dir: path("data"),
        system_data_dir: Some(path("system")),
        ..Config::default()
    }
}

/// What `up` does before it plans.
fn use_image(config: &Config, name: &str) {
    struct Unseen;
    impl Observer for Unseen {
        fn begins(&self, beginning: &disklet::pull::Beginning<'_>) {
            panic!("{beginning:?} is fetched");
        }
        fn advance(&self, _bytes: u64) {}
        fn notice(&self, _text: &str) {}
        fn cancelled(&self) -> bool {
            false
        }
    }
    let image = ImageName::parse(name).unwrap();
    ensure(config, &Order::of(&image), &Unseen).unwrap();
    let mut facts = Facts::default();
    let questions = Questions {
        images: [image.name().to_owned()].into(),
        ..Questions::default()
    };
    let store = Store::configured(config);
    let _relied = store.rely().unwrap();
    store.answer(&questions, &mut facts).unwrap();
    assert!(facts.images.contains_key(image.name()));
    store.borrow_images(&facts).unwrap();
}

#[test]
fn the_systems_images_are_listed_and_marked() {
    let (scratch, _) = above_a_system("systems-ls");
    scratch.write("other.raw", noise(2, 1 << 20));
    scratch.succeeds(&["pull", "two", "--from", "other.raw"]);
    let table = scratch.succeeds(&["ls"]);
    let ends: Vec<_> = table
        .lines()
        .map(|line| line.split_whitespace().next_back().unwrap())
        .collect();
    assert_eq!(ends, ["STORE", "system", "own"], "{table}");
    let marks = |scratch: &Scratch| -> Vec<_> {
        let mark = |image: &serde_json::Value| (image["name"].clone(), image["system"].clone());
        scratch.listed().iter().map(mark).collect()
    };
    assert_eq!(
        marks(&scratch),
        [("one".into(), true.into()), ("two".into(), false.into())]
    );
    // A name of the user's own stands before the system's.
    scratch.succeeds(&["pull", "one", "--from", "other.raw"]);
    assert_eq!(
        marks(&scratch),
        [("one".into(), false.into()), ("two".into(), false.into())]
    );
}

#[test]
fn the_systems_images_are_used_without_fetching_and_never_removed() {
    let (scratch, digest) = above_a_system("systems-use");
    let system = scratch.path("system/images/sha256").join(&digest);
    for name in ["one", &format!("by-digest@sha256:{digest}")] {
        use_image(&config(&scratch), name);
    }
    let own = scratch.stored(&digest);
    assert_eq!(fs::read_link(&own).unwrap(), system);
    scratch.vm("web", &[&digest]);
    assert_eq!(scratch.listed()[1]["inUseBy"][0], "default/web");
    let told = scratch.fails(&["rm", "by-digest"]);
    assert!(told.contains("is in use by default/web"), "{told}");
    let told = scratch.fails(&["rm", "one"]);
    assert!(
        told.contains("image one is the system's\n  help: who runs the machine"),
        "{told}"
    );
    fs::remove_dir_all(scratch.path("data/vms")).unwrap();
    scratch.succeeds(&["rm", "by-digest"]);
    use_image(&config(&scratch), "one");
    let told = scratch.succeeds(&["gc"]);
    assert!(told.contains("removed the link to the system's"), "{told}");
    assert_eq!(scratch.files(), [] as [&str; 0]);
    assert!(system.exists());
    assert_eq!(scratch.listed()[0]["name"], "one");
}

/// Where root has removed it, the user's own pull fills the place: what was
/// begun over it goes on.
#[test]
fn a_removed_image_comes_back_under_the_same_path() {
    let (scratch, digest) = above_a_system("systems-gone");
    use_image(&config(&scratch), "one");
    scratch.vm("web", &[&digest]);
    let own = scratch.stored(&digest);
    assert_eq!(as_root(&scratch, &["rm", "one"]).code, Some(0));
    assert!(own.is_symlink() && !own.exists());
    assert!(scratch.listed().is_empty());
    let server = Server::start(|request| Reply::file(request, &noise(1, 1 << 20), "\"1\""));
    scratch.succeeds(&["pull", "one", "--from", &server.url("/x")]);
    assert!(!own.is_symlink());
    assert!(fs::read(&own).unwrap() == noise(1, 1 << 20));
    assert_eq!(scratch.listed()[0]["system"], false);
}

/// A user who wants an own copy gets one.
#[test]
fn what_is_pulled_is_the_users_own() {
    let (scratch, digest) = above_a_system("systems-own");
    use_image(&config(&scratch), "one");
    scratch.succeeds(&["pull", "one", "--from", "disk.raw"]);
    assert!(!scratch.stored(&digest).is_symlink());
    assert_eq!(as_root(&scratch, &["rm", "one"]).code, Some(0));
    assert!(scratch.disk("one") == noise(1, 1 << 20));
}

#[test]
fn what_cannot_be_read_of_the_systems_is_as_good_as_absent() {
    let (scratch, digest) = above_a_system("systems-damaged");
    let names = scratch.path("system/images/names");
    let name = fs::read_dir(&names).unwrap().next().unwrap().unwrap();
    fs::write(name.path(), "{").unwrap();
    let listed = scratch.images(&["ls"]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(
        listed.stderr.contains("the system's images cannot be seen"),
        "{listed:?}"
    );
    let store = Store::configured(&config(&scratch));
    assert!(store.find("one").unwrap().is_none());
    // By its digest it is still there.
    use_image(&config(&scratch), &format!("one@sha256:{digest}"));
}

/// VMs of users have no records in root's directory, but QEMU holds a lock.
#[test]
fn an_image_that_is_open_stays() {
    let (scratch, digest) = above_a_system("systems-open");
    let path = scratch.path("system/images/sha256").join(&digest);
    let open = FileDevice::open(&path, Caching::Buffered).unwrap();
    open.lock(Access::Read).unwrap();
    let told = as_root(&scratch, &["rm", "one"]).refused();
    assert!(
        told.contains(
            "image one is in use by a process that has it open\n  help: a VM of another user"
        ),
        "{told}"
    );
    // Not even if no name leads to it any more.
    scratch.write("disk.raw", noise(2, 1 << 20));
    as_root(&scratch, &["pull", "one", "--from", "disk.raw"]);
    assert_eq!(as_root(&scratch, &["gc"]).stdout, "freed 0 B\n");
    drop(open);
    assert!(as_root(&scratch, &["gc"]).stdout.contains(&digest));
}

#[test]
fn a_link_from_another_system_gives_way() {
    let (scratch, digest) = above_a_system("systems-moved");
    use_image(&config(&scratch), "one");
    fs::rename(scratch.path("system"), scratch.path("moved")).unwrap();
    let mut moved = config(&scratch);
    moved.system_data_dir = Some(scratch.path("moved").display().to_string());
    use_image(&moved, "one");
    assert!(scratch.stored(&digest).exists());
    let store = Store::configured(&moved);
    let fact = store.find("one").unwrap().unwrap();
    assert_eq!(Some(fact.digest), Sha256::parse_hex(&digest));
}
