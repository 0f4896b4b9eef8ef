//! Tokens that the kubelet has requested for a VM pod.
//!
//! They are in the pod's volumes: `token -> ..data/token`, `..data -> ..2026_01_01_…`.
//! What `..data` leads to is exchanged whenever the kubelet has a newer one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;

use disklet::host::Host;
use disklet_core::config::Config;
use disklet_core::facts::TokenFile;
use disklet_core::text::Secret;
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::failure::{Failure, Result, on};

/// No token is so long.
const MOST_BYTES: u64 = 64 << 10;
/// What was being exchanged is there a moment later.
const ATTEMPTS: u32 = 5;

/// All that are there. A volume that the kubelet has not mounted has none: a launcher
/// that an earlier version made does not ask for it.
pub(super) fn read(
    config: &Config,
    wanted: &BTreeSet<TokenFile>,
) -> Result<BTreeMap<TokenFile, Secret>> {
    let mut tokens = BTreeMap::new();
    for file in wanted {
        let directory = file.directory(config);
        let path = Path::new(&directory).join(&file.path);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        match Host(&config.host_root).open(Path::new(&directory), flags) {
            Ok(directory) => {
                let token = read_beneath(&directory, &file.path, &path)?;
                tokens.insert(file.clone(), token);
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(on(&directory, "opened", error.into())),
        }
    }
    Ok(tokens)
}

/// `path` is what the file is called to people.
fn read_beneath(directory: &File, name: &str, path: &Path) -> Result<Secret> {
    let seen = open_beneath(directory, name).map_err(|error| on(path, "opened", error.into()))?;
    let failed = |error| on(path, "read", error);
    if !seen.metadata().map_err(failed)?.is_file() {
        return Err(Failure::new(format!(
            "{}: not a regular file, and no token",
            path.display()
        )));
    }
    // What was looked at, whatever has its name by now.
    let file = File::open(format!("/proc/self/fd/{}", seen.as_raw_fd())).map_err(failed)?;
    let mut token = Vec::new();
    file.take(MOST_BYTES + 1)
        .read_to_end(&mut token)
        .map_err(failed)?;
    match token.len() as u64 {
        1..=MOST_BYTES => Ok(Secret::new(token)),
        0 => Err(Failure::new(format!(
            "{}: the token is empty",
            path.display()
        ))),
        _ => Err(Failure::new(format!(
            "{}: too long for a token",
            path.display()
        ))),
    }
}

/// Links are followed as long as they stay in the volume.
fn open_beneath(directory: &File, name: &str) -> std::result::Result<File, Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut attempts = 0;
    loop {
        attempts += 1;
        match rustix::fs::openat2(directory, name, flags, Mode::empty(), beneath) {
            Err(Errno::NOENT | Errno::AGAIN) if attempts < ATTEMPTS => {}
            opened => return opened.map(File::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use disklet_core::names::VolumeName;

    use super::*;

    struct Kubelet(PathBuf);

    impl Kubelet {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("disklet-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            fs::create_dir_all(root.join("kubelet")).unwrap();
            Self(root)
        }

        fn config(&self) -> Config {
            Config {
                host_root: self.0.display().to_string(),
                kubelet_root: "/kubelet".to_owned(),
                ..Config::default()
            }
        }

        /// As the kubelet writes it.
        fn volume(&self, name: &str) -> PathBuf {
            let below = format!("kubelet/pods/uid/volumes/kubernetes.io~projected/{name}");
            let volume = self.0.join(below);
            fs::create_dir_all(volume.join("..2026_01/a")).unwrap();
            symlink("..2026_01", volume.join("..data")).unwrap();
            symlink("..data/token", volume.join("token")).unwrap();
            symlink("..data/a", volume.join("a")).unwrap();
            volume
        }

        fn read(&self, volume: &str, path: &str) -> Result<Option<Secret>> {
            let wanted = TokenFile {
                pod: "uid".to_owned(),
                volume: VolumeName::parse(volume).unwrap(),
                path: path.to_owned(),
            };
            let wanted = BTreeSet::from([wanted]);
            Ok(read(&self.config(), &wanted)?.into_values().next())
        }

        fn refusal(&self, volume: &str, path: &str) -> String {
            self.read(volume, path).unwrap_err().to_string()
        }
    }

    impl Drop for Kubelet {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn tokens_are_read_as_the_kubelet_writes_them() {
        let kubelet = Kubelet::new("tokens");
        let volume = kubelet.volume("access");
        fs::write(volume.join("..2026_01/token"), "first").unwrap();
        fs::write(volume.join("..2026_01/a/token"), "second").unwrap();
        let read = |path| kubelet.read("access", path).unwrap().unwrap();
        assert_eq!(read("token").expose(), b"first");
        assert_eq!(read("a/token").expose(), b"second");
        // The kubelet was not told to have this one.
        assert_eq!(kubelet.read("other", "token").unwrap(), None);
    }

    #[test]
    fn nothing_outside_the_volume_is_read() {
        let kubelet = Kubelet::new("token-links");
        let volume = kubelet.volume("access");
        fs::write(kubelet.0.join("secret"), "of another").unwrap();
        fs::write(volume.join("../beside"), "of another").unwrap();
        for target in ["/secret", "../../beside", "/proc/self/environ"] {
            let token = volume.join("..2026_01/token");
            let _ = fs::remove_file(&token);
            symlink(target, &token).unwrap();
            let told = kubelet.refusal("access", "token");
            assert!(told.contains("cannot be opened"), "{told}");
        }
        // Nor is the volume a link.
        symlink(&volume, volume.join("../linked")).unwrap();
        assert!(
            kubelet
                .refusal("linked", "token")
                .contains("cannot be opened")
        );
    }

    #[test]
    fn what_is_no_token_is_not_taken_for_one() {
        let kubelet = Kubelet::new("token-kinds");
        let volume = kubelet.volume("access");
        let token = volume.join("..2026_01/token");
        assert!(
            kubelet
                .refusal("access", "token")
                .contains("cannot be opened")
        );
        fs::write(&token, "").unwrap();
        assert!(kubelet.refusal("access", "token").contains("is empty"));
        fs::write(&token, vec![b'x'; (64 << 10) + 1]).unwrap();
        assert!(kubelet.refusal("access", "token").contains("too long"));
        assert!(
            kubelet
                .refusal("access", "a")
                .contains("not a regular file")
        );
    }
}
