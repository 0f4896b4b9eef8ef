//! Images over others: which files they may lead to.

use std::fs;
use std::process::Command;

use crate::scratch::Scratch;

#[test]
fn overlays_are_made_and_opened_through_the_gate_only() {
    let scratch = Scratch::new("overlay");
    scratch.disk("base.raw", 2);
    let mut command = scratch.command("create -f qcow2 -F raw top.qcow2 -b");
    command.arg(scratch.path("base.raw"));
    assert!(command.output().unwrap().status.success());
    scratch.qemu("check -q top.qcow2");
    scratch.qemu("compare -q -f raw -F qcow2 base.raw top.qcow2");
    let told = scratch.fails(1, "convert -f qcow2 -O raw top.qcow2 x.raw");
    assert!(
        told.contains("may not name other files") && told.contains("--allow-below"),
        "{told}"
    );
    scratch.succeeds("compare -f qcow2 -F raw --allow-below . top.qcow2 base.raw");
    assert_eq!(scratch.names(), ["base.raw", "top.qcow2"]);
}

#[test]
fn relative_names_are_meant_from_the_directory_of_the_overlay() {
    let scratch = Scratch::new("relative");
    scratch.disk("disk.raw", 2);
    for directory in ["images", "vms", "vms/one"] {
        fs::create_dir(scratch.path(directory)).unwrap();
    }
    scratch.qemu("convert -f raw -O qcow2 disk.raw images/base.qcow2");
    scratch.qemu("create -q -f qcow2 -b base.qcow2 -F qcow2 images/top.qcow2");
    scratch.qemu("create -q -f qcow2 -b ../../images/top.qcow2 -F qcow2 vms/one/disk.qcow2");
    let mut command = Command::new("qemu-io");
    command.args(["-f", "qcow2", "-c", "write -P 5 0 64k"]);
    let written = command.arg(scratch.path("vms/one/disk.qcow2")).output();
    assert!(written.unwrap().status.success());
    scratch.qemu("convert -f qcow2 -O raw vms/one/disk.qcow2 wanted.raw");
    for allowed in [".", "images", "images/ --allow-below vms"] {
        let line = format!("convert -f qcow2 -O raw --allow-below {allowed}");
        scratch.succeeds(&format!("{line} vms/one/disk.qcow2 out.raw"));
        assert!(
            scratch.read("out.raw") == scratch.read("wanted.raw"),
            "{allowed}"
        );
    }
    // From within the directory the overlay has no directory in its name.
    let mut command = scratch.command("compare -f qcow2 -F raw --allow-below ..");
    command
        .args(["top.qcow2", "../disk.raw"])
        .current_dir(scratch.path("images"));
    assert!(command.output().unwrap().status.success());
    for refused in ["", "--allow-below vms", "--allow-below vms/one"] {
        let line = format!("convert -f qcow2 -O raw {refused} vms/one/disk.qcow2 x.raw");
        let told = scratch.fails(1, &line);
        assert!(told.contains("../../images/top.qcow2"), "{told}");
    }
}

/// An image may say what it likes.
#[test]
fn files_of_the_host_are_refused_whatever_they_are_called() {
    let scratch = Scratch::new("hostile");
    fs::create_dir(scratch.path("images")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", scratch.path("images/link")).unwrap();
    let up = "../".repeat(30);
    for name in [
        "/etc/passwd".to_owned(),
        format!("{up}etc/passwd"),
        "../outside".to_owned(),
        "link".to_owned(),
        "json:{\"driver\":\"file\",\"filename\":\"/etc/passwd\"}".to_owned(),
        "file:/etc/passwd".to_owned(),
        "nbd://localhost/x".to_owned(),
    ] {
        let _ = fs::remove_file(scratch.path("images/hostile.qcow2"));
        fs::write(scratch.path("outside"), [1; 512]).unwrap();
        scratch.qemu(&format!(
            "create -q -u -f qcow2 -b {name} -F raw images/hostile.qcow2 1M"
        ));
        let line = "convert -f qcow2 -O raw --allow-below images images/hostile.qcow2 x";
        let told = scratch.fails(1, line);
        // Nothing was looked up; a link is found out by the system.
        let why = match name.as_str() {
            "link" => "the backing file cannot be opened",
            _ => "the image names the backing file",
        };
        assert!(told.contains(why), "{name}: {told}");
        assert_eq!(scratch.names(), ["images", "outside"], "{name}");
    }
}
