//! The seccomp profile of launcher pods, where the kubelet looks for it.

use std::fs;
use std::path::{Path, PathBuf};

use disklet_block::new_file::replace_file;
use disklet_core::config::Config;
use disklet_core::launch::pod::{SECCOMP_PROFILE, SECCOMP_PROFILE_TEXT};

use crate::failure::{Result, on};

/// Puts it there, whole at any moment: containers are started meanwhile.
pub(super) fn install(config: &Config) -> Result<()> {
    let path = place(config);
    let text = SECCOMP_PROFILE_TEXT.as_bytes();
    if fs::read(&path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let failed = |error| {
        on(&path, "written", error)
            .help("launcher pods are confined by it: the agent has to see the kubelet's directory, below --host-root")
    };
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    replace_file(&path, text, 0o644).map_err(failed)
}

fn place(config: &Config) -> PathBuf {
    let root = config.kubelet_root.trim_start_matches('/');
    let root = Path::new(&config.host_root).join(root);
    root.join("seccomp").join(SECCOMP_PROFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_profile_is_replaced() {
        let folder = std::env::temp_dir().join(format!("disklet-profile-{}", std::process::id()));
        let config = Config {
            host_root: folder.display().to_string(),
            ..Config::default()
        };
        for before in [None, Some("{}")] {
            if let Some(before) = before {
                fs::write(place(&config), before).unwrap();
            }
            install(&config).unwrap();
            let path = folder.join("var/lib/kubelet/seccomp/disklet/launcher.json");
            assert_eq!(fs::read_to_string(path).unwrap(), SECCOMP_PROFILE_TEXT);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
