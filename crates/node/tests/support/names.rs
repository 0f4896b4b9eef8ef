//! Names of VMs, of which each belongs to one test.
//!
//! Tests that run beside each other share a libvirtd, where a VM is known by its name and
//! namespace. Two tests with a VM of one name fail only if chance has them run at once: here
//! the second fails always, and says with whom it clashes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Takes the names of all VMs in these manifests for this test program.
pub(crate) fn claim(libvirt: &str, arguments: &[&str]) {
    if arguments.first() != Some(&"up") {
        return;
    }
    let files = arguments.windows(2).filter(|pair| pair[0] == "-f");
    for text in files.filter_map(|pair| std::fs::read_to_string(pair[1]).ok()) {
        for name in text.split("\n---").filter_map(vm_name) {
            claim_one(libvirt, &name);
        }
    }
}

/// Namespace and name, if the document is a VM. Documents that are not as tests write them
/// are none of ours.
fn vm_name(document: &str) -> Option<String> {
    let is_vm = |line: &str| matches!(line.trim_end(), "kind: Pod" | "kind: VM");
    if !document.lines().any(is_vm) {
        return None;
    }
    let (_, metadata) = document.split_once("metadata:")?;
    let metadata = match metadata.split_once("\nspec:") {
        Some((before, _)) => before,
        None => metadata,
    };
    let value = |field: &str| {
        let (_, value) = metadata.split_once(&format!("{field}: "))?;
        let end = value.find([',', '}', '\n']).unwrap_or(value.len());
        Some(value[..end].trim().to_owned())
    };
    let namespace = value("namespace").unwrap_or_else(|| "default".to_owned());
    Some(format!(
        "{namespace}.{}",
        value(" name").or_else(|| value("{name"))?
    ))
}

fn claim_one(libvirt: &str, name: &str) {
    let taken = directory(libvirt);
    std::fs::create_dir_all(&taken).unwrap();
    let path = taken.join(name.replace('/', "_"));
    let owner = match std::fs::read_to_string(&path) {
        Ok(owner) => owner,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // Whoever is late reads what the other has written, as links are made at once.
            let thread = std::thread::current().id();
            let written = taken.join(format!(".{} {thread:?}", std::process::id()));
            std::fs::write(&written, this_test()).unwrap();
            let _ = std::fs::hard_link(&written, &path);
            std::fs::remove_file(&written).unwrap();
            std::fs::read_to_string(&path).unwrap()
        }
        Err(error) => panic!("{}: {error}", path.display()),
    };
    assert_eq!(
        owner,
        this_test(),
        "two tests have a VM of the name {name}: rename one"
    );
}

fn this_test() -> String {
    let test = std::env::args().skip_while(|word| word != "--exact").nth(1);
    let program = std::env::args().next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or_default();
    let test = test.unwrap_or_else(|| "all its tests".to_owned());
    format!("{} {test}", program.display())
}

/// One daemon's names; another daemon has VMs of its own.
fn directory(libvirt: &str) -> PathBuf {
    let run = std::env::var("DISKLET_TEST_RUN_DIR").expect("run by script/test");
    let daemon = libvirt.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
    Path::new(&run).join("names").join(daemon)
}
