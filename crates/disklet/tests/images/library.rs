//! What `disklet-node` calls: [`disklet::pull`] and the store.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use disklet::pull::{Beginning, Observer, Order, PullErrorKind, ensure};
use disklet::store::{Store, in_use};
use disklet_core::config::Config;
use disklet_core::names::ImageName;

use crate::scratch::{Scratch, digest, noise};
use crate::server::{Reply, Server};

/// Remembers what it was told, and stops after so many bytes.
struct Watcher {
    most: u64,
    come: AtomicU64,
    begun: Mutex<Vec<(Option<u64>, u64)>>,
}

impl Watcher {
    fn up_to(most: u64) -> Self {
        Self {
            most,
            come: AtomicU64::new(0),
            begun: Mutex::default(),
        }
    }
}

impl Observer for Watcher {
    fn begins(&self, beginning: &Beginning<'_>) {
        let begun = (beginning.total, beginning.before);
        self.begun.lock().unwrap().push(begun);
    }

    fn advance(&self, bytes: u64) {
        self.come.fetch_add(bytes, Ordering::Relaxed);
    }

    fn notice(&self, _text: &str) {}

    fn cancelled(&self) -> bool {
        self.come.load(Ordering::Relaxed) > self.most
    }
}

fn config(scratch: &Scratch) -> Config {
    let path = |name| scratch.path(name).display().to_string();
    Config {
        data_dir: path("data"),
        image_translations: Some(path("mapping.yaml")),
        ..Config::default()
    }
}

#[test]
fn a_pull_can_be_cancelled_and_goes_on_later() {
    let scratch = Scratch::new("library");
    let bytes = noise(1, 6 << 20);
    let file = bytes.clone();
    let server = Server::start(move |request| Reply::file(request, &file, "\"1\""));
    scratch.map(&format!(
        "translations: [{{name: one, url: \"{}\"}}]\n",
        server.url("/x")
    ));
    let config = config(&scratch);
    let image = ImageName::parse("virtlet.cloud/one").unwrap();
    let watcher = Watcher::up_to(3 << 20);
    let error = ensure(&config, &Order::of(&image), &watcher).unwrap_err();
    assert_eq!(error.kind(), PullErrorKind::Cancelled, "{error}");
    assert_eq!(error.to_string(), "image one: it was cancelled");
    let watcher = Watcher::up_to(u64::MAX);
    let fact = ensure(&config, &Order::of(&image), &watcher).unwrap();
    assert_eq!(fact.digest.to_string(), digest(&bytes));
    assert_eq!(fact.size.as_bytes(), 6 << 20);
    let begun = watcher.begun.lock().unwrap().clone();
    let before = begun[0].1;
    assert!(before > 3 << 20, "{begun:?}");
    assert_eq!(begun, [(Some(6 << 20), before)]);
    assert_eq!(watcher.come.load(Ordering::Relaxed), (6 << 20) - before);
    // What is there is not asked for again.
    ensure(&config, &Order::of(&image), &watcher).unwrap();
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn images_are_relied_on_until_a_record_names_them() {
    let scratch = Scratch::new("library-rely");
    scratch.write("disk.raw", noise(1, 1 << 20));
    scratch.succeeds(&["pull", "one", "--from", "disk.raw"]);
    let config = config(&scratch);
    let store = Store::of(&config.data_dir);
    let relied = store.rely().unwrap();
    // Others may rely on it as well, and take images in.
    let _also = store.rely().unwrap();
    scratch.succeeds(&["pull", "two", "--from", "disk.raw"]);
    let fact = store.find("one").unwrap().unwrap();
    assert!(in_use(&config).unwrap().is_empty());
    scratch.vm("web", &[&fact.digest.to_string()]);
    drop(relied);
    let uses = in_use(&config).unwrap();
    assert!(uses[&fact.digest].contains("default/web"), "{uses:?}");
}
