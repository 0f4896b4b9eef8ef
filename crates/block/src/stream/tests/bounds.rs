//! Memory, measured in a process of its own.

use super::shuffle::{Order, shuffled};
use super::*;
use crate::device::{Caching, FileDevice};

/// What the issue allows for one conversion.
const MOST_KIB: u64 = 64 << 10;

const FOLDER: &str = "DISKLET_STREAM_FOLDER";

/// Streams `image.xz` out of a folder and prints its own peak memory.
#[test]
#[ignore = "started by memory_stays_bounded"]
fn child() {
    let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
    let open = |name: &str| {
        let mut options = std::fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(folder.join(name)).unwrap();
        FileDevice::new(file, name, Caching::Buffered).unwrap()
    };
    let (target, scratch) = (open("target"), open("scratch"));
    let options = Options {
        contents: Contents::As(Format::Qcow2),
        unwrap: Unwrap::As(Wrapping::Xz),
        limits: Limits {
            disk: 2 << 40,
            file: None,
            parked: 1 << 40,
        },
        before: Before::Zeroes,
        room: Room::Grows(&target),
    };
    let stream = std::fs::File::open(folder.join("image.xz")).unwrap();
    let report = to_raw(stream, &options, &target, &scratch, &Unwatched).unwrap();
    println!("parked: {}", report.parked);
    println!("{}", std::fs::read_to_string("/proc/self/status").unwrap());
}

fn number_after(text: &str, name: &str) -> u64 {
    let rest = text.split(name).nth(1).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

fn assert_bounded(folder: &Folder, image: &str, order: Order) {
    let file = shuffled(&std::fs::read(image).unwrap(), order);
    std::fs::write(folder.file("image"), file).unwrap();
    // A dictionary as large as may be, all of which is used.
    let dictionary = "--lzma2=preset=0,dict=32MiB";
    run("xz", &["-f", "-k", dictionary, &folder.file("image")]);
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "stream::tests::bounds::child",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, &folder.0)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let peak = number_after(&text, "VmHWM:");
    println!(
        "{order:?}: {peak} KiB, parked {}",
        number_after(&text, "parked:")
    );
    assert!(peak < MOST_KIB, "{peak} KiB");
    let target = folder.file("target");
    run(
        "qemu-img",
        &["compare", "-q", "-f", "raw", "-F", "qcow2", &target, image],
    );
}

#[test]
fn memory_stays_bounded() {
    let folder = Folder::new("bounds");
    let image = folder.file("source.qcow2");
    run("qemu-img", &["create", "-q", "-f", "qcow2", &image, "1T"]);
    let commands: Vec<String> = (1..=80u64)
        .map(|n| format!("write -P {n} {}M 1M", n * 12_345 % (1 << 20)))
        .collect();
    let mut arguments = vec!["-f", "qcow2"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command.as_str()]));
    arguments.push(&image);
    run("qemu-io", &arguments);
    assert_bounded(&folder, &image, Order::TablesFirst);
    assert_bounded(&folder, &image, Order::TablesLast);
}

#[test]
fn memory_stays_bounded_with_the_smallest_clusters() {
    let folder = Folder::new("small");
    let raw = folder.file("raw");
    std::fs::write(&raw, sample(48 << 20)).unwrap();
    let image = folder.file("source.qcow2");
    let small = [
        "convert",
        "-f",
        "raw",
        "-O",
        "qcow2",
        "-o",
        "cluster_size=512",
        &raw,
        &image,
    ];
    run("qemu-img", &small);
    assert_bounded(&folder, &image, Order::TablesFirst);
    assert_bounded(&folder, &image, Order::Random(5));
}
