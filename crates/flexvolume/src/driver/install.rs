//! Puts the driver where the kubelet looks for it.
//!
//! The kubelet watches the directory and starts whatever appears in it, but for
//! names that begin with a dot. So everything is made under such a name and
//! renamed when it is complete.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use disklet_flexvolume::PLUGINS;

/// What the kubelet starts in the directory of a plugin.
const EXECUTABLE: &str = "flexvolume_driver";
const MODE: u32 = 0o755;

/// Installs this very program for each of its names; what was done, in words.
pub(crate) fn install(plugins: &Path) -> Result<String, String> {
    let program = std::env::current_exe().and_then(fs::read);
    let program = program.map_err(|error| format!("cannot read this program: {error}"))?;
    install_program(&program, plugins)
}

fn install_program(program: &[u8], plugins: &Path) -> Result<String, String> {
    fs::create_dir_all(plugins).map_err(failed("make", plugins))?;
    let _lock = lock(plugins)?;
    let mut told = String::new();
    for plugin in PLUGINS {
        let was = install_one(program, plugins, plugin)?;
        let version = version_of(program).unwrap_or_default();
        told += &match was {
            Was::Absent => format!("{plugin}: installed version {version}\n"),
            Was::Same => format!("{plugin}: version {version} is there already\n"),
            Was::Version(old) => format!("{plugin}: replaced version {old} by {version}\n"),
            Was::Foreign => format!("{plugin}: replaced another driver by version {version}\n"),
        };
    }
    Ok(told)
}

/// Removes the driver, unless another one is in its place; what was done.
pub(crate) fn uninstall(plugins: &Path) -> Result<String, String> {
    if !plugins.is_dir() {
        return Ok(format!("{} is not there\n", plugins.display()));
    }
    let _lock = lock(plugins)?;
    let mut told = String::new();
    for plugin in PLUGINS {
        let directory = plugins.join(plugin);
        let path = directory.join(EXECUTABLE);
        told += &match look(&path, b"")? {
            Was::Absent => format!("{plugin}: is not there\n"),
            Was::Foreign => format!("{plugin}: another driver is there, and stays\n"),
            Was::Same | Was::Version(_) => {
                fs::remove_file(&path).map_err(failed("remove", &path))?;
                clear(&directory.join(hidden(EXECUTABLE)))?;
                // What else is in it is not ours, and keeps it.
                let _ = fs::remove_dir(&directory);
                format!("{plugin}: removed\n")
            }
        };
        clear(&plugins.join(hidden(plugin)))?;
    }
    Ok(told)
}

/// What was there before.
#[derive(Debug, PartialEq, Eq)]
enum Was {
    Absent,
    Same,
    Version(String),
    Foreign,
}

fn install_one(program: &[u8], plugins: &Path, plugin: &str) -> Result<Was, String> {
    let directory = plugins.join(plugin);
    let path = directory.join(EXECUTABLE);
    let was = look(&path, program)?;
    if was == Was::Same {
        return Ok(was);
    }
    if directory.is_dir() {
        let new = directory.join(hidden(EXECUTABLE));
        clear(&new)?;
        write_program(program, &new).inspect_err(|_| drop(clear(&new)))?;
        fs::rename(&new, &path).map_err(failed("replace", &path))?;
        sync(&directory)?;
    } else {
        // With the program in it, or the kubelet would find the directory empty.
        let new = plugins.join(hidden(plugin));
        clear(&new)?;
        fs::create_dir(&new).map_err(failed("make", &new))?;
        let written = write_program(program, &new.join(EXECUTABLE));
        written.inspect_err(|_| drop(clear(&new)))?;
        sync(&new)?;
        fs::rename(&new, &directory).map_err(failed("make", &directory))?;
        sync(plugins)?;
    }
    Ok(was)
}

fn look(path: &Path, program: &[u8]) -> Result<Was, String> {
    let old = match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Was::Absent),
        old => old.map_err(failed("read", path))?,
    };
    let mode = fs::metadata(path).map_err(failed("look at", path))?;
    if old == program && mode.permissions().mode() & 0o7777 == MODE {
        return Ok(Was::Same);
    }
    Ok(version_of(&old).map_or(Was::Foreign, Was::Version))
}

/// Writes the program durably, and has it say that it works here: a driver that
/// does must not make way for one that does not.
fn write_program(program: &[u8], path: &Path) -> Result<(), String> {
    let written = File::create_new(path).and_then(|mut file| {
        file.write_all(program)?;
        file.set_permissions(Permissions::from_mode(MODE))?;
        file.sync_all()
    });
    written.map_err(failed("write", path))?;
    let answer = Command::new(path).arg("init").output();
    let answer = answer.map_err(failed("start", path))?;
    if !answer.stdout.starts_with(b"{\"status\":\"Success\"") {
        return Err(format!("{} does not answer init", path.display()));
    }
    Ok(())
}

/// The version that a driver of ours has in it; nothing if it is another's.
fn version_of(program: &[u8]) -> Option<String> {
    let (marker, _) = crate::VERSION.rsplit_once(' ')?;
    let starts = program.windows(marker.len()).enumerate();
    let mut marked = starts.filter(|(_, window)| *window == marker.as_bytes());
    // The marker alone is there, too, for this function to look for.
    marked.find_map(|(start, _)| {
        let rest = program.get(start + marker.len()..)?.strip_prefix(b" ")?;
        let line = rest.split(|byte| *byte == b'\n').next()?;
        let version = std::str::from_utf8(line).ok()?;
        let is_version = version.len() < 64 && version.starts_with(|c: char| c.is_ascii_digit());
        is_version.then(|| version.to_owned())
    })
}

fn hidden(name: &str) -> String {
    format!(".{name}.new")
}

/// Removes what an interrupted installation has left under a hidden name.
fn clear(path: &Path) -> Result<(), String> {
    let removed = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(failed("remove", path)),
    }
}

/// Two installations at once would take each other's files.
fn lock(directory: &Path) -> Result<File, String> {
    let opened = File::open(directory);
    let locked = opened.and_then(|directory| directory.lock().map(|()| directory));
    locked.map_err(failed("lock", directory))
}

fn sync(directory: &Path) -> Result<(), String> {
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(failed("write", directory))
}

fn failed(what: &str, path: &Path) -> impl FnOnce(std::io::Error) -> String {
    let (what, path) = (what.to_owned(), PathBuf::from(path));
    move |error| format!("cannot {what} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_does_not_work_here_replaces_none() {
        let plugins = std::env::temp_dir().join(format!("disklet-broken-{}", std::process::id()));
        let old = plugins.join(PLUGINS[0]).join(EXECUTABLE);
        fs::create_dir_all(old.parent().unwrap()).unwrap();
        fs::write(&old, "old").unwrap();
        let names = |directory: &Path| {
            let entries = fs::read_dir(directory).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            names.collect::<Vec<_>>()
        };
        for (program, why) in [
            (&b"no program"[..], "cannot start"),
            (b"#!/bin/sh\nexit 0\n", "does not answer init"),
        ] {
            let error = install_program(program, &plugins).unwrap_err();
            assert!(error.contains(why), "{error}");
            assert_eq!(fs::read(&old).unwrap(), b"old");
            assert_eq!(names(old.parent().unwrap()), [EXECUTABLE]);
            assert_eq!(names(&plugins), [PLUGINS[0]]);
        }
        fs::remove_file(&old).unwrap();
        fs::remove_dir(old.parent().unwrap()).unwrap();
        install_program(b"no program", &plugins).unwrap_err();
        assert_eq!(names(&plugins), [""; 0]);
        fs::remove_dir(&plugins).unwrap();
    }

    #[test]
    fn a_version_is_found_only_where_one_is() {
        let found = |text: &str| version_of(text.as_bytes());
        assert_eq!(
            found(crate::VERSION).as_deref(),
            Some(env!("CARGO_PKG_VERSION"))
        );
        assert_eq!(found("disklet-flexvolume version 1"), Some("1".to_owned()));
        for text in [
            "",
            "disklet-flexvolume version",
            "disklet-flexvolume version x\n",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }
}
