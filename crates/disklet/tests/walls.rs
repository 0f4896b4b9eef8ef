//! What keeps the rooms of the project apart, and its map true.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

/// Crates by which a program reaches outside: runtimes, networks, libvirt, the
/// system's own calls, files and clocks. `libc` itself is not among them: on some
/// processors a hash asks it what the processor can do.
const OUTSIDE: [&str; 46] = [
    "async-std",
    "async-io",
    "smol",
    "tokio",
    "tokio-util",
    "futures",
    "mio",
    "polling",
    "io-uring",
    "socket2",
    "hyper",
    "hyper-util",
    "reqwest",
    "ureq",
    "curl",
    "isahc",
    "http",
    "h2",
    "axum",
    "warp",
    "tower",
    "tonic",
    "rustls",
    "native-tls",
    "openssl",
    "openssl-sys",
    "kube",
    "kube-client",
    "k8s-openapi",
    "virt",
    "virt-sys",
    "nix",
    "rustix",
    "linux-raw-sys",
    "memmap2",
    "tempfile",
    "walkdir",
    "ignore",
    "fs-err",
    "notify",
    "chrono",
    "time",
    "jiff",
    "rand",
    "getrandom",
    "rayon",
];

#[test]
fn core_reaches_nothing_outside() {
    let tree = tree_of("disklet-core");
    assert!(tree.contains("disklet-core"), "{tree:?}");
    let found: Vec<_> = OUTSIDE
        .iter()
        .filter(|name| tree.contains(**name))
        .collect();
    assert!(found.is_empty(), "core depends on {found:?}");
}

#[test]
fn no_crate_points_back() {
    let uses = |user: &str, used: &str| tree_of(user).contains(used);
    assert!(uses("disklet", "disklet-core"));
    assert!(uses("disklet-core", "disklet-flexvolume"));
    assert!(!uses("disklet-core", "disklet"));
    assert!(!uses("disklet-flexvolume", "disklet-core"));
}

/// It is to stay tiny and start at once: the system's calls are all it needs.
#[test]
fn the_driver_is_made_of_little() {
    let mut tree = tree_of("disklet-flexvolume");
    for system in tree_of("rustix") {
        tree.remove(&system);
    }
    let own: Vec<_> = tree.iter().map(String::as_str).collect();
    assert_eq!(own, ["disklet-flexvolume"]);
}

/// The names of a package and of all that it needs to be built, on any system.
fn tree_of(package: &str) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--package", package, "--edges", "normal"])
        .args(["--target", "all", "--offline", "--prefix", "none"])
        .args(["--format", "{p}"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The compiler refuses it wherever the lint is not lifted, and clippy wants a
/// reason for every block.
#[test]
fn unsafe_code_is_in_one_file_of_two_crates() {
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    let rules = text(&repository().join("Cargo.toml"));
    assert!(rules.contains("unsafe_code = \"deny\""));
    assert!(rules.contains("undocumented_unsafe_blocks = \"warn\""));
    let mut lifted = Vec::new();
    for package in files_of(&repository().join("crates")) {
        if !package.join("Cargo.toml").exists() {
            continue;
        }
        let obeys = text(&package.join("Cargo.toml")).contains("[lints]\nworkspace = true");
        assert!(obeys, "{}", package.display());
        for folder in ["src", "tests", "examples"] {
            find_lifted(&package.join(folder), &mut lifted);
        }
    }
    lifted.sort();
    let allowed = ["crates/block/src/sys.rs", "crates/node/src/libvirt/ffi.rs"];
    assert_eq!(lifted, allowed.map(|path| repository().join(path)));
}

fn find_lifted(folder: &Path, lifted: &mut Vec<PathBuf>) {
    for path in files_of(folder) {
        if path.is_dir() {
            find_lifted(&path, lifted);
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !path.ends_with(file!())
            && fs::read_to_string(&path).unwrap().contains("unsafe_code")
        {
            lifted.push(path);
        }
    }
}

/// What is in a folder; nothing if it is not there.
fn files_of(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_map_names_what_exists() {
    let Ok(text) = fs::read_to_string(repository().join("ARCHITECTURE.md")) else {
        panic!("ARCHITECTURE.md is missing");
    };
    let named = paths_in(&text);
    assert!(named.contains("crates/core"), "{named:?}");
    let lost: Vec<_> = named
        .iter()
        .filter(|path| !repository().join(path).exists())
        .collect();
    assert!(lost.is_empty(), "ARCHITECTURE.md names {lost:?}");
}

/// Words in backticks that begin like a path of the repository. Fenced blocks
/// are pictures.
fn paths_in(text: &str) -> BTreeSet<String> {
    let roots: Vec<String> = fs::read_dir(repository())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut is_fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            let quoted = line.split('`').skip(1).step_by(2);
            let words = quoted.filter_map(|text| text.split_whitespace().next());
            found.extend(
                words
                    .filter(|word| {
                        let first = word.split('/').next().unwrap_or_default();
                        roots.iter().any(|root| root == first) || first.ends_with(".md")
                    })
                    .map(str::to_owned),
            );
        }
    }
    found
}
