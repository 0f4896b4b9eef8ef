//! The `mounts` of a `#cloud-config`.
//!
//! cloud-init writes them to `/etc/fstab` early in the first boot, so that
//! later boots mount the disks early and without it.

use super::lists::MOUNTS;
use super::{DeviceLink, Mount};
use crate::guest::{GuestDevice, GuestPath};
use crate::text::Data;

/// The entries for our mounts.
pub(super) fn entries(mounts: &[Mount]) -> Vec<Data> {
    mounts
        .iter()
        .filter(|mount| fits_fstab(&mount.path))
        .map(entry)
        .collect()
}

/// `nofail`: a missing disk must not keep the guest from booting. No limit on
/// how long it may take to appear either: a slow guest would give up too early.
fn entry(mount: &Mount) -> Data {
    let device = fstab_name(&mount.device, mount.part);
    let mut fields = vec![device.as_str(), mount.path.as_str(), "auto"];
    if mount.read_only {
        // The zeros: nor may a check at boot write to it.
        fields.extend(["defaults,nofail,ro", "0", "0"]);
    } else {
        fields.push("defaults,nofail");
    }
    Data::texts(fields)
}

/// Fields of fstab end at a blank, and of cloud-init's versions some escape
/// them and some do not. The mount script takes care of such paths alone.
pub(crate) fn fits_fstab(path: &GuestPath) -> bool {
    !path
        .as_str()
        .contains(|c: char| c.is_whitespace() || c == '\\')
}

/// The name for a disk that cloud-init leaves as it is. A dot it takes for the
/// beginning of a partition's number, and a whole disk's name it exchanges for
/// its first partition's, unless there is a colon in the name.
fn fstab_name(device: &GuestDevice, part: u32) -> String {
    if part == 0 || device.by_id.contains('.') {
        device.by_path_of(part)
    } else {
        device.by_id_of(part)
    }
}

/// Makes the user's own `mounts` safe beside ours, and names disks instead of
/// links wherever cloud-init looks for them before the links exist.
pub(super) fn settle_users(config: &mut [(String, Data)], links: &[DeviceLink]) {
    for (key, value) in config.iter_mut() {
        match (key.as_str(), value) {
            ("fs_setup", Data::List(filesystems)) => {
                let devices = filesystems.iter_mut().filter_map(|one| {
                    let mut entries = one.entries_mut()?.iter_mut();
                    entries.find(|(key, _)| key == "device")
                });
                devices.for_each(|(_, device)| follow_link(std::slice::from_mut(device), links));
            }
            ("disk_setup", disks) => {
                for (device, _) in disks.entries_mut().into_iter().flatten() {
                    if let Some(link) = link_at(device, links) {
                        *device = link.device.by_id.clone();
                    }
                }
            }
            _ => {}
        }
    }
    settle_mounts(config, links);
}

fn settle_mounts(config: &mut [(String, Data)], links: &[DeviceLink]) {
    let Some((_, Data::List(entries))) = config.iter_mut().find(|(key, _)| key == MOUNTS) else {
        return;
    };
    for entry in entries {
        if let Data::List(fields) = entry {
            follow_link(fields, links);
            fields.iter_mut().for_each(number_to_text);
        }
    }
}

/// Names the disk where the user names a link to it: the links do not exist
/// yet when cloud-init mounts, nor when the guest does on later boots.
fn follow_link(fields: &mut [Data], links: &[DeviceLink]) {
    let Some(Data::Text(device)) = fields.first_mut() else {
        return;
    };
    if let Some(link) = device.known().and_then(|name| link_at(name, links)) {
        *device = device.map(|_| fstab_name(&link.device, 0));
    }
}

fn link_at<'l>(name: &str, links: &'l [DeviceLink]) -> Option<&'l DeviceLink> {
    let path = GuestPath::parse(name).ok()?;
    links.iter().find(|link| link.path == path)
}

/// At a number in an entry whose disk it does not recognise, cloud-init gives
/// up all mounts.
fn number_to_text(field: &mut Data) {
    if let Data::Int(number) = field {
        *field = Data::text(number.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, device};
    use super::*;
    use crate::text::{Secret, Text};

    fn mount(serial: &str, part: u32, path: &str, read_only: bool) -> Mount {
        Mount {
            device: device(serial),
            part,
            read_only,
            ..testing::mount(path)
        }
    }

    fn settled(mounts: Data) -> Data {
        let mut config = vec![("mounts".to_owned(), mounts)];
        settle_users(&mut config, &[testing::link("/dev/testpvc")]);
        config.remove(0).1
    }

    #[test]
    fn disks_are_mounted_by_stable_names_and_never_block_the_boot() {
        let mounts = [
            mount("docker", 0, "/var/lib/docker", false),
            mount("data", 2, "/data", true),
        ];
        assert_eq!(
            entries(&mounts),
            [
                Data::texts([
                    "/dev/disk/by-path/pci-0000:00:05.0",
                    "/var/lib/docker",
                    "auto",
                    "defaults,nofail",
                ]),
                Data::texts([
                    "/dev/disk/by-id/virtio-data-part2",
                    "/data",
                    "auto",
                    "defaults,nofail,ro",
                    "0",
                    "0",
                ]),
            ]
        );
    }

    #[test]
    fn names_that_cloud_init_would_misread_are_avoided() {
        let by_path = mount("pvc.1", 1, "/data", false);
        assert_eq!(
            entries(&[by_path]),
            [Data::texts([
                "/dev/disk/by-path/pci-0000:00:05.0-part1",
                "/data",
                "auto",
                "defaults,nofail",
            ])]
        );
        assert_eq!(entries(&[mount("vol", 0, "/my disk", false)]), []);
    }

    #[test]
    fn disks_to_set_up_are_named_instead_of_their_links() {
        let filesystem = |device: &str| Data::pairs([("device", Data::text(device))]);
        let mut config = vec![
            (
                "fs_setup".to_owned(),
                Data::List(vec![filesystem("/dev/testpvc")]),
            ),
            (
                "disk_setup".to_owned(),
                Data::pairs([("/dev/testpvc", Data::Null)]),
            ),
        ];
        settle_users(&mut config, &[testing::link("/dev/testpvc")]);
        let by_path = "/dev/disk/by-path/pci-0000:00:05.0";
        assert_eq!(config[0].1, Data::List(vec![filesystem(by_path)]));
        assert_eq!(
            config[1].1,
            Data::pairs([("/dev/disk/by-id/virtio-raw", Data::Null)])
        );
    }

    #[test]
    fn the_users_mounts_reach_the_disk_behind_a_link() {
        let fields = |device: &str| Data::texts([device, "/mnt/data"]);
        let users = Data::List(vec![
            fields("/dev/testpvc"),
            fields("/dev//testpvc/"),
            fields("/dev/testpvc2"),
            fields("tmpfs"),
            Data::List(Vec::new()),
            Data::text("/dev/testpvc"),
        ]);
        assert_eq!(
            settled(users),
            Data::List(vec![
                fields("/dev/disk/by-path/pci-0000:00:05.0"),
                fields("/dev/disk/by-path/pci-0000:00:05.0"),
                fields("/dev/testpvc2"),
                fields("tmpfs"),
                Data::List(Vec::new()),
                Data::text("/dev/testpvc"),
            ])
        );
    }

    #[test]
    fn following_a_link_keeps_what_is_secret_and_what_is_no_list() {
        let secret = |name: &str| {
            Data::List(vec![Data::List(vec![Data::Text(Text::Secret(
                Secret::new(name),
            ))])])
        };
        assert_eq!(
            settled(secret("/dev/testpvc")),
            secret("/dev/disk/by-path/pci-0000:00:05.0")
        );
        assert_eq!(settled(Data::text("x")), Data::text("x"));
    }

    #[test]
    fn numbers_in_the_users_mounts_become_text() {
        let fields = |frequency, pass| {
            let device = Data::text("LABEL=data");
            Data::List(vec![Data::List(vec![device, Data::Null, frequency, pass])])
        };
        assert_eq!(
            settled(fields(Data::Int(0), Data::Int(2))),
            fields(Data::text("0"), Data::text("2"))
        );
    }
}
