//! `disklet image convert --progress=json`.

use std::process::Output;

use serde_json::Value;

use crate::scratch::{Scratch, json};

/// The lines on standard error, each of them JSON that never goes back.
fn told(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    let lines: Vec<_> = text.lines().map(json).collect();
    let done: Vec<_> = lines
        .iter()
        .map(|line| line["done"].as_u64().unwrap())
        .collect();
    assert!(done.is_sorted(), "{done:?}");
    for line in &lines {
        let named: Vec<_> = line.as_object().unwrap().keys().collect();
        assert_eq!(
            named,
            ["bytesPerSecond", "done", "secondsLeft", "total"],
            "{line}"
        );
    }
    lines
}

#[test]
fn progress_is_told_in_lines_that_end_with_all_of_it() {
    let scratch = Scratch::new("progress");
    scratch.disk("disk.raw", 128);
    let output =
        scratch.disklet("convert --progress=json -f raw -O qcow2 -c zlib -t 1 disk.raw disk.qcow2");
    let lines = told(&output);
    assert!(lines.len() > 1, "{lines:?}");
    for line in &lines {
        assert_eq!(line["total"], 128 << 20);
    }
    assert_eq!(lines.last().unwrap()["done"], 128 << 20);
    assert_eq!(lines.last().unwrap()["secondsLeft"], 0);
}

#[test]
fn of_a_pipe_it_is_told_how_much_was_read() {
    let scratch = Scratch::new("progress-pipe");
    scratch.disk("disk.raw", 3);
    scratch.qemu("convert -f raw -O qcow2 -c disk.raw disk.qcow2");
    let length = scratch.read("disk.qcow2").len();
    let line = "convert --progress=json -f qcow2 -O raw - out.raw";
    let lines = told(&scratch.piped("disk.qcow2", line));
    let last = lines.last().unwrap();
    assert_eq!(last["done"], length);
    assert_eq!(last["total"], Value::Null);
    // Of a file it is known how much there is.
    let line = "convert --progress=json -f raw --unwrap gz -O raw disk.raw.gz out.raw";
    scratch.tool("gzip", "-k disk.raw");
    let lines = told(&scratch.disklet(line));
    let length = scratch.read("disk.raw.gz").len();
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["done"], &last["total"]),
        (&length.into(), &length.into())
    );
}
