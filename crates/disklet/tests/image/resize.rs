//! `disklet image resize`, and images that others use.

use std::fs;
use std::process::Stdio;

use crate::scratch::{Scratch, end_by, json, send, wait_for_nameless_file};

/// The size of the disk in an image, by qemu-img.
fn size(scratch: &Scratch, format: &str, image: &str) -> u64 {
    let info = scratch.qemu(&format!("info -f {format} --output=json {image}"));
    json(&info)["virtual-size"].as_u64().unwrap()
}

#[test]
fn disks_grow_and_shrink() {
    let scratch = Scratch::new("resize");
    for format in ["raw", "qcow2"] {
        scratch.disk("disk.raw", 2);
        let name = format!("disk.{format}");
        if format == "qcow2" {
            scratch.qemu("convert -f raw -O qcow2 disk.raw disk.qcow2");
        }
        let beginning = scratch.read("disk.raw")[..1 << 20].to_vec();
        for (wanted, bytes) in [
            ("3M", 3 << 20),
            ("+1M", 4 << 20),
            ("--shrink -2M", 2 << 20),
            ("2M", 2 << 20),
            ("1M --shrink", 1 << 20),
            ("+512", (1 << 20) + 512),
        ] {
            scratch.succeeds(&format!("resize -f {format} {name} {wanted}"));
            assert_eq!(size(&scratch, format, &name), bytes, "{format} {wanted}");
            if format == "qcow2" {
                scratch.qemu("check -q disk.qcow2");
            }
        }
        scratch.qemu(&format!("convert -f {format} -O raw {name} out.raw"));
        let out = scratch.read("out.raw");
        assert!(out[..1 << 20] == beginning && out[1 << 20..] == [0; 512]);
    }
}

#[test]
fn what_would_lose_data_or_make_no_disk_is_refused() {
    let scratch = Scratch::new("resize-refused");
    for format in ["raw", "qcow2"] {
        let name = format!("disk.{format}");
        scratch.qemu(&format!("create -q -f {format} {name} 2M"));
        let before = scratch.read(&name);
        let refused = |code, rest: &str| {
            let told = scratch.fails(code, &format!("resize -f {format} {name} {rest}"));
            assert!(scratch.read(&name) == before, "{format} {rest}");
            told
        };
        for smaller in ["1M", "-1M"] {
            let told = refused(1, smaller);
            assert!(told.contains("would lose what lies beyond 1 MiB"), "{told}");
            assert!(told.contains("--shrink"), "{told}");
        }
        assert!(refused(1, "--shrink -3M").contains("less than"));
        assert!(refused(1, "+100").contains("multiple of 512"));
        refused(1, "+7E");
        refused(2, "2X");
        refused(2, "");
    }
    scratch.fails(1, "resize -f raw missing 1M");
}

#[test]
fn an_overlay_grows_if_what_lies_below_may_be_looked_at() {
    let scratch = Scratch::new("resize-overlay");
    scratch.qemu("create -q -f qcow2 base.qcow2 2M");
    scratch.qemu("create -q -f qcow2 -b base.qcow2 -F qcow2 top.qcow2");
    let told = scratch.fails(1, "resize -f qcow2 top.qcow2 3M");
    assert!(told.contains("--allow-below"), "{told}");
    scratch.succeeds("resize -f qcow2 --allow-below . top.qcow2 3M");
    scratch.qemu("check -q top.qcow2");
    // Nothing below comes to light in a smaller one.
    scratch.succeeds("resize -f qcow2 --shrink top.qcow2 1M");
    let told = scratch.fails(1, "resize -f qcow2 --allow-below . top.qcow2 3M");
    assert!(told.contains("would come to light"), "{told}");
}

#[test]
fn what_a_running_qemu_uses_is_left_alone() {
    let scratch = Scratch::new("in-use");
    for format in ["qcow2", "raw"] {
        let name = format!("disk.{format}");
        scratch.qemu(&format!("create -q -f {format} {name} 2M"));
        let before = scratch.read(&name);
        let user = scratch.in_use(format, &name);
        for wanted in ["4M", "--shrink 1M"] {
            let told = scratch.fails(1, &format!("resize -f {format} {name} {wanted}"));
            assert!(told.contains(&format!("{name}: another process")), "{told}");
            assert!(told.contains("stop the VM or program"), "{told}");
        }
        for line in [
            format!("convert -f {format} -O raw {name} copy.raw"),
            format!("info -f {format} {name}"),
            format!("map -f {format} {name}"),
        ] {
            let told = scratch.fails(1, &line);
            assert!(told.contains("another process"), "{told}");
            assert!(told.contains("--force-share"), "{told}");
        }
        assert!(!scratch.names().contains(&"copy.raw".to_owned()));
        assert!(scratch.read(&name) == before);
        scratch.succeeds(&format!("convert -U -f {format} -O raw {name} copy.raw"));
        fs::remove_file(scratch.path("copy.raw")).unwrap();
        drop(user);
        scratch.succeeds(&format!("resize -f {format} {name} 4M"));
    }
}

/// Also those that are below the image.
#[test]
fn a_conversion_keeps_qemu_from_writing_what_it_reads() {
    let scratch = Scratch::new("held");
    scratch.disk("disk.raw", 128);
    scratch.qemu("create -q -f qcow2 -b disk.raw -F raw top.qcow2");
    let mut command = scratch.command("convert -f qcow2 -O qcow2 -c zlib -t 1 --allow-below .");
    command
        .args(["top.qcow2", "copy.qcow2"])
        .stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for_nameless_file(child.id());
    // It shall not be over before QEMU has tried.
    send("STOP", &child);
    let resize = |name: &str, format: &str| {
        scratch.attempt("qemu-img", &format!("resize -f {format} {name} 256M"))
    };
    for (name, format) in [("top.qcow2", "qcow2"), ("disk.raw", "raw")] {
        let output = resize(name, format);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name}");
        assert!(told.contains("lock"), "{name}: {told}");
    }
    end_by("KILL", &mut child);
    assert!(resize("top.qcow2", "qcow2").status.success());
}
