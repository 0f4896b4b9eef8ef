//! Disks that come, grow and go while a guest runs.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[allow(dead_code, reason = "others cut the rest")]
#[path = "kills/shown.rs"]
mod shown;
#[path = "live/vm.rs"]
mod vm;

mod support;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use shown::Shown;
use support::Machine;
use vm::{
    deaf, disks, looking, marked_device, marked_image, round, sixth_sector, targets, until_seen,
};

/// A guest with Linux sees a disk come, reads what the machine wrote, sees it
/// grow, and sees it go; the machine has what the guest wrote.
fn a_guest_sees_disks_come_grow_and_go(bus: &str) {
    let name = format!("live-{bus}");
    let machine = Machine::new(&name);
    let (claim, image) = marked_image(&machine, "one", 8 << 20);
    let (block, device) = marked_device(&machine, "two", 6 << 20);
    let nothing = machine.things();
    let manifest = looking(&machine, &name);
    machine.until_it_says(&name, "ROUND");
    let before = machine.things();

    let attach = ["disk", "attach", &name, "--bus", bus];
    let one = ["--claim", "one", "--name", "one", "-f", &claim];
    let said = machine.done(&[&attach[..], &one].concat());
    assert!(said.contains(" has disk one at "), "{said}");
    let two = [
        "--claim", "two", "--name", "two", "-f", &block, "-o", "json",
    ];
    let said = machine.done(&[&attach[..], &two].concat());
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["name"], &said["bus"]), (&"two".into(), &bus.into()));
    let three = ["--image", "virtlet.cloud/small", "--name", "three"];
    machine.done(&[&attach[..], &three].concat());
    let serial = |name: &str| format!("serial={name} ");
    let sees = |disk: &str, size: u64| {
        let size = format!("size={size} ");
        until_seen(
            &machine,
            &name,
            &[&serial(disk), &size, &format!("bus={bus} ")],
        );
    };
    sees("one", 8 << 20);
    sees("two", 6 << 20);
    let master = std::fs::metadata(support::guest::bootable("small"))
        .unwrap()
        .len();
    sees("three", master);
    until_seen(&machine, &name, &["READ one host-one"]);
    until_seen(&machine, &name, &["READ two host-two"]);
    assert_eq!(
        disks(&machine, &name),
        ["root", "cloud-init", "one", "two", "three"]
    );
    let shown = machine.done(&["describe", &name]);
    assert_eq!(shown.matches("attached while it ran").count(), 3, "{shown}");
    let shown = machine.done(&["ps", "-o", "json"]);
    assert!(shown.contains("\"disks\": 5"), "{shown}");
    let [now, defined] = targets(&machine, &name);
    assert_eq!(now, defined);
    assert_eq!(now.len(), 5);

    // A VM that has them runs on as it is, and says what its manifests lack.
    let output = machine.node(&["up", "-f", &manifest]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said.matches("which was attached while it ran").count(),
        3,
        "{said}"
    );
    assert!(!said.contains("takes effect only after"), "{said}");

    let resize = |disk: &str, size: &[&str]| {
        let words = ["disk", "resize", &name, disk];
        machine.done(&[&words[..], size].concat())
    };
    resize("one", &["12Mi"]);
    sees("one", 12 << 20);
    resize("three", &["20Mi"]);
    sees("three", 20 << 20);
    resize("root", &["32Mi"]);
    let size = format!("size={} ", 32 << 20);
    until_seen(&machine, &name, &[&serial("root"), &size]);
    let file = File::options().write(true).open(machine.path("two.device"));
    file.unwrap().set_len(7 << 20).unwrap();
    let told = Command::new("losetup").args(["-c", &device.path]).status();
    assert!(told.unwrap().success());
    let refused = machine.refused(&["disk", "resize", &name, "two", "8Mi"]);
    assert!(
        refused.contains("the device behind it has 7 MiB, not 8 MiB"),
        "{refused}"
    );
    resize("two", &[]);
    sees("two", 7 << 20);
    let again = resize("two", &["7Mi"]);
    assert!(again.contains("of 7 MiB already"), "{again}");
    let shrunk = machine.refused(&["disk", "resize", &name, "one", "4Mi"]);
    assert!(
        shrunk.contains("it has 12 MiB, and disks do not shrink to 4 MiB"),
        "{shrunk}"
    );

    for disk in ["one", "two", "three"] {
        let said = machine.done(&["disk", "detach", &name, disk]);
        assert_eq!(said, format!("default/{name} has let go of disk {disk}\n"));
    }
    let now = round(&machine, &name);
    for disk in ["one", "two", "three"] {
        assert!(!now.contains(&serial(disk)), "{now}");
    }
    assert_eq!(machine.things(), before);
    assert_eq!(sixth_sector(&image), "guest-one");
    assert_eq!(image.metadata().unwrap().len(), 12 << 20);
    assert_eq!(sixth_sector(&device.path), "guest-two");
    let [now, defined] = targets(&machine, &name);
    assert_eq!((now.len(), defined.len()), (2, 2));

    // What was attached goes with the VM as well.
    machine.done(&[&attach[..], &three].concat());
    machine.done(&[&attach[..], &one].concat());
    machine.done(&["down", &name, "--grace", "0"]);
    assert_eq!(machine.things(), nothing);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_guest_sees_disks_on_scsi_come_grow_and_go() {
    a_guest_sees_disks_come_grow_and_go("scsi");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_guest_sees_disks_on_virtio_come_grow_and_go() {
    a_guest_sees_disks_come_grow_and_go("virtio");
}

/// A guest that hears nothing keeps its disk, and everybody is told.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_guest_that_does_not_let_go_keeps_its_disk() {
    let name = "live-deaf";
    let machine = Machine::new(name);
    let nothing = machine.things();
    deaf(&machine, name);
    let (claim, image) = marked_image(&machine, "one", 8 << 20);
    let attach = [
        "disk", "attach", name, "--bus", "virtio", "--claim", "one", "-f", &claim,
    ];
    machine.done(&attach);
    let detach = ["disk", "detach", name, "vda", "--timeout", "2s"];
    for _ in 0..2 {
        let said = machine.refused(&detach);
        assert!(
            said.contains("disk vda: the guest has not let go of it within 2 seconds"),
            "{said}"
        );
    }
    let shown = machine.done(&["describe", name]);
    assert!(
        shown.contains("the guest was asked to let go of it"),
        "{shown}"
    );
    let [now, defined] = targets(&machine, name);
    assert_eq!((now.len(), defined.len()), (2, 2));
    // Nobody else gets it meanwhile.
    let other = "live-deaf-other";
    let text = format!(
        "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {{name: {other}}}\nspec: {{domain: {{memory: 64Mi, devices: {{disks: [{{source: {{pvc: {{claimname: one}}}}}}]}}}}}}\n"
    );
    let manifest = machine.write("other.yaml", text).display().to_string();
    let said = machine.refused(&["up", "-f", &manifest, "-f", &claim]);
    assert!(
        said.contains(&format!("is in use by VM default/{name}")),
        "{said}"
    );
    machine.done(&["gc"]);
    assert_eq!(disks(&machine, name), ["root", "vda"]);
    // A guest that is gone has let go.
    machine.destroy(name);
    machine.done(&["gc"]);
    assert_eq!(disks(&machine, name), ["root"]);
    assert_eq!(image.metadata().unwrap().len(), 8 << 20);
    machine.done(&["down", name]);
    assert_eq!(machine.things(), nothing);
}

/// Who was told that the disk stays finds what was written to it, however the guest ends.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_detach_that_a_guest_did_not_hear_takes_no_data() {
    let name = "live-kept";
    let machine = Machine::new(name);
    let nothing = machine.things();
    let manifest = deaf(&machine, name);
    let image = ["--image", "virtlet.cloud/tiny", "--name", "more"];
    let attach = [&["disk", "attach", name, "--bus", "virtio"][..], &image].concat();
    let detach = ["disk", "detach", name, "more", "--timeout", "1s"];
    for keep in [false, true] {
        machine.done(&attach);
        let overlay = machine.volume("-more");
        let made = overlay.metadata().unwrap().ino();
        machine.refused(&detach);
        match keep {
            true => drop(machine.done(&["down", name, "--grace", "0", "--keep-volumes"])),
            false => machine.destroy(name),
        }
        machine.done(&["gc"]);
        machine.done(&["up", "-f", &manifest]);
        assert_eq!(disks(&machine, name), ["root"]);
        machine.done(&attach);
        assert_eq!(overlay.metadata().unwrap().ino(), made, "kept: {keep}");
        machine.destroy(name);
        machine.done(&["up", "-f", &manifest]);
    }
    machine.done(&["down", name, "--grace", "0"]);
    assert_eq!(machine.things(), nothing);
}

/// A VM that has ended is started with what its manifests say.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_that_is_started_again_has_the_disks_of_its_manifests() {
    let name = "live-again";
    let machine = Machine::new(name);
    let nothing = machine.things();
    let manifest = deaf(&machine, name);
    let attach = [
        "disk",
        "attach",
        name,
        "--image",
        "virtlet.cloud/tiny",
        "--name",
        "more",
    ];
    machine.done(&attach);
    machine.destroy(name);
    let output = machine.node(&["up", "-f", &manifest]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("disk more was attached while it ran, and is not in the manifests: it is started without it"),
        "{said}"
    );
    assert_eq!(disks(&machine, name), ["root"]);
    // Its volume was kept.
    machine.done(&attach);
    assert_eq!(disks(&machine, name), ["root", "more"]);
    machine.done(&["down", name, "--grace", "0"]);
    assert_eq!(machine.things(), nothing);
}

/// What cannot be done says why, and leaves nothing.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn what_cannot_be_done_says_so() {
    let name = "live-refused";
    let machine = Machine::new(name);
    let manifest = deaf(&machine, name);
    let (claim, _) = marked_image(&machine, "one", 8 << 20);
    let (block, _device) = marked_device(&machine, "two", 6 << 20);
    machine.done(&[
        "disk", "attach", name, "--claim", "two", "--name", "data", "-f", &block,
    ]);
    let before = machine.things();
    let image = "source: {image: {name: virtlet.cloud/tiny}}\n";
    let cases = [
        (
            format!("{image}target: {{bus: sata}}\n"),
            "nothing can be put on the sata bus while the VM runs",
        ),
        (
            format!("{image}device: cdrom\n"),
            "a CD-ROM cannot be put into a VM that runs",
        ),
        (
            format!("{image}bootOrder: 2\n"),
            "a VM that runs has booted",
        ),
        (
            format!("{image}name: data\n"),
            "the VM has a disk of this name already",
        ),
        (
            format!("{image}serial: data\n"),
            "the VM has a disk of this serial number already",
        ),
        (
            format!("{image}target: {{device: sda}}\n"),
            "the VM has a disk at this target already",
        ),
        (
            format!("{image}target: {{device: sdzz}}\n"),
            "not a target on the scsi bus",
        ),
        (
            format!("{image}access-mode: write-exclusive\n"),
            "access-mode",
        ),
        (format!("{image}sise: 5\n"), "sise"),
        (
            format!("- {image}- {image}"),
            "one disk is attached at a time",
        ),
        (
            std::fs::read_to_string(&manifest).unwrap(),
            "a whole VM is not a disk",
        ),
        (
            std::fs::read_to_string(&claim).unwrap(),
            "there is no disk in the input",
        ),
        (
            "source: {pvc: {claimname: none}}\n".to_owned(),
            "the claim none is missing",
        ),
        (
            format!(
                "source: {{pvc: {{claimname: two}}}}\n---\n{}",
                std::fs::read_to_string(&block).unwrap()
            ),
            "one claim cannot be two disks",
        ),
        (
            "source: {nbd: {host: {name: 127.0.0.1, port: 9}, export: x}}\n".to_owned(),
            "the disk cannot be attached",
        ),
    ];
    for (text, words) in cases {
        let file = machine.write("disk.yaml", &text).display().to_string();
        let said = machine.refused(&["disk", "attach", name, "-f", &file]);
        assert!(said.contains(words), "{text}\n{said}");
        assert_eq!(machine.things(), before, "{text}");
    }
    for (words, message) in [
        (
            &["detach", name, "root"][..],
            "disk root (sda): the guest boots from it",
        ),
        (&["detach", name, "dota"], "the VM has no disk \"dota\""),
        (
            &["resize", name, "data", "64Mi"],
            "the device behind it has 6 MiB, not 64 MiB",
        ),
        (
            &["resize", name, "root"],
            "disk root (sda): how large it shall be is not said",
        ),
        (
            &["resize", name, "root", "512Ki"],
            "it has 1 MiB, and disks do not shrink to 512 KiB",
        ),
        (
            &["resize", name, "root", "16Ti"],
            "no volume can have 16 TiB",
        ),
        (
            &["detach", "nobody", "root"],
            "there is no VM default/nobody on this machine",
        ),
    ] {
        let said = machine.refused(&[&["disk"][..], words].concat());
        assert!(said.contains(message), "{words:?}\n{said}");
        assert!(said.contains("help: "), "{said}");
    }
    // Two writers of one storage, whichever VM they are of.
    let other = "live-refused-other";
    let manifest = deaf(&machine, other);
    let said = machine.refused(&["disk", "attach", other, "--claim", "two", "-f", &block]);
    assert!(
        said.contains(&format!("is in use by VM default/{name}")),
        "{said}"
    );
    machine.destroy(other);
    let said = machine.refused(&["disk", "attach", other, "--claim", "one", "-f", &claim]);
    assert!(said.contains("does not run"), "{said}");
    drop(manifest);
    machine.done(&["down", name, other, "--grace", "0"]);
}

/// How often a command is killed at most.
const MOST: u32 = 60;

/// Kills a command at each boundary; each time the VM has to be as before or as
/// after, and can be brought back.
fn at_every_boundary(
    machine: &Machine,
    command: &[&str],
    mut after: impl FnMut(u32),
) -> BTreeSet<String> {
    let mut cuts = BTreeSet::new();
    for boundary in 1..MOST {
        let Some(cut) = machine.killed(command, boundary) else {
            return cuts;
        };
        cuts.insert(cut);
        after(boundary);
    }
    panic!("still killed at boundary {MOST}");
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_command_that_is_killed_is_finished_or_undone() {
    let name = "live-killed";
    let machine = Machine::new(name);
    let (claim, _) = marked_image(&machine, "one", 8 << 20);
    let (block, _device) = marked_device(&machine, "two", 6 << 20);
    let nothing = machine.things();
    deaf(&machine, name);
    let before = machine.things();
    let mut cuts = BTreeSet::new();
    let said = |more: &[&'static str], file: &str| {
        let words = ["disk", "attach", name, "--name", "more"];
        let mut words: Vec<String> = [&words[..], more]
            .concat()
            .iter()
            .map(|it| (*it).to_owned())
            .collect();
        if !file.is_empty() {
            words.extend(["-f".to_owned(), file.to_owned()]);
        }
        words
    };
    for command in [
        said(&["--image", "virtlet.cloud/tiny"], ""),
        said(&["--claim", "one"], &claim),
        said(&["--claim", "one", "--copy", "clone"], &claim),
        said(&["--claim", "two"], &block),
    ] {
        let attach: Vec<&str> = command.iter().map(String::as_str).collect();
        let detach = ["disk", "detach", name, "more"];
        // An attach is there or not, and what is there goes.
        let settled = |boundary: u32| {
            machine.done(&["gc"]);
            let [now, defined] = targets(&machine, name);
            assert_eq!(now, defined, "{attach:?}, boundary {boundary}");
            if disks(&machine, name).contains(&"more".to_owned()) {
                assert_eq!(now.len(), 2, "{attach:?}, boundary {boundary}");
                machine.done(&detach);
            }
            assert_eq!(targets(&machine, name)[0].len(), 1);
            assert_eq!(machine.things(), before, "{attach:?}, boundary {boundary}");
        };
        cuts.extend(at_every_boundary(&machine, &attach, settled));
        // It is there: a detach that is killed is finished by the next.
        cuts.extend(at_every_boundary(&machine, &detach, |boundary| {
            let output = machine.node(&detach);
            let gone = String::from_utf8_lossy(&output.stderr).contains("has no disk");
            assert!(output.status.success() || gone, "{output:?}");
            let said = format!("{attach:?}, boundary {boundary}");
            assert_eq!(disks(&machine, name), ["root"], "{said}");
            assert_eq!(machine.things(), before, "{said}");
            machine.done(&attach);
        }));
        assert_eq!(machine.things(), before, "{attach:?}");
    }
    let mut size = 2;
    loop {
        let wanted = format!("{size}Mi");
        let resize = ["disk", "resize", name, "root", &wanted];
        let Some(cut) = machine.killed(&resize, size - 1) else {
            break;
        };
        cuts.insert(cut);
        machine.done(&resize);
        let shown = machine.done(&["describe", name]);
        assert!(shown.contains(&format!("{size} MiB")), "{shown}");
        size += 1;
        assert!(size < MOST);
    }
    for step in Shown::WhileItRuns.steps() {
        let cut = format!("before {step:?}");
        assert!(cuts.contains(&cut), "never cut {cut}: {cuts:?}");
    }
    for cut in ["LettingGo", "Growing", "Noted", "Removing", "Done"] {
        assert!(cuts.contains(cut), "never cut at {cut}: {cuts:?}");
    }
    machine.done(&["down", name, "--grace", "0"]);
    assert_eq!(machine.things(), nothing);
}
