//! Users without root's rights, who have a libvirt of their own.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::path::PathBuf;
use std::process::{Command, Output};

use support::fixtures::{Fixture, Kind};
use support::{Machine, guest};

/// Runs as nobody, who has a home.
struct Nobody {
    home: PathBuf,
}

impl Nobody {
    /// With the image `tiny` in a store of their own.
    fn on(machine: &Machine) -> Self {
        let nobody = Self {
            home: machine.path("home"),
        };
        std::fs::create_dir(&nobody.home).unwrap();
        std::os::unix::fs::chown(&nobody.home, Some(65534), Some(65534)).unwrap();
        std::fs::copy(
            env!("CARGO_BIN_EXE_disklet-node"),
            nobody.home.join("disklet-node"),
        )
        .unwrap();
        machine.add_image_to(&nobody.data(), "tiny", &guest::disk());
        let chown = Command::new("chown")
            .args(["-R", "nobody:nogroup"])
            .arg(nobody.home.join(".local"))
            .status();
        assert!(chown.unwrap().success());
        nobody
    }

    fn data(&self) -> PathBuf {
        self.home.join(".local/share/disklet")
    }

    /// Files and directories of their VMs.
    fn things(&self) -> usize {
        let count = |directory: PathBuf| std::fs::read_dir(directory).into_iter().flatten().count();
        ["volumes", "vms", "cloud-init", "run/disklet/vms"]
            .map(|name| count(self.data().join(name)))
            .iter()
            .sum()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new("setpriv")
            .args([
                "--reuid=nobody",
                "--regid=nogroup",
                "--clear-groups",
                "env",
                "-i",
            ])
            .arg(format!("HOME={}", self.home.display()))
            .arg("PATH=/usr/sbin:/usr/bin:/sbin:/bin")
            .arg(self.home.join("disklet-node"))
            .args(arguments)
            .output()
            .unwrap()
    }
}

impl Drop for Nobody {
    /// libvirt has started a daemon for nobody, which would go by itself, later.
    fn drop(&mut self) {
        let file = self.home.join(".cache/libvirt/libvirtd.pid");
        if let Ok(pid) = std::fs::read_to_string(file) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn users_run_vms_of_their_own() {
    let machine = Machine::new("user");
    let fixture = Fixture::new(&machine, "user", Kind::NewVolume);
    let nobody = Nobody::on(&machine);
    let up = nobody.run(&[
        "up",
        "-f",
        &fixture.manifest,
        "--wait",
        "exit",
        "--timeout",
        "1m",
    ]);
    let said = String::from_utf8_lossy(&up.stdout);
    assert!(said.contains("default/user has ended"), "{up:?}");
    let logs = nobody.run(&["logs", "user"]);
    let logs = String::from_utf8_lossy(&logs.stdout);
    assert!(logs.contains(guest::HELLO), "{logs}");
    assert!(nobody.run(&["down", "user"]).status.success());
    assert_eq!(nobody.things(), 0);

    // What only root can do is refused, and leaves nothing.
    let refused = |kind: Kind| {
        let fixture = Fixture::new(&machine, "user", kind);
        let rights = fixture.disk.as_ref().filter(|_| kind == Kind::DiskImage);
        if let Some(disk) = rights {
            std::os::unix::fs::chown(disk, Some(65534), Some(65534)).unwrap();
        }
        let output = nobody.run(&["up", "-f", &fixture.manifest]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(nobody.things(), 0);
        String::from_utf8(output.stderr).unwrap()
    };
    let raw = refused(Kind::RawDevice);
    assert!(raw.contains("disk data: /dev/loop"), "{raw}");
    assert!(raw.contains("Permission denied"), "{raw}");
    let image = refused(Kind::DiskImage);
    assert!(image.contains("disk data: "), "{image}");
    assert!(image.contains("cannot be mounted on"), "{image}");
    assert!(image.contains("disk images of claims need root"), "{image}");
}
