//! The shell scripts that link and mount disks in the guest.
//!
//! Any POSIX shell runs them, that of busybox included; running them again
//! changes nothing. A disk that is not there costs a line on stderr and a few
//! seconds, never the other disks.

use super::shell::quote;
use super::{DeviceLink, Mount};
use crate::guest::GuestDevice;

/// Where the script that links disks goes; Virtlet's name for it.
pub(super) const LINK_SCRIPT: &str = "/etc/cloud/symlink-devs.sh";
/// Where the script that keeps files in memory over boots goes.
pub(super) const KEEP_SCRIPT: &str = "/etc/cloud/keep-files.sh";
/// Where the script that mounts disks goes; Virtlet's name for it.
pub(super) const MOUNT_SCRIPT: &str = "/etc/cloud/mount-volumes.sh";

const LINK_HEADER: &str = "\
#!/bin/sh
# Links the disks of this virtual machine to the paths that its pod gives them.
";

const KEEP_HEADER: &str = "\
#!/bin/sh
# Keeps files whose directory is emptied at every boot.
";

const MOUNT_HEADER: &str = "\
#!/bin/sh
# Mounts the disks of this virtual machine where its pod wants them.
";

const KEEP_FILE: &str = include_str!("keep-file.sh");
const FIND_DISK: &str = include_str!("find-disk.sh");
const LINK_DISK: &str = include_str!("link-disk.sh");
const MOUNT_DISK: &str = include_str!("mount-disk.sh");

/// Where files are kept that a boot would lose.
const KEPT_DIRECTORY: &str = "/var/lib/disklet/files";

/// The script that keeps files over boots.
pub(super) fn keep_script(paths: &[&str]) -> String {
    let calls: String = paths
        .iter()
        .map(|path| {
            let kept = format!("{KEPT_DIRECTORY}{path}");
            format!("keep_file {} {}\n", quote(path), quote(&kept))
        })
        .collect();
    [KEEP_HEADER, KEEP_FILE, &calls].join("\n")
}

/// The script that makes the links.
pub(super) fn link_script(links: &[DeviceLink]) -> String {
    [LINK_HEADER, FIND_DISK, LINK_DISK, &link_calls(links)].join("\n")
}

/// The script that mounts the disks.
pub(super) fn mount_script(mounts: &[Mount]) -> String {
    [MOUNT_HEADER, FIND_DISK, MOUNT_DISK, &mount_calls(mounts)].join("\n")
}

/// Both scripts as one command, to stand in a user's script. A subshell keeps
/// their settings and names out of it.
pub(super) fn embedded(links: &[DeviceLink], mounts: &[Mount]) -> String {
    if links.is_empty() && mounts.is_empty() {
        return ":".to_owned();
    }
    let mut parts = vec![FIND_DISK.to_owned()];
    if !links.is_empty() {
        parts.extend([LINK_DISK.to_owned(), link_calls(links)]);
    }
    if !mounts.is_empty() {
        parts.extend([MOUNT_DISK.to_owned(), mount_calls(mounts)]);
    }
    format!("(\n{})", parts.join("\n"))
}

fn link_calls(links: &[DeviceLink]) -> String {
    let call = |link: &DeviceLink| {
        format!(
            "link_disk {} {}\n",
            quote(link.path.as_str()),
            disk_words(&link.device, 0)
        )
    };
    links.iter().map(call).collect()
}

fn mount_calls(mounts: &[Mount]) -> String {
    let call = |mount: &Mount| {
        let mode = if mount.read_only { "ro" } else { "rw" };
        let disk = disk_words(&mount.device, mount.part);
        format!("mount_disk {} {mode} {disk}\n", quote(mount.path.as_str()))
    };
    mounts.iter().map(call).collect()
}

/// The arguments of `find_disk`.
fn disk_words(device: &GuestDevice, part: u32) -> String {
    let partition = if part == 0 {
        String::new()
    } else {
        part.to_string()
    };
    let words = [
        device.by_id_of(part),
        device.by_path_of(part),
        sysfs_pattern(&device.by_path).unwrap_or_default(),
        partition,
    ];
    words.map(|word| quote(&word)).join(" ")
}

/// Where sysfs has the whole disk, as a pattern that matches a directory with
/// the name of its device. A SCSI host's number is the guest's own choice.
fn sysfs_pattern(by_path: &str) -> Option<String> {
    let (_, place) = by_path.rsplit_once("pci-")?;
    let (pci, below) = match place.split_once("-scsi-") {
        None => (place, String::new()),
        Some((pci, address)) => {
            let (_host, unit) = address.split_once(':')?;
            (pci, format!("host*/target*/*:{unit}/"))
        }
    };
    let is_address = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_hexdigit() || ":.".contains(c))
    };
    is_address(pci).then(|| format!("/sys/bus/pci/devices/{pci}/virtio*/{below}block/*"))
}

#[cfg(test)]
mod tests {
    use super::super::shell::testing::{assert_parses, sh};
    use super::super::testing::{self, link};
    use super::*;

    fn mount(path: &str, part: u32, read_only: bool) -> Mount {
        Mount {
            part,
            read_only,
            ..testing::mount(path)
        }
    }

    const AWKWARD: [&str; 6] = [
        "/dev/a b",
        "/it's",
        "/$HOME",
        "/`id`",
        "/a\\b",
        "/x/\"$(touch /tmp/never)\"",
    ];

    #[test]
    fn files_are_kept_and_come_back() {
        let directory = std::env::temp_dir().join(format!("disklet-keep-{}", std::process::id()));
        let root = directory.display().to_string();
        let script = keep_script(&["/run/a b"])
            .replace("'/run/a b'", &format!("'{root}/run/a b'"))
            .replace(
                "'/var/lib/disklet/files/run/a b'",
                &format!("'{root}/kept/a b'"),
            );
        assert_parses(&script);
        let told = sh(&format!(
            "mkdir -p '{root}/run'; printf one >'{root}/run/a b'; chmod 600 '{root}/run/a b'\n\
             {script}\n rm -r '{root}/run'\n {script}\n\
             cat '{root}/run/a b'; stat -c ' %a' '{root}/run/a b'; stat -c %a '{root}/kept'\n\
             printf two >'{root}/run/a b'\n {script}\n cat '{root}/kept/a b'; rm -r '{root}'"
        ));
        assert_eq!(told, "one 600\n700\ntwo");
    }

    #[test]
    fn every_disk_has_its_line() {
        let script = mount_script(&[mount("/data", 1, false), mount("/my disk", 0, true)]);
        let place = "'/sys/bus/pci/devices/0000:00:05.0/virtio*/block/*'";
        assert!(script.ends_with(&format!(
            "\nmount_disk /data rw /dev/disk/by-id/virtio-vol-part1 \
             /dev/disk/by-path/pci-0000:00:05.0-part1 {place} 1\n\
             mount_disk '/my disk' ro /dev/disk/by-id/virtio-vol \
             /dev/disk/by-path/pci-0000:00:05.0 {place} ''\n"
        )));
        let script = link_script(&[link("/dev/testpvc")]);
        assert!(script.ends_with(&format!(
            "\nlink_disk /dev/testpvc /dev/disk/by-id/virtio-raw \
             /dev/disk/by-path/pci-0000:00:05.0 {place} ''\n"
        )));
    }

    #[test]
    fn scripts_are_well_formed_whatever_the_paths() {
        let links = AWKWARD.map(link);
        let mounts = AWKWARD.map(|path| mount(path, 0, true));
        for script in [link_script(&links), mount_script(&mounts)] {
            assert!(script.starts_with("#!/bin/sh\n"));
            assert_parses(&script);
        }
        let whole = embedded(&links, &mounts);
        assert!(!whole.contains("#!"));
        assert_parses(&whole);
    }

    /// The embedded scripts with the commands that reach outside replaced.
    fn rehearse(script: &str, fakes: &str) -> String {
        let quick = script.replace("patience=10", "patience=0");
        let fakes = fakes.to_owned() + "\nmkdir() { :; }\nis_mounted() { false; }\n";
        let first_call = quick
            .find("\n\nmount_disk /")
            .or(quick.find("\n\nlink_disk /"))
            .unwrap();
        let (functions, calls) = quick.split_at(first_call);
        sh(&format!("{functions}\n{fakes}\n{calls}"))
    }

    #[test]
    fn disks_are_mounted_with_their_options() {
        let fakes = "find_disk() { disk=$1; }\nmount() { echo \"$@\"; }";
        let script = mount_script(&[mount("/data", 1, false), mount("/a b", 2, true)]);
        assert_eq!(
            rehearse(&script, fakes),
            "-o rw /dev/disk/by-id/virtio-vol-part1 /data\n\
             -o ro /dev/disk/by-id/virtio-vol-part2 /a b\n"
        );
    }

    #[test]
    fn a_missing_disk_is_told_and_does_not_keep_others_away() {
        let fakes = "find_disk() { [ \"$1\" != /dev/disk/by-id/virtio-vol ] && disk=$1; }\n\
                     mount() { echo mounted \"$@\"; }\nexec 2>&1";
        let script = mount_script(&[mount("/gone", 0, false), mount("/data", 1, false)]);
        assert_eq!(
            rehearse(&script, fakes),
            "disklet: found no disk /dev/disk/by-id/virtio-vol; nothing is mounted on /gone\n\
             mounted -o rw /dev/disk/by-id/virtio-vol-part1 /data\n"
        );
    }

    #[test]
    fn a_real_device_is_not_replaced_by_a_link() {
        let fakes = "find_disk() { disk=$1; }\nln() { echo ln \"$@\"; }\nexec 2>&1";
        let script = link_script(&[link("/dev/null"), link("/dev/new/testpvc")]);
        assert_eq!(
            rehearse(&script, fakes),
            "disklet: /dev/null is there already and no link; it stays as it is\n\
             ln -sfn /dev/disk/by-id/virtio-raw /dev/new/testpvc\n"
        );
    }

    #[test]
    fn without_mountpoint_the_kernel_is_asked() {
        let ask = |path: &str| {
            let path = quote(path);
            sh(&format!(
                "{MOUNT_DISK}\ncommand() {{ false; }}\nis_mounted {path}; echo $?"
            ))
        };
        assert_eq!(ask("/proc"), "0\n");
        assert_eq!(ask("/proc/"), "1\n");
        assert_eq!(ask("/no such"), "1\n");
    }

    #[test]
    fn a_user_script_keeps_its_own_settings() {
        let script = embedded(&[], &[mount("/proc", 0, false)]);
        let whole = format!("set -e\n{script}\necho \"after ${{unset_name-}}$unset_name\"");
        assert_eq!(sh(&whole), "after \n");
        assert_eq!(embedded(&[], &[]), ":");
    }

    #[test]
    fn places_are_found_in_sysfs() {
        let pattern = |link: &str| sysfs_pattern(&format!("/dev/disk/by-path/{link}"));
        assert_eq!(
            pattern("pci-0000:00:04.0-scsi-0:0:0:3").as_deref(),
            Some("/sys/bus/pci/devices/0000:00:04.0/virtio*/host*/target*/*:0:0:3/block/*")
        );
        assert_eq!(
            pattern("virtio-pci-0000:01:02.0").as_deref(),
            Some("/sys/bus/pci/devices/0000:01:02.0/virtio*/block/*")
        );
        assert_eq!(pattern("pci-0000:00:01.1-ata-1"), None);
        assert_eq!(pattern("ccw-0.0.0001"), None);
    }
}
