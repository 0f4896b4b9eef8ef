//! What goes when a node gets full, from a real store.

use std::fs::File;
use std::time::{Duration, SystemTime};

use disklet::pull::Order;
use disklet::store::{Incoming, Store, StoreError, in_use};
use disklet_block::convert::Unwatched;
use disklet_core::config::Config;
use disklet_core::images::{ImageGc, Room};
use disklet_core::names::ImageName;

use crate::scratch::{Scratch, digest, noise};

/// A store whose images were last used so many hours ago, by name.
struct Node {
    scratch: Scratch,
    store: Store,
    config: Config,
}

const FULL: Room = Room {
    size: 100 << 20,
    free: 0,
};
const EMPTY: Room = Room {
    size: 100 << 20,
    free: 90 << 20,
};

/// An image as it comes by its name.
fn add(store: &Store, name: &str, bytes: &[u8]) {
    let incoming = Incoming {
        name,
        stream: bytes,
        digest: None,
        most: Order::MOST,
    };
    store.add(incoming, &Unwatched).unwrap();
}

impl Node {
    fn new(name: &str, images: &[(&str, u64)]) -> Self {
        let scratch = Scratch::new(name);
        let config = Config {
            data_dir: scratch.path("data").display().to_string(),
            ..Config::default()
        }
        .read(
            &disklet_core::manifest::Input {
                name: "config.yaml".into(),
                text: std::fs::read_to_string(scratch.path("config.yaml")).unwrap(),
            },
            &mut disklet_core::diag::Diagnostics::default(),
        );
        let store = Store::of(&config.data_dir);
        for (number, (name, hours)) in images.iter().enumerate() {
            let bytes = noise(number as u64 + 1, 1 << 20);
            add(&store, name, &bytes);
            let disk = scratch.path("data/images/sha256").join(digest(&bytes));
            let then = SystemTime::now() - Duration::from_secs(hours * 3600);
            File::open(disk).unwrap().set_modified(then).unwrap();
        }
        Self {
            store,
            scratch,
            config,
        }
    }

    fn collect(&self, gc: ImageGc, room: Room, kept: &[&str]) -> Result<Vec<String>, StoreError> {
        let kept: Vec<_> = kept
            .iter()
            .map(|it| ImageName::parse(it).unwrap())
            .collect();
        let alone = self.store.to_remove(|| ())?;
        let uses = in_use(&self.config)?;
        let gone = self.store.collect(&gc, room, &kept, &uses, &alone)?;
        Ok(gone.into_iter().map(|gone| gone.what).collect())
    }

    fn names(&self) -> Vec<String> {
        let all = self.store.list().unwrap();
        all.into_iter().map(|named| named.name).collect()
    }

    fn digest(&self, name: &str) -> String {
        self.store.find(name).unwrap().unwrap().digest.to_string()
    }
}

#[test]
fn a_full_node_gives_up_what_nobody_has_used_for_longest() {
    let images = [("a", 1), ("b", 9), ("used", 50), ("kept", 40), ("new", 0)];
    let node = Node::new("collect", &images);
    node.scratch.vm("web", &[&node.digest("used")]);
    // One disk with two names goes with both.
    add(&node.store, "b2", &noise(2, 1 << 20));
    let hours = SystemTime::now() - Duration::from_secs(9 * 3600);
    let disk = node
        .scratch
        .path("data/images/sha256")
        .join(node.digest("b"));
    File::open(&disk).unwrap().set_modified(hours).unwrap();
    assert_eq!(
        node.collect(ImageGc::default(), EMPTY, &["kept"]).unwrap(),
        [] as [&str; 0]
    );
    // A mebibyte too much is one image too much.
    let tight = Room {
        size: 10 << 20,
        free: 1 << 20,
    };
    let gone = node
        .collect(ImageGc::default(), tight, &["virtlet.cloud/kept"])
        .unwrap();
    assert_eq!(gone, ["b, b2"]);
    assert!(!disk.exists());
    let gone = node.collect(ImageGc::default(), FULL, &["kept"]).unwrap();
    assert_eq!(gone, ["a"]);
    assert_eq!(node.names(), ["kept", "new", "used"]);
}

#[test]
fn a_use_is_remembered_when_the_vm_is_gone() {
    let node = Node::new("collect-use", &[("one", 100), ("two", 100)]);
    let gc = ImageGc {
        max_age: Some(Duration::from_secs(3600)),
        ..ImageGc::default()
    };
    node.scratch.vm("web", &[&node.digest("one")]);
    assert_eq!(node.collect(gc, EMPTY, &[]).unwrap(), ["two"]);
    std::fs::remove_dir_all(node.scratch.path("data/vms")).unwrap();
    assert_eq!(node.collect(gc, EMPTY, &[]).unwrap(), [] as [&str; 0]);
    assert_eq!(node.names(), ["one"]);
}

#[test]
fn a_kept_digest_stays_under_whichever_name() {
    let node = Node::new("collect-digest", &[("one", 9)]);
    let pinned = format!("other@sha256:{}", node.digest("one"));
    assert_eq!(
        node.collect(ImageGc::default(), FULL, &[&pinned]).unwrap(),
        [] as [&str; 0]
    );
    assert_eq!(node.names(), ["one"]);
}

/// Nobody could bring it back.
#[test]
fn what_was_put_there_by_hand_stays() {
    let node = Node::new("collect-hand", &[("one", 9)]);
    node.scratch.write("disk.raw", noise(7, 1 << 20));
    node.scratch
        .succeeds(&["pull", "hand", "--from", "disk.raw"]);
    let disk = node
        .scratch
        .path("data/images/sha256")
        .join(node.digest("hand"));
    File::open(disk)
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH)
        .unwrap();
    assert_eq!(
        node.collect(ImageGc::default(), FULL, &[]).unwrap(),
        ["one"]
    );
    assert_eq!(node.names(), ["hand"]);
}

#[test]
fn nothing_goes_while_a_record_cannot_be_read() {
    let node = Node::new("collect-unclear", &[("one", 9)]);
    node.scratch.write("data/vms/x/record.json", "{");
    node.collect(ImageGc::default(), FULL, &[]).unwrap_err();
    assert_eq!(node.names(), ["one"]);
}

/// Whoever has found an image and is about to name it in a record holds the lock.
#[test]
fn what_is_about_to_be_used_is_not_removed() {
    let node = Node::new("collect-rely", &[("one", 9)]);
    let relied = node.store.rely().unwrap();
    std::thread::scope(|scope| {
        let gone = scope.spawn(|| node.collect(ImageGc::default(), FULL, &[]).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        assert!(!gone.is_finished());
        node.scratch.vm("web", &[&node.digest("one")]);
        drop(relied);
        assert_eq!(gone.join().unwrap(), [] as [&str; 0]);
    });
    assert_eq!(node.names(), ["one"]);
}
