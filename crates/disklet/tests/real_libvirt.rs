//! Every domain of the golden files and of the examples, judged by libvirt: by
//! its schema, and by a real daemon, whose drivers have rules that no schema
//! knows. What the daemon gives back must say of the disks what we said.
//!
//! The daemon is at `DISKLET_TEST_LIBVIRT_URI`; `script/lib/libvirtd.sh` starts
//! one and runs these tests beside it.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

mod support;

use std::collections::BTreeMap;

use support::tools::run;
use support::xml::Element;
use support::{examples, fixtures};

/// A domain to define, and where it comes from.
struct Document {
    place: String,
    text: String,
}

#[test]
#[ignore = "needs a libvirtd: script/test starts one"]
fn a_real_libvirtd_takes_every_domain_and_keeps_its_disks() {
    let uri = std::env::var("DISKLET_TEST_LIBVIRT_URI")
        .expect("DISKLET_TEST_LIBVIRT_URI says where a libvirtd listens");
    let documents = documents();
    assert!(documents.len() > 50, "only {} domains", documents.len());
    let failures: Vec<_> = documents
        .iter()
        .filter_map(|document| {
            let problem = check(&uri, document).err()?;
            Some(format!("{}: {problem}", document.place))
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {} domains fail\n\n{}",
        failures.len(),
        documents.len(),
        failures.join("\n\n")
    );
}

fn documents() -> Vec<Document> {
    let golden = fixtures().into_iter().map(|fixture| {
        let text = fixture.read("domain.xml").unwrap();
        (fixture.name, text)
    });
    let planned = examples().into_iter().map(|example| {
        let text = example.plan("xml", &[]).stdout;
        (example.name, text)
    });
    golden
        .chain(planned)
        .flat_map(|(name, text)| split(&name, &text))
        .collect()
}

/// One document per VM.
fn split(name: &str, text: &str) -> Vec<Document> {
    const END: &str = "</domain>\n";
    text.split_inclusive(END)
        .map(|text| Document {
            place: name.to_owned(),
            // The tests' machine need not have KVM; the disks are the same.
            text: text.replacen("<domain type=\"kvm\">", "<domain type=\"qemu\">", 1),
        })
        .inspect(|document| assert!(document.text.ends_with(END), "{name}"))
        .collect()
}

fn check(uri: &str, document: &Document) -> Result<(), String> {
    run("virt-xml-validate", &["-", "domain"], &document.text)?;
    let ours = Element::parse(&document.text);
    let uuid = ours.child("uuid").unwrap().text();
    let virsh = |args: &[&str], input: &str| {
        let all = [["-q", "-c", uri].as_slice(), args].concat();
        run("virsh", &all, input)
    };
    virsh(&["define", "--validate", "/dev/stdin"], &document.text)?;
    let defined = virsh(&["dumpxml", "--inactive", "--security-info", &uuid], "");
    // Whatever comes out of the comparison, the next domain may have this UUID.
    virsh(&["undefine", &uuid], "")?;
    let theirs = Element::parse(&defined?);
    compare(&ours, &theirs)
}

fn compare(ours: &Element, theirs: &Element) -> Result<(), String> {
    let mut told = Vec::new();
    let (ours, theirs) = (disks(ours), disks(theirs));
    if !ours.keys().eq(theirs.keys()) {
        told.push(format!(
            "disks {:?} became {:?}",
            ours.keys(),
            theirs.keys()
        ));
    }
    for (target, disk) in &ours {
        let Some(kept) = theirs.get(target) else {
            continue;
        };
        let (ours, theirs) = (disk.statements(), kept.statements());
        told.extend(ours.difference(&theirs).map(|lost| format!("- {lost}")));
        told.extend(theirs.difference(&ours).map(|new| format!("+ {new}")));
        if !chain_ends(disk) {
            told.push(format!("{target}: the chain of backing files has no end"));
        }
    }
    match told.is_empty() {
        true => Ok(()),
        false => Err(format!("libvirt changed it\n{}", told.join("\n"))),
    }
}

fn disks(domain: &Element) -> BTreeMap<String, &Element> {
    let devices = domain.child("devices").unwrap();
    devices
        .children
        .iter()
        .filter(|device| device.name == "disk")
        .map(|disk| {
            let target = disk.child("target").unwrap();
            (target.attribute("dev").unwrap().to_owned(), disk)
        })
        .collect()
}

/// Without an empty element at its end, libvirt would look into the last file
/// for the name of a next one.
fn chain_ends(disk: &Element) -> bool {
    let mut level = disk;
    while let Some(below) = level.child("backingStore") {
        if below.children.is_empty() {
            return true;
        }
        level = below;
    }
    false
}
