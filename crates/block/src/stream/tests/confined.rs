//! Wrappings that want too much, in a process that may have 64 MiB and a second.

use super::wrapped::{TOOLS, piped};
use super::*;

const FILE: &str = "DISKLET_STREAM_FILE";
const WRAPPING: &str = "DISKLET_STREAM_WRAPPING";
const MOST: &str = "DISKLET_STREAM_MOST";

/// Streams a file and prints what became of it.
#[test]
#[ignore = "started by the tests below"]
fn child() {
    let setting = |name| std::env::var(name).unwrap();
    let file = std::fs::read(setting(FILE)).unwrap();
    let wrapping = TOOLS
        .iter()
        .find(|(tool, _)| *tool == setting(WRAPPING))
        .unwrap();
    let most: u64 = setting(MOST).parse().unwrap();
    let mut options = options(Format::Raw, Unwrap::As(wrapping.1));
    options.limits = Limits {
        disk: most,
        file: None,
        parked: 0,
    };
    let outcome = stream(&file, &options, usize::try_from(most).unwrap()).map(drop);
    match outcome {
        Ok(()) => println!("| outcome: fine"),
        Err(error) => println!("| outcome: {:?}: {error}", error.kind()),
    }
    println!("| spent: {}", processor_time());
}

/// What this process has spent so far, in milliseconds.
fn processor_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |index: usize| fields[index].parse::<u64>().unwrap();
    (ticks(11) + ticks(12)) * 10
}

/// What became of a wrapped disk of which so many bytes are allowed.
fn confined(folder: &Folder, wrapped: &[u8], tool: &str, most: u64) -> String {
    let file = folder.file("wrapped");
    std::fs::write(&file, wrapped).unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -d 65536 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "stream::tests::confined::child"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env(FILE, &file)
        .env(WRAPPING, tool)
        .env(MOST, most.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{tool}: {output:?}");
    let after = |name: &str| {
        let line = text.lines().find_map(|line| line.split_once(name));
        line.unwrap().1.to_owned()
    };
    let spent: u64 = after("| spent: ").parse().unwrap();
    assert!(spent < 1000, "{tool}: {spent} ms");
    after("| outcome: ")
}

#[test]
fn windows_beyond_32_mib_are_refused() {
    let folder = Folder::new("windows");
    let disk = vec![5; 70 << 20];
    let cases = [
        (
            "xz",
            "--lzma2=preset=0,dict=32MiB",
            "Limit: ",
            "larger than 0",
        ),
        (
            "xz",
            "--lzma2=preset=0,dict=48MiB",
            "Unsupported: ",
            "32 MiB",
        ),
        ("zstd", "--long=25", "Limit: ", "larger than 0"),
        ("zstd", "--long=26", "Unsupported: ", "32 MiB"),
    ];
    for (tool, option, kind, reason) in cases {
        let wrapped = piped(tool, &["-c", option], &disk);
        let outcome = confined(&folder, &wrapped, tool, 0);
        assert!(outcome.starts_with(kind), "{tool} {option}: {outcome}");
        assert!(outcome.contains(reason), "{tool} {option}: {outcome}");
    }
}

#[test]
fn bombs_end_at_the_limit() {
    let folder = Folder::new("bombs");
    let zeroes = vec![0; 256 << 20];
    for (tool, _) in TOOLS {
        let wrapped = piped(tool, &["-c", "-1"], &zeroes);
        let outcome = confined(&folder, &wrapped, tool, 1 << 20);
        assert!(outcome.starts_with("Limit: "), "{tool}: {outcome}");
    }
    // Within the limit, all is well.
    let wrapped = piped("xz", &["-c"], &zeroes[..1 << 20]);
    assert_eq!(confined(&folder, &wrapped, "xz", 1 << 20), "fine");
}
