//! What is told of images beside what qemu-img tells, field by field.

use std::process::Command;

use serde_json::Value;

use crate::scratch::{Scratch, json};

/// What qemu-img says, and we do not, or otherwise.
fn lacking(ours: &Value, theirs: &Value, at: &str) -> Vec<String> {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => theirs
            .iter()
            .flat_map(|(key, value)| {
                let found = ours.get(key).unwrap_or(&Value::Null);
                lacking(found, value, &format!("{at}/{key}"))
            })
            .collect(),
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => ours
            .iter()
            .zip(theirs)
            .flat_map(|(ours, theirs)| lacking(ours, theirs, &format!("{at}/[]")))
            .collect(),
        _ if ours == theirs => Vec::new(),
        _ => vec![format!("{at}: {ours} instead of {theirs}")],
    }
}

fn agree(ours: &str, theirs: &str, what: &str) {
    let differences = lacking(&json(ours), &json(theirs), "");
    assert!(differences.is_empty(), "{what}: {differences:#?}");
}

fn write(scratch: &Scratch, image: &str, command: &str) {
    let mut io = Command::new("qemu-io");
    io.args(["-f", "qcow2", "-c", command, image]);
    let output = io.current_dir(scratch.path("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Images with everything that qemu-img tells of.
fn images(scratch: &Scratch) -> [&'static str; 6] {
    std::fs::create_dir_all(scratch.path("below")).unwrap();
    scratch.disk("below/base.raw", 2);
    scratch.qemu("convert -f raw -O qcow2 -c below/base.raw packed.qcow2");
    scratch.qemu("create -q -f qcow2 -o compat=0.10 old.qcow2 1M");
    scratch.qemu("create -q -f qcow2 -o data_file=data,data_file_raw=on outside.qcow2 1M");
    scratch.qemu(
        "create -q -f qcow2 -o extended_l2=on,compression_type=zstd,refcount_bits=8 new.qcow2 1M",
    );
    scratch.qemu("create -q -f qcow2 -o lazy_refcounts=on -b base.raw -F raw below/top.qcow2 3M");
    write(scratch, "below/top.qcow2", "write 0 64k");
    scratch.qemu("bitmap --add -g 32k below/top.qcow2 one");
    scratch.qemu("bitmap --add --disable below/top.qcow2 another");
    scratch.qemu("snapshot -c before below/top.qcow2");
    [
        "packed.qcow2",
        "old.qcow2",
        "outside.qcow2",
        "new.qcow2",
        "below/top.qcow2",
        "below/base.raw",
    ]
}

fn format(name: &str) -> &'static str {
    if name.ends_with("raw") {
        "raw"
    } else {
        "qcow2"
    }
}

#[test]
fn info_says_what_qemu_img_says() {
    let scratch = Scratch::new("told-info");
    for name in images(&scratch) {
        let ours = scratch.succeeds(&format!("info -f {} -o json {name}", format(name)));
        let theirs = scratch.qemu(&format!("info -f {} --output=json {name}", format(name)));
        agree(&ours, &theirs, name);
    }
}

/// Only the image itself is looked at.
#[test]
fn info_does_not_open_what_an_image_names() {
    let scratch = Scratch::new("told-top");
    images(&scratch);
    std::fs::remove_file(scratch.path("below/base.raw")).unwrap();
    std::fs::remove_file(scratch.path("data")).unwrap();
    let told = scratch.succeeds("info -f qcow2 below/top.qcow2");
    for line in [
        "backing filename: base.raw",
        "full backing filename: below/base.raw",
        "virtual size: 3 MiB",
        "format specific:",
        "  lazy refcounts: yes",
        "    name: one",
        "    flags: auto",
        "    flags: none",
        "    granularity: 32 KiB",
        "  name: before",
    ] {
        assert!(told.lines().any(|found| found == line), "{line}: {told}");
    }
    assert!(!told.contains(['{', '[']), "{told}");
    let told = scratch.succeeds("info -f qcow2 outside.qcow2");
    assert!(told.contains("  data file: data\n"), "{told}");
}

#[test]
fn map_says_what_qemu_img_says() {
    let scratch = Scratch::new("told-map");
    images(&scratch);
    // Zeroes that keep their place, and some that have none.
    scratch.qemu("create -q -f qcow2 kept.qcow2 1M");
    write(&scratch, "kept.qcow2", "write 0 512k");
    write(&scratch, "kept.qcow2", "write -z 64k 128k");
    write(&scratch, "kept.qcow2", "write -z 768k 64k");
    for name in ["packed.qcow2", "kept.qcow2", "below/top.qcow2"] {
        let ours = scratch.succeeds(&format!("map -f qcow2 -o json --allow-below below {name}"));
        let theirs = scratch.qemu(&format!("map -f qcow2 --output=json {name}"));
        agree(&ours, &theirs, name);
    }
}

#[test]
fn measure_says_what_qemu_img_says() {
    let scratch = Scratch::new("told-measure");
    for name in images(&scratch) {
        for output in ["raw", "qcow2"] {
            let options = format!("-f {} -O {output}", format(name));
            let ours =
                scratch.succeeds(&format!("measure {options} -o json --allow-below . {name}"));
            let theirs = scratch.qemu(&format!("measure {options} --output=json {name}"));
            agree(&ours, &theirs, &format!("{name} as {output}"));
        }
    }
}

#[test]
fn compare_exits_as_qemu_img_does() {
    let scratch = Scratch::new("told-compare");
    scratch.disk("one.raw", 1);
    std::fs::write(scratch.path("other.raw"), vec![7; 1 << 20]).unwrap();
    for names in [
        "one.raw one.raw",
        "one.raw other.raw",
        "one.raw missing.raw",
    ] {
        let line = format!("compare -f raw -F raw {names}");
        let theirs = scratch.attempt("qemu-img", &line).status.code();
        assert_eq!(scratch.disklet(&line).status.code(), theirs, "{names}");
    }
}

/// Every second of many small clusters: more extents than fit into memory as
/// one answer.
#[test]
fn a_map_is_told_as_it_is_found() {
    let scratch = Scratch::new("told-many");
    let block = [[7; 512], [0; 512]].concat();
    std::fs::write(scratch.path("disk.raw"), block.repeat(96 << 10)).unwrap();
    scratch.succeeds("convert -f raw -O qcow2 --cluster-size 512 disk.raw disk.qcow2");
    let program = env!("CARGO_BIN_EXE_disklet");
    let script = format!("ulimit -v 65536; exec {program} image map -f qcow2 -o json disk.qcow2");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(scratch.path(""));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{:?}", output.stderr);
    let told = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(told.as_array().unwrap().len(), 192 << 10);
}
