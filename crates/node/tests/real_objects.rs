//! VM objects whose disks are on this machine: copies of images and claims,
//! disk images that are made, UEFI, and VMs that shall not run.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::fixtures::LoopDevice;
use support::foreign::ForeignQemu;
use support::terminal::Terminal;
use support::{Machine, guest};

const MODES: [&str; 3] = ["clone", "copy-on-write", "copy-on-read"];

/// A VM object with these disks, and the objects that it needs.
fn vm(name: &str, spec: &str, disks: &str, objects: &str) -> String {
    format!(
        "apiVersion: disklet.io/v1alpha1\nkind: VM\nmetadata: {{name: {name}}}\nspec:\n{spec}  domain:\n    memory: 64Mi\n\
         \x20   devices:\n      disks:\n{disks}{objects}"
    )
}

const IMAGE: &str = "      - source: {image: {name: virtlet.cloud/tiny}}\n";
const CLAIM: &str = "      - source: {pvc: {claimname: data}}\n";

fn with_copy(disk: &str, mode: &str) -> String {
    format!("{disk}        copy: {{mode: {mode}}}\n")
}

/// A claim for a path of the machine.
fn claim(mode: &str, path: &str) -> String {
    let spec = format!("accessModes: [ReadWriteOnce], volumeMode: {mode}, storageClassName: ''");
    format!(
        "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: data}}\n\
         spec: {{{spec}, resources: {{requests: {{storage: 1Mi}}}}}}\n\
         ---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {{name: data}}\n\
         spec: {{{spec}, capacity: {{storage: 8Mi}}, hostPath: {{path: {path}}}}}\n"
    )
}

fn write(machine: &Machine, name: &str, text: String) -> String {
    let file = machine.write(&format!("{name}.yaml"), text);
    file.display().to_string()
}

/// A directory with this disk in it, as a claim has it.
fn volume_with(machine: &Machine, disk: &[u8]) -> (String, PathBuf) {
    let volume = machine.path("volume");
    std::fs::create_dir_all(&volume).unwrap();
    let file = machine.write("volume/disk.img", disk);
    (claim("Filesystem", volume.to_str().unwrap()), file)
}

/// What the guest wrote to its copy.
fn written(machine: &Machine, mode: &str) -> Vec<u8> {
    let copy = machine.volume("-sda");
    let mut seen = vec![0; guest::GREETING.len()];
    match mode {
        "clone" => {
            let copy = std::fs::File::open(copy).unwrap();
            copy.read_exact_at(&mut seen, guest::COPY).unwrap();
        }
        _ => {
            let header = std::fs::read(&copy).unwrap();
            assert_eq!(&header[..4], b"QFI\xfb");
            seen = overlay_bytes(machine, &copy, guest::COPY, seen.len());
        }
    }
    seen
}

/// Bytes of an overlay alone: what is below it may be hidden by now.
fn overlay_bytes(machine: &Machine, overlay: &Path, offset: u64, length: usize) -> Vec<u8> {
    let raw = machine.path("alone");
    let alone = serde_json::json!({
        "driver": "qcow2", "backing": null,
        "file": {"driver": "file", "filename": overlay},
    });
    let output = Command::new("qemu-img")
        .args(["convert", "-O", "raw", &format!("json:{alone}")])
        .arg(&raw)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut bytes = vec![0; length];
    let raw = std::fs::File::open(raw).unwrap();
    raw.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// Boots a guest from each kind of copy of a master, which it does not change.
fn assert_copied(machine: &Machine, name: &str, disk: &str, objects: &str, master: &Path) {
    let before = machine.things();
    let bytes = std::fs::read(master).unwrap();
    for mode in MODES {
        let name = format!("{name}-{mode}");
        let text = vm(&name, "", &with_copy(disk, mode), objects);
        let manifest = write(machine, &name, text);
        machine.run_to_end(&manifest);
        assert_eq!(written(machine, mode), guest::GREETING, "{name}");
        assert!(std::fs::read(master).unwrap() == bytes, "{name}: changed");
        machine.done(&["down", &name, "--grace", "0"]);
        assert!(std::fs::read(master).unwrap() == bytes, "{name}: changed");
        assert_eq!(machine.things(), before);
    }
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn guests_boot_from_copies_of_an_image() {
    let machine = Machine::new("object-image");
    let digest = machine.add_image("tiny", &guest::disk());
    let data = machine.path("data");
    let store = disklet::store::Store::of(data.to_str().unwrap());
    let master = store.disk(&digest);
    assert_copied(&machine, "object-image", IMAGE, "", &master);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn guests_boot_from_copies_of_a_disk_image() {
    let machine = Machine::new("object-file");
    let (claim, master) = volume_with(&machine, &guest::disk());
    assert_copied(&machine, "object-file", CLAIM, &claim, &master);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn guests_boot_from_copies_of_a_device() {
    let machine = Machine::new("object-device");
    let file = machine.write("device.img", guest::disk());
    let device = LoopDevice::attach(&file);
    let master = Path::new(&device.path);
    let claim = claim("Block", &device.path);
    assert_copied(&machine, "object-device", CLAIM, &claim, master);
}

/// Many may read a master at once; nobody may write to it meanwhile.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn copies_of_one_master_run_at_once() {
    let machine = Machine::new("object-readers");
    let file = machine.write("device.img", guest::waiting_disk());
    let device = LoopDevice::attach(&file);
    let of_device = claim("Block", &device.path);
    let (of_file, _) = volume_with(&machine, &guest::waiting_disk());
    let before = machine.things();
    for (kind, objects) in [("device", of_device), ("file", of_file)] {
        let manifest = |name: &str, disk: &str| {
            let name = format!("object-{kind}-{name}");
            write(&machine, &name, vm(&name, "", disk, &objects))
        };
        let reader = |name: &str| manifest(name, &with_copy(CLAIM, "copy-on-write"));
        let readers = ["one", "two", "three"];
        for name in readers {
            machine.done(&["up", "-f", &reader(name)]);
        }
        let writer = manifest("writer", CLAIM);
        let refused = machine.refused(&["up", "-f", &writer]);
        let holder = format!("in use by VM default/object-{kind}-");
        assert!(refused.contains(&holder), "{refused}");
        let names = readers.map(|name| format!("object-{kind}-{name}"));
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        machine.done(&[&["down", "--grace", "0"], &names[..]].concat());
        machine.done(&["up", "-f", &writer]);
        let late = machine.refused(&["up", "-f", &reader("late")]);
        let holder = format!("in use by VM default/object-{kind}-writer");
        assert!(late.contains(&holder), "{late}");
        let writer = format!("object-{kind}-writer");
        machine.done(&["down", &writer, "--grace", "0"]);
        assert_eq!(machine.things(), before);
    }
}

/// A clone needs its master only while it is copied: another VM may write to the
/// master while the clone runs, and the clone may start while the other does.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_master_is_free_once_it_is_cloned() {
    let machine = Machine::new("object-cloned");
    let file = machine.write("device.img", guest::waiting_disk());
    let device = LoopDevice::attach(&file);
    let of_device = claim("Block", &device.path);
    let (of_file, _) = volume_with(&machine, &guest::waiting_disk());
    let before = machine.things();
    for (kind, objects) in [("device", of_device), ("file", of_file)] {
        let [cloner, writer] =
            ["cloner", "clone-writer"].map(|name| format!("object-{kind}-{name}"));
        let of = |name: &str, disk: &str| write(&machine, name, vm(name, "", disk, &objects));
        let cloning = of(&cloner, &with_copy(CLAIM, "clone"));
        let writing = of(&writer, CLAIM);
        machine.done(&["up", "-f", &cloning]);
        machine.done(&["up", "-f", &writing]);
        // Whoever would copy now is refused; who has its copy is not.
        let late = format!("object-{kind}-cloner-late");
        let late = machine.refused(&["up", "-f", &of(&late, &with_copy(CLAIM, "clone"))]);
        let holder = format!("in use by VM default/{writer}");
        assert!(late.contains(&holder), "{late}");
        machine.destroy(&cloner);
        machine.done(&["up", "-f", &cloning]);
        machine.done(&["down", &cloner, &writer, "--grace", "0"]);
        assert_eq!(machine.things(), before);
    }
}

/// A master with these bytes, as a device and as a file: what it is called, the
/// objects that it is claimed by, and the path that users know.
fn masters(machine: &Machine, disk: &[u8]) -> ([(&'static str, String, String); 2], LoopDevice) {
    let device = LoopDevice::attach(&machine.write("device.img", disk));
    let (of_file, file) = volume_with(machine, disk);
    let of_device = claim("Block", &device.path);
    let masters = [
        ("device", of_device, device.path.clone()),
        ("file", of_file, file.display().to_string()),
    ];
    (masters, device)
}

/// A copy of what somebody writes to meanwhile is of no use.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_master_that_some_qemu_writes_to_is_not_cloned() {
    let machine = Machine::new("object-torn");
    let (masters, _device) = masters(&machine, &guest::disk());
    let before = machine.things();
    for (kind, objects, path) in masters {
        let name = format!("object-torn-{kind}");
        let text = vm(&name, "", &with_copy(CLAIM, "clone"), &objects);
        let manifest = write(&machine, &name, text);
        let foreign = ForeignQemu::with(&path);
        let refused = machine.refused(&["up", "-f", &manifest]);
        let why = format!("disk sda: {path}: cannot be cloned: another process is writing to it");
        assert!(refused.contains(&why), "{refused}");
        assert!(refused.contains("help: "), "{refused}");
        assert_eq!(machine.things(), before, "{kind}");
        drop(foreign);
        machine.run_to_end(&manifest);
        machine.done(&["down", &name]);
        assert_eq!(machine.things(), before, "{kind}");
    }
}

/// Whoever looks on sees how far it is.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_clone_tells_how_far_it_is() {
    let machine = Machine::new("object-told");
    let (objects, _) = volume_with(&machine, &vec![0xa5; 768 << 20]);
    let text = vm("object-told", "", &with_copy(CLAIM, "clone"), &objects);
    let manifest = write(&machine, "object-told", text);
    let (code, said) = Terminal::run(&machine, &["up", "-f", &manifest]).end();
    assert_eq!(code, 0, "{said}");
    let (_, bars) = said.split_once("copying all of it").unwrap();
    let shares = bars
        .split(" %, ")
        .filter_map(|before| before.rsplit(' ').next());
    let shares: Vec<u32> = shares.filter_map(|share| share.parse().ok()).collect();
    assert!(shares.is_sorted(), "{shares:?}");
    assert!(
        shares.iter().any(|share| (1..100).contains(share)),
        "{said}"
    );
    machine.done(&["down", "object-told", "--grace", "0"]);
}

/// The other way round: who would write to it while it is copied has to wait.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn nobody_writes_to_a_master_while_it_is_cloned() {
    let machine = Machine::new("object-held");
    let (masters, _device) = masters(&machine, &vec![0xa5; 256 << 20]);
    for (kind, objects, path) in masters {
        let name = format!("object-held-{kind}");
        let text = vm(&name, "", &with_copy(CLAIM, "clone"), &objects);
        let manifest = write(&machine, &name, text);
        let mut up = machine
            .command(&["up", "-f", &manifest])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(up.stderr.take().unwrap()).lines();
        // Whoever looks into a log learns what takes so long.
        let first = said.next().unwrap().unwrap();
        assert_eq!(first, format!("{path}: copying all of it"));
        send(&up, "STOP");
        let write = |how: &[&str]| {
            let output = Command::new("qemu-io")
                .args(["-f", "raw"])
                .args(how)
                .arg(&path)
                .output()
                .unwrap();
            (
                output.status.success(),
                String::from_utf8(output.stderr).unwrap(),
            )
        };
        let (written, why) = write(&["-c", "write -P 1 0 512"]);
        assert!(!written && why.contains("lock"), "{why}");
        let (read, why) = write(&["-r", "-c", "read 0 512"]);
        assert!(read, "{why}");
        send(&up, "TERM");
        send(&up, "CONT");
        assert_eq!(up.wait().unwrap().code(), Some(130), "it was not done yet");
        let (written, why) = write(&["-c", "write -P 0xa5 0 512"]);
        assert!(written, "{why}");
    }
}

fn send(process: &Child, signal: &str) {
    let pid = process.id().to_string();
    let sent = Command::new("kill").args(["-s", signal, &pid]).status();
    assert!(sent.unwrap().success());
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_disk_image_is_made_once_and_stays() {
    let machine = Machine::new("object-created");
    machine.add_image("tiny", &guest::disk());
    let volume = machine.path("volume");
    std::fs::create_dir_all(&volume).unwrap();
    let file = volume.join("disk.img");
    let claim = claim("Filesystem", volume.to_str().unwrap());
    let made = |create: bool| {
        let disk = format!("      - source: {{pvc: {{claimname: data, create: {create}}}}}\n");
        let text = vm("object-created", "", &format!("{IMAGE}{disk}"), &claim);
        write(&machine, "object-created", text)
    };
    let before = machine.things();
    let missing = machine.refused(&["up", "-f", &made(false)]);
    assert!(missing.contains("disk.img, which is not"), "{missing}");
    assert!(!file.exists());
    machine.run_to_end(&made(true));
    // What the claim asks for, not what its volume has.
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    let open = std::fs::File::options().write(true).open(&file).unwrap();
    open.write_all_at(b"somebody's", 0).unwrap();
    for _ in 0..2 {
        machine.done(&["down", "object-created", "--grace", "0"]);
        assert_eq!(machine.things(), before);
        assert_eq!(&std::fs::read(&file).unwrap()[..10], b"somebody's");
        machine.run_to_end(&made(true));
    }
    machine.done(&["down", "object-created", "--grace", "0"]);
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
}

/// No disk has so much room, and none that is made would help.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_disk_image_beyond_every_filesystem_is_no_lack_of_room() {
    let machine = Machine::new("object-vast");
    machine.add_image("tiny", &guest::disk());
    let volume = machine.path("volume");
    std::fs::create_dir_all(&volume).unwrap();
    let claim = claim("Filesystem", volume.to_str().unwrap()).replace("1Mi", "7Ei");
    let disk = "      - source: {pvc: {claimname: data, create: true}}\n";
    let text = vm("object-vast", "", &format!("{IMAGE}{disk}"), &claim);
    let manifest = write(&machine, "object-vast", text.replace("8Mi", "7Ei"));
    let before = machine.things();
    let refused = machine.refused(&["up", "-f", &manifest]);
    assert!(refused.contains("disk.img: cannot be made"), "{refused}");
    assert!(refused.contains("make it smaller"), "{refused}");
    assert!(!refused.contains("make room"), "{refused}");
    assert_eq!(machine.things(), before);
}

/// Where a name leads to is seen on the machine only.
#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_name_that_leads_into_a_closed_network_is_refused() {
    let machine = Machine::new("object-closed");
    let disk = "      - source: {nbd: {host: localhost, export: x}}\n";
    let manifest = write(&machine, "object-closed", vm("object-closed", "", disk, ""));
    let before = machine.things();
    // Nobody listens there, but that is for QEMU to find out.
    let open = machine.refused(&["up", "-f", &manifest]);
    assert!(!open.contains("network"), "{open}");
    let config = machine.path("config.yaml");
    let text = std::fs::read_to_string(&config).unwrap();
    let closed = format!("{text}networks: {{deny: [127.0.0.0/8, \"::1\"]}}\n");
    std::fs::write(&config, closed).unwrap();
    let refused = machine.refused(&["up", "-f", &manifest]);
    let leads = "disk sda: localhost leads to ";
    assert!(refused.contains(leads), "{refused}");
    assert!(
        refused.contains("where VMs may not have disks"),
        "{refused}"
    );
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn uefi_starts_and_its_variables_go_with_the_vm() {
    let machine = Machine::new("object-uefi");
    machine.add_image("tiny", &guest::disk());
    let text = vm("object-uefi", "", IMAGE, "");
    let text = text.replace("    memory:", "    firmware: {type: uefi}\n    memory:");
    let manifest = write(&machine, "object-uefi", text);
    let before = machine.things();
    machine.done(&["up", "-f", &manifest]);
    let uuid = machine.uuid();
    let variables = machine.path(&format!("data/uefi/{uuid}.fd"));
    let template = "/usr/share/OVMF/OVMF_VARS_4M.fd";
    let size = |path: &Path| path.metadata().unwrap().len();
    assert_eq!(size(&variables), size(Path::new(template)));
    let running = machine.virsh_done(&["dumpxml", &uuid]);
    assert!(running.contains("type='pflash'"), "{running}");
    // The firmware says what it does on the serial console, and has begun.
    machine.until_it_says("object-uefi", "BdsDxe");
    // Those of a VM that is kept are kept as well.
    machine.done(&["down", "object-uefi", "--keep-volumes", "--grace", "0"]);
    assert!(variables.exists());
    machine.done(&["down", "object-uefi"]);
    assert!(!variables.exists());
    assert_eq!(machine.things(), before);
}

#[test]
#[ignore = "needs a private libvirtd: script/test"]
fn a_vm_that_shall_not_run_is_prepared_only() {
    let machine = Machine::new("object-off");
    machine.add_image("tiny", &guest::waiting_disk());
    let manifest = |running: bool| {
        let spec = format!("  running: {running}\n");
        write(&machine, "object-off", vm("object-off", &spec, IMAGE, ""))
    };
    let before = machine.things();
    let (off, on) = (manifest(false), "default/object-off started\n");
    let prepared = "default/object-off is prepared and not started: running is false\n";
    for wait in [&[][..], &["--wait", "exit"], &["--wait", "ready"]] {
        assert_eq!(
            machine.done(&[&["up", "-f", &off], wait].concat()),
            prepared
        );
    }
    let uuid = machine.uuid();
    let state = machine.virsh_done(&["domstate", &uuid]);
    assert_eq!(state.trim(), "shut off");
    assert!(machine.volume("-sda").exists());

    let run = manifest(true);
    assert_eq!(machine.done(&["up", "-f", &run]), on);
    // Nobody's guest is ended by `up`.
    let off = manifest(false);
    let runs_on =
        "default/object-off is running, although running is false: disklet down ends it\n";
    assert_eq!(machine.done(&["up", "-f", &off, "--wait", "exit"]), runs_on);
    assert_eq!(machine.virsh_done(&["domstate", &uuid]).trim(), "running");
    machine.done(&["down", "object-off", "--grace", "0"]);
    assert_eq!(machine.things(), before);
}
