//! What goes into a VM's cloud-init image.

use uuid::Uuid;

use super::Resolver;
use crate::cloudinit::{
    CloudInitSpec, DeviceLink, MOUNT_SCRIPT_TOKEN, Mount, NetworkSpec, fits_fstab,
};
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::VmPod;
use crate::plan::PlannedDisk;

impl Resolver<'_> {
    pub(super) fn cloud_init(
        &self,
        pod: &VmPod,
        uuid: Uuid,
        disks: &[PlannedDisk],
        mac: &str,
        diags: &mut Diagnostics,
    ) -> CloudInitSpec {
        let annotations = &pod.annotations;
        let spec = CloudInitSpec {
            image_type: annotations.image_type,
            // A new pod is a new instance, even if it has an old one's name
            // and its disk: its files, keys and mounts may be others.
            instance_id: pod.meta.uid.clone().unwrap_or_else(|| uuid.to_string()),
            hostname: pod.hostname.clone(),
            ssh_keys: self.ssh_keys(pod, diags),
            meta_data: annotations.meta_data.clone(),
            user_data: self.user_data(pod, diags),
            mounts: mounts(disks),
            links: links(disks),
            files: self.files(pod, diags),
            environment: self.environment(pod, diags),
            network: (!annotations.force_dhcp).then(|| NetworkSpec {
                mac: mac.to_owned(),
            }),
        };
        refuse_hidden_files(pod, &spec, diags);
        tell_what_a_script_leaves_out(pod, &spec, diags);
        spec
    }
}

/// A disk whose path has a blank in it cannot stand in fstab and is mounted
/// late: files below it would be written before, and hidden.
fn refuse_hidden_files(pod: &VmPod, spec: &CloudInitSpec, diags: &mut Diagnostics) {
    let late = spec.mounts.iter().filter(|mount| !fits_fstab(&mount.path));
    for mount in late {
        if let Some(file) = spec
            .files
            .iter()
            .find(|file| file.path.is_below(&mount.path))
        {
            let mut mounts = pod.container.mounts.iter().map(|mount| &mount.path);
            let at = mounts.find(|path| path.value == mount.path);
            diags.push(
                Diagnostic::error(
                    at.map_or(&pod.meta.place, |path| &path.place),
                    "a file would be hidden by the disk mounted above it",
                )
                .found(format!("{} below {}", file.path, mount.path))
                .help("mount the disk at a path without blanks and backslashes"),
            );
        }
    }
}

/// A script is the whole user-data, so there is nothing that would write
/// files. Pods of a cluster always have some: the service account's token.
fn tell_what_a_script_leaves_out(pod: &VmPod, spec: &CloudInitSpec, diags: &mut Diagnostics) {
    let annotations = &pod.annotations;
    let script = annotations.script.as_ref().map(|script| &script.place);
    let place = script.or(annotations.source_key.as_ref().map(|key| &key.place));
    let Some(place) = place else { return };
    tell_what_is_not_mounted(spec, place, diags);
    let mut lost = Vec::new();
    if !spec.files.is_empty() {
        lost.push("the files of Secret, ConfigMap and projected volumes");
    }
    if !spec.environment.is_empty() {
        lost.push("the environment");
    }
    if !lost.is_empty() {
        let message = format!(
            "{} do not reach a guest whose user-data is a script",
            lost.join(" and ")
        );
        diags.push(
            Diagnostic::notice(place, message)
                .help("use cloud-config, which can run scripts by runcmd"),
        );
    }
}

/// Without the token a script gets the disks, and nothing that mounts them.
fn tell_what_is_not_mounted(spec: &CloudInitSpec, place: &Place, diags: &mut Diagnostics) {
    if spec.user_data.mounts_disks() {
        return;
    }
    let listed = |paths: Vec<&str>| paths.join(", ");
    let mounts = listed(
        spec.mounts
            .iter()
            .map(|mount| mount.path.as_str())
            .collect(),
    );
    let links = listed(spec.links.iter().map(|link| link.path.as_str()).collect());
    let message = match (mounts.as_str(), links.as_str()) {
        ("", "") => return,
        (mounts, "") => format!("no disk is mounted on {mounts}"),
        ("", links) => format!("no disk is linked to {links}"),
        (mounts, links) => format!("no disk is mounted on {mounts} or linked to {links}"),
    };
    diags.push(
        Diagnostic::notice(place, format!("{message}: the script does not ask for it")).help(
            format!("put {MOUNT_SCRIPT_TOKEN} on a line of its own into the shell's script"),
        ),
    );
}

/// Outer paths first: a disk mounted over another's mount would hide it.
fn mounts(disks: &[PlannedDisk]) -> Vec<Mount> {
    let mut mounts: Vec<_> = disks
        .iter()
        .flat_map(|disk| disk.mounts.iter().map(move |mount| (disk, mount)))
        .map(|(disk, mount)| Mount {
            device: disk.target.guest_device(disk.device, &disk.serial),
            part: mount.part,
            path: mount.path.clone(),
            read_only: mount.read_only,
        })
        .collect();
    mounts.sort_by_key(|mount| mount.path.depth());
    mounts
}

fn links(disks: &[PlannedDisk]) -> Vec<DeviceLink> {
    disks
        .iter()
        .filter_map(|disk| {
            Some(DeviceLink {
                device: disk.target.guest_device(disk.device, &disk.serial),
                path: disk.link.clone()?,
            })
        })
        .collect()
}
