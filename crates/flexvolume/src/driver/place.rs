//! The directory of a volume below the kubelet's.

use std::ffi::OsStr;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use disklet_flexvolume::PLUGINS;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, ResolveFlags, flock, open, openat2};
use rustix::io::Errno;

/// `<kubelet root>/pods/<uid>/volumes/<plugin>/<name>`: the only kind of directory
/// that the kubelet has a FlexVolume driver mount something at.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place<'p> {
    root: &'p str,
    /// From the root to the directory that the volume's is in.
    below: &'p str,
    pub(crate) pod_uid: &'p str,
    pub(crate) name: &'p str,
}

impl<'p> Place<'p> {
    pub(crate) fn parse(path: &'p OsStr) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{path:?} is no directory for a volume: /<kubelet's>/pods/<uid>/volumes/<plugin>/<volume> is, \
                 where <plugin> is {}",
                PLUGINS.join(" or ")
            )
        };
        let text = path.to_str().ok_or_else(wrong)?;
        let mut parts = text.rsplitn(6, '/');
        let (name, plugin, volumes) = (parts.next(), parts.next(), parts.next());
        let (pod_uid, pods, root) = (parts.next(), parts.next(), parts.next());
        let (Some(name), Some(plugin), Some("volumes"), Some(pod_uid), Some("pods"), Some(root)) =
            (name, plugin, volumes, pod_uid, pods, root)
        else {
            return Err(wrong());
        };
        let is_name = |part: &str| !matches!(part, "" | "." | "..");
        let root_is_plain = match root.strip_prefix('/') {
            Some(rest) => rest.split('/').all(is_name),
            None => root.is_empty(),
        };
        let rest_is_plain = is_name(name) && is_name(pod_uid) && PLUGINS.contains(&plugin);
        if !root_is_plain || !rest_is_plain {
            return Err(wrong());
        }
        Ok(Self {
            root: if root.is_empty() { "/" } else { root },
            below: &text[root.len() + 1..text.len() - name.len() - 1],
            pod_uid,
            name,
        })
    }

    /// Opens the directory that the volume's is in, and keeps other calls out of
    /// it while it is open. Nothing if there is none.
    ///
    /// The way to the kubelet's root is the administrator's, who may have links in
    /// it. Below it there is none, or somebody has planted it.
    pub(crate) fn open(&self) -> Result<Option<OwnedFd>, String> {
        let path = || Path::new(self.root).join(self.below);
        let failed = |error: Errno| match error {
            Errno::LOOP => format!("a symbolic link is on the way to {:?}: remove it", path()),
            error => format!("cannot open {:?}: {error}", path()),
        };
        let directory = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match open(self.root, directory | OFlags::PATH, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            root => root.map_err(failed)?,
        };
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let below = match openat2(&root, self.below, directory, Mode::empty(), beneath) {
            Err(Errno::NOENT) => return Ok(None),
            below => below.map_err(failed)?,
        };
        lock(&below, LOCKED_WITHIN).map_err(|error| match error {
            Errno::WOULDBLOCK => format!(
                "another call, or whoever else has locked {:?}, has kept it for {} s: the kubelet tries again",
                path(),
                LOCKED_WITHIN.as_secs()
            ),
            error => failed(error),
        })?;
        Ok(Some(below))
    }
}

/// Others take moments. The kubelet has few places for calls, and waits for each.
const LOCKED_WITHIN: Duration = Duration::from_secs(10);
const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(20);

fn lock(directory: impl AsFd, within: Duration) -> Result<(), Errno> {
    let begun = Instant::now();
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < within => sleep(LOOKS_AGAIN_AFTER),
            Err(Errno::INTR) => {}
            locked => return locked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(path: &str) -> Result<Place<'_>, String> {
        Place::parse(OsStr::new(path))
    }

    #[test]
    fn the_kubelets_directories_are_taken_apart() {
        assert_eq!(
            parse("/var/lib/kubelet/pods/u-1/volumes/virtlet~flexvolume_driver/data"),
            Ok(Place {
                root: "/var/lib/kubelet",
                below: "pods/u-1/volumes/virtlet~flexvolume_driver",
                pod_uid: "u-1",
                name: "data",
            })
        );
        let at_top = parse("/pods/u/volumes/kubernetes.io~flexvolume_driver/d").unwrap();
        assert_eq!((at_top.root, at_top.name), ("/", "d"));
        assert_eq!(
            at_top.below,
            "pods/u/volumes/kubernetes.io~flexvolume_driver"
        );
    }

    #[test]
    fn nobody_is_waited_for_without_end() {
        let name = format!("disklet-flexvolume-lock-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        let open = || std::fs::File::open(&path).unwrap();
        let (held, ours) = (open(), open());
        let within = Duration::from_millis(100);
        lock(&held, within).unwrap();
        let begun = Instant::now();
        assert_eq!(lock(&ours, within), Err(Errno::WOULDBLOCK));
        assert!(begun.elapsed() >= within);
        drop(held);
        lock(&ours, within).unwrap();
        std::fs::remove_dir(&path).unwrap();
    }

    #[test]
    fn no_other_directory_is_touched() {
        for path in [
            "",
            "/",
            "/etc",
            "pods/u/volumes/virtlet~flexvolume_driver/d",
            "k/pods/u/volumes/virtlet~flexvolume_driver/d",
            "/k/pods/u/volumes/virtlet~flexvolume_driver",
            "/k/pods/u/volumes/virtlet~flexvolume_driver/",
            "/k/pods/u/volumes/virtlet~flexvolume_driver/d/",
            "/k/pods/u/volumes/virtlet~flexvolume_driver/.",
            "/k/pods/u/volumes/virtlet~flexvolume_driver/..",
            "/k/pods/u/volumes/virtlet~flexvolume_driver/d/e",
            "/k/pods/u/volumes/other~driver/d",
            "/k/pods/u/volumes//d",
            "/k/pods/../volumes/virtlet~flexvolume_driver/d",
            "/k/pods//volumes/virtlet~flexvolume_driver/d",
            "/k/../pods/u/volumes/virtlet~flexvolume_driver/d",
            "/k//l/pods/u/volumes/virtlet~flexvolume_driver/d",
            "//pods/u/volumes/virtlet~flexvolume_driver/d",
            "/k/./pods/u/volumes/virtlet~flexvolume_driver/d",
            "/k/pods/u/volume/virtlet~flexvolume_driver/d",
        ] {
            assert!(parse(path).is_err(), "{path}");
        }
    }
}
