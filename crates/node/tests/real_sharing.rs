//! Devices that are one although they have two names.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use support::fixtures::{Fixture, Kind, LoopDevice};
use support::foreign::ForeignQemu;
use support::{Machine, guest};

/// The manifest of the same VM under another name, with another device.
fn with_device(machine: &Machine, fixture: &Fixture, name: &str, device: &str) -> String {
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let text = text
        .replace("name: part-base", &format!("name: {name}"))
        .replace(fixture.device(), device);
    let file = machine.write(&format!("{name}.yaml"), text);
    file.display().to_string()
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_disk_and_its_partition_are_one_device() {
    let machine = Machine::new("part");
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "part-base", Kind::RawDevice, &guest);
    let file = machine.write_zeroes("parted.img", 4 << 20);
    let disk = LoopDevice::attach_partitioned(&file);
    let whole = with_device(&machine, &fixture, "part-whole", &disk.path);
    let part = with_device(&machine, &fixture, "part-part", &disk.partition());
    for (first, first_name, second) in [(&whole, "part-whole", &part), (&part, "part-part", &whole)]
    {
        machine.done(&["up", "-f", first]);
        let before = machine.things();
        let refused = machine.refused(&["up", "-f", second]);
        let in_use = format!("is in use by VM default/{first_name}");
        assert!(refused.contains(&in_use), "{refused}");
        for name in [&disk.path, &disk.partition()] {
            assert!(refused.contains(&format!("{name} (")), "{refused}");
        }
        assert_eq!(machine.things(), before);
        // Only while it runs.
        machine.destroy(first_name);
        machine.done(&["up", "-f", second]);
        machine.done(&["down", "part-whole", "part-part", "--grace", "0"]);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_does_not_have_a_disk_and_its_partition() {
    let machine = Machine::new("part-both");
    let fixture = Fixture::new(&machine, "part-both", Kind::RawDevice);
    let file = machine.write_zeroes("parted.img", 4 << 20);
    let disk = LoopDevice::attach_partitioned(&file);
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let text = text.replace(fixture.device(), &disk.path);
    let (_, volume) = text.split_once("  volumes:\n").unwrap();
    let other = volume
        .replace("name: data", "name: part")
        .replace(&disk.path, &disk.partition());
    let both = machine.write("both.yaml", format!("{text}{other}"));
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", both.to_str().unwrap()]);
    assert_names_one_of(&refused, ["data", "part"]);
    assert_eq!(machine.things(), before);
}

fn assert_names_one_of(refused: &str, disks: [&str; 2]) {
    let named = disks.map(|disk| refused.contains(&format!("disk {disk}: ")));
    assert!(
        named.contains(&true) && refused.contains("is another disk of this VM"),
        "{refused}"
    );
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_node_that_nobody_has_goes_with_its_last_user() {
    let machine = Machine::new("part-moves");
    let fixture = Fixture::new(&machine, "part-moves", Kind::RawDevice);
    let before = machine.things();
    machine.run_to_end(&fixture.manifest);
    let another = LoopDevice::attach(&machine.write_zeroes("another.img", 4 << 20));
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let moved = machine.write("moved.yaml", text.replace(fixture.device(), &another.path));
    machine.run_to_end(moved.to_str().unwrap());
    machine.done(&["down", "part-moves", "--grace", "0"]);
    drop(another);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn readers_share_a_device_and_a_writer_does_not() {
    let machine = Machine::new("readers");
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(&machine, "readers-base", Kind::RawDevice, &guest);
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let vm = |name: &str, is_reader: bool| {
        let text = text.replace("name: readers-base", &format!("name: {name}"));
        let text = match is_reader {
            true => text.replace("options:", "readOnly: true\n      options:"),
            false => text,
        };
        let file = machine.write(&format!("{name}.yaml"), text);
        file.display().to_string()
    };
    let [one, two] = ["readers-one", "readers-two"].map(|name| vm(name, true));
    let writer = vm("readers-writer", false);
    machine.done(&["up", "-f", &one]);
    machine.done(&["up", "-f", &two]);
    let refused = machine.refused(&["up", "-f", &writer]);
    let in_use = "is in use by VM default/readers-";
    assert!(refused.contains(in_use), "{refused}");
    machine.done(&["down", "readers-one", "readers-two", "--grace", "0"]);
    machine.done(&["up", "-f", &writer]);
    let refused = machine.refused(&["up", "-f", &one]);
    assert!(refused.contains(in_use), "{refused}");
    machine.done(&["down", "readers-writer", "--grace", "0"]);
}

/// A VM with a claim's `disk.img`, and a manifest of one with that as a device.
fn of_file_and_device(machine: &Machine, name: &str) -> (Fixture, String) {
    let guest = guest::waiting_disk();
    let fixture = Fixture::of_guest(machine, "part-base", Kind::RawDevice, &guest);
    let text = std::fs::read_to_string(&fixture.manifest).unwrap();
    let text = text.replace(fixture.device(), "DEVICE");
    let fixture = Fixture::of_guest(machine, name, Kind::DiskImage, &guest);
    (fixture, text)
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_file_and_the_loop_devices_that_show_it_are_one_disk() {
    let machine = Machine::new("layers");
    let (file, text) = of_file_and_device(&machine, "layers-file");
    let up = ["up", "-f", file.manifest.as_str()];
    let image = file.disk.clone().unwrap();
    machine.done(&up);
    let devices = [(); 2].map(|()| LoopDevice::attach(&image));
    let [one, two] = ["layers-one", "layers-two"].map(|name| {
        let device = &devices[usize::from(name == "layers-two")].path;
        let text = text.replace("part-base", name).replace("DEVICE", device);
        let file = machine.write(&format!("{name}.yaml"), text);
        file.display().to_string()
    });
    // Both names of the file, for whoever looks for the reason.
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", &one]);
    for part in [
        "is in use by VM default/layers-file",
        devices[0].path.as_str(),
        image.to_str().unwrap(),
    ] {
        assert!(refused.contains(part), "{refused}");
    }
    assert_eq!(machine.things(), before);
    machine.done(&["down", "layers-file", "--grace", "0"]);

    machine.done(&["up", "-f", &one]);
    for second in [&two, &file.manifest] {
        let refused = machine.refused(&["up", "-f", second]);
        let in_use = "is in use by VM default/layers-one";
        assert!(refused.contains(in_use), "{refused}");
    }
    // Only while it runs.
    machine.destroy("layers-one");
    machine.done(&["up", "-f", &two]);
    machine.done(&["down", "layers-one", "layers-two", "--grace", "0"]);

    drop(devices);
    machine.done(&up);
    machine.done(&["down", "layers-file", "--grace", "0"]);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_file_that_the_machine_has_attached_is_left_alone() {
    let machine = Machine::new("attached");
    let (file, _) = of_file_and_device(&machine, "attached");
    let up = ["up", "-f", file.manifest.as_str()];
    let image = file.disk.clone().unwrap();
    let before = machine.things();
    let device = LoopDevice::attach(&image);
    let refused = machine.refused(&up);
    for part in [
        format!("disk data: {} is in use", image.display()),
        format!("losetup -d {}", device.path),
    ] {
        assert!(refused.contains(&part), "{refused}");
    }
    drop(device);
    assert_eq!(machine.things(), before);

    // Two who only read do not disturb each other.
    let text = std::fs::read_to_string(&file.manifest).unwrap();
    let text = text.replace("claimName: data", "claimName: data, readOnly: true");
    let reader = machine.write("reader.yaml", text).display().to_string();
    let device = LoopDevice::attach_read_only(&image);
    machine.done(&["up", "-f", &reader]);
    machine.done(&["down", "attached", "--grace", "0"]);
    let refused = machine.refused(&up);
    assert!(refused.contains(&device.path), "{refused}");
    drop(device);
    machine.done(&up);
    machine.done(&["down", "attached", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_does_not_have_a_file_and_a_loop_device_over_it() {
    let machine = Machine::new("layers-both");
    let (file, text) = of_file_and_device(&machine, "layers-both");
    let device = LoopDevice::attach(&file.disk.clone().unwrap());
    let (_, volume) = text.split_once("  volumes:\n").unwrap();
    let volume = volume
        .replace("name: data", "name: again")
        .replace("DEVICE", &device.path);
    let text = std::fs::read_to_string(&file.manifest).unwrap();
    let text = text.replace("  volumes:\n", &format!("  volumes:\n{volume}"));
    let both = machine.write("both.yaml", text);
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", both.to_str().unwrap()]);
    assert_names_one_of(&refused, ["data", "again"]);
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_device_of_somebody_elses_qemu_is_left_alone() {
    let machine = Machine::new("foreign-qemu");
    let fixture = Fixture::new(&machine, "foreign-qemu", Kind::RawDevice);
    let before = machine.things();
    let foreign = ForeignQemu::with(fixture.device());
    let refused = machine.refused(&["up", "-f", &fixture.manifest]);
    drop(foreign);
    assert!(refused.contains("is in use"), "{refused}");
    assert!(refused.contains("disk data"), "{refused}");
    assert_eq!(machine.things(), before);
    machine.done(&["up", "-f", &fixture.manifest]);
    machine.done(&["down", "foreign-qemu", "--grace", "0"]);
}
