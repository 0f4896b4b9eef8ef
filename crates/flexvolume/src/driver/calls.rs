//! The calls of the FlexVolume contract.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use disklet_flexvolume::Volume;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, mkdirat, unlinkat};
use rustix::io::Errno;

use super::answer::Answer;
use super::memory::{self, Found, VIRTLETS_FILE};
use super::place::Place;

/// The calls that there are, with the number of their arguments.
const CALLS: [(&str, usize); 9] = [
    ("init", 0),
    ("attach", 2),
    ("detach", 2),
    ("waitforattach", 2),
    ("isattached", 2),
    ("mountdevice", 3),
    ("unmountdevice", 1),
    ("mount", 2),
    ("unmount", 1),
];

/// Carries out a call, whose name comes first.
pub(crate) fn answer(arguments: &[OsString]) -> Answer {
    let Some((call, arguments)) = arguments.split_first() else {
        return Answer::Failure("no call is given (see --help)".to_owned());
    };
    let known = CALLS.iter().find(|(name, _)| call == name);
    let Some((call, wanted)) = known else {
        return Answer::NotSupported;
    };
    if arguments.len() != *wanted {
        let found = arguments.len();
        return Answer::Failure(format!("{call} has {found} arguments and wants {wanted}"));
    }
    let result = match (*call, arguments) {
        ("init", _) => return Answer::Capabilities,
        ("mount", [directory, json]) => mount(directory, json),
        ("unmount", [directory]) => unmount(directory),
        // With `attach: false` nobody asks for the others, but for those who
        // remember Virtlet's driver. There is nothing to do, and it is done.
        ("isattached", _) => return Answer::Attached,
        ("waitforattach", [device, _]) => {
            return Answer::Device(device.to_string_lossy().into_owned());
        }
        _ => Ok(()),
    };
    match result {
        Ok(()) => Answer::Success,
        Err(why) => Answer::Failure(why),
    }
}

fn mount(directory: &OsStr, json: &OsStr) -> Result<(), String> {
    let place = Place::parse(directory)?;
    let volume = Volume::from_call(json.as_bytes()).map_err(|error| error.to_string())?;
    // Options of a user's would take the place of the kubelet's words of that name.
    if (&*volume.name, &*volume.pod.uid) != (place.name, place.pod_uid) {
        return Err("the directory is of another pod or volume than the options".to_owned());
    }
    let parent = place.open()?.ok_or("the pod's directory is not there")?;
    let content = volume.to_file();
    match memory::look(&parent, place.name)? {
        Found::Mount(mounted) => replace(&mounted, &parent, place.name, &content),
        Found::Directory(directory) => {
            demand_nothing_foreign(&directory)?;
            publish(&parent, place.name, &content)
        }
        Found::Nothing => {
            mkdirat(&parent, place.name, Mode::RWXU | Mode::RGRP | Mode::XGRP)
                .map_err(|error| format!("cannot make the directory: {error}"))?;
            publish(&parent, place.name, &content).inspect_err(|_| {
                // What went wrong first is what counts.
                let _ = unlinkat(&parent, place.name, AtFlags::REMOVEDIR);
            })
        }
    }
}

const FOREIGN: &str = "the directory holds what is not ours: look at it and remove it";

/// What unmounting would not remove is not hidden by a mount.
fn demand_nothing_foreign(directory: impl AsFd) -> Result<(), String> {
    match memory::holds_only(directory, &[VIRTLETS_FILE]) {
        Ok(true) => Ok(()),
        Ok(false) => Err(FOREIGN.to_owned()),
        Err(error) => Err(format!("cannot look into the directory: {error}")),
    }
}

fn publish(parent: &OwnedFd, name: &str, content: &str) -> Result<(), String> {
    memory::publish(memory::prepare(Volume::FILE, content)?, parent, name)
}

/// Mounts in the place of what is mounted, unless that is the same.
fn replace(mounted: &OwnedFd, parent: &OwnedFd, name: &str, content: &str) -> Result<(), String> {
    memory::demand_ours(mounted)?;
    if memory::holds(mounted, Volume::FILE, content) {
        return Ok(());
    }
    let prepared = memory::prepare(Volume::FILE, content)?;
    memory::unmount_all(parent, name)?;
    memory::publish(prepared, parent, name)
}

fn unmount(directory: &OsStr) -> Result<(), String> {
    let place = Place::parse(directory)?;
    let Some(parent) = place.open()? else {
        return Ok(());
    };
    memory::unmount_all(&parent, place.name)?;
    let Found::Directory(directory) = memory::look(&parent, place.name)? else {
        return Ok(());
    };
    remove_virtlets_file(&directory)?;
    match unlinkat(&parent, place.name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::NOTEMPTY) => Err(FOREIGN.to_owned()),
        Err(error) => Err(format!("cannot remove the directory: {error}")),
    }
}

/// Virtlet's driver wrote its file, keys and all, to the disk as well. Its volumes
/// may still be there when ours has taken its place.
fn remove_virtlets_file(directory: impl AsFd) -> Result<(), String> {
    match unlinkat(directory, VIRTLETS_FILE, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(format!(
            "cannot remove the file of Virtlet's driver: {error}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_unmounting_would_not_remove_is_refused_at_once() {
        let name = format!("disklet-flexvolume-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        let looked = || demand_nothing_foreign(fs::File::open(&path).unwrap());
        assert_eq!(looked(), Ok(()));
        fs::write(path.join(VIRTLETS_FILE), "").unwrap();
        assert_eq!(looked(), Ok(()));
        fs::write(path.join("precious"), "").unwrap();
        assert_eq!(looked(), Err(FOREIGN.to_owned()));
        fs::remove_dir_all(&path).unwrap();
    }
}
