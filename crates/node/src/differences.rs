//! What differs between the plan that a VM runs by and the one of its manifest
//! now, in words.

use disklet_core::live::is_another;
use serde_json::Value;

use crate::live::remove;

/// Each difference; none if both plans are of one manifest.
pub(crate) fn differences(kept: &Value, now: &Value) -> Vec<String> {
    let mut found = machine_differences(&kept["domainXml"], &now["domainXml"]);
    let kept = &without_attached(kept, now);
    found.extend(disk_differences(&kept["disks"], &now["disks"]));
    found.extend(cloud_init_difference(kept, now));
    if found.is_empty() && disk_documents(kept) != disk_documents(now) {
        found.push("the domain".to_owned());
    }
    found
}

/// What differs other than the disks.
pub(crate) fn beside_disks(kept: &Value, now: &Value) -> Vec<String> {
    let mut found = machine_differences(&kept["domainXml"], &now["domainXml"]);
    found.extend(cloud_init_difference(kept, now));
    found
}

fn cloud_init_difference(kept: &Value, now: &Value) -> Option<String> {
    (kept["cloudInit"] != now["cloudInit"]).then(|| "cloud-init".to_owned())
}

/// A kept plan without disks that came while the VM ran and that its manifests
/// do not have: those are told by themselves.
fn without_attached(kept: &Value, now: &Value) -> Value {
    let mut plan = kept.clone();
    let known = now["disks"].as_array().into_iter().flatten();
    let known: Vec<_> = known.map(|disk| &disk["name"]).collect();
    let disks = kept["disks"].as_array().into_iter().flatten();
    let beside = disks.filter(|it| it["attached"] == true && !known.contains(&&it["name"]));
    for disk in beside {
        let text = |key: &str| disk[key].as_str().unwrap_or_default();
        remove(&mut plan, text("name"), text("target"));
    }
    plan
}

/// The parts of a document that are its disks.
pub(crate) fn blocks(xml: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find("<disk ") {
        const END: &str = "</disk>";
        let Some(length) = rest[start..].find(END) else {
            break;
        };
        let end = start + length + END.len();
        found.push(&rest[start..end]);
        rest = &rest[end..];
    }
    found
}

/// The same, however they are ordered and indented.
fn disk_documents(plan: &Value) -> Vec<Vec<&str>> {
    let blocks = blocks(plan["domainXml"].as_str().unwrap_or_default()).into_iter();
    let mut all: Vec<Vec<&str>> = blocks
        .map(|it| it.lines().map(str::trim).collect())
        .collect();
    all.sort();
    all
}

/// Everything of the domain but its disks.
fn machine_differences(kept: &Value, now: &Value) -> Vec<String> {
    let lines = |xml: &Value| without_disks(xml.as_str().unwrap_or_default());
    let (kept, now) = (lines(kept), lines(now));
    let mut found = Vec::new();
    let mut known = Vec::new();
    for (begin, name) in [
        ("<memory ", "memory"),
        ("<vcpu>", "CPUs"),
        ("<cpu", "CPU model"),
    ] {
        known.push(begin);
        if lines_with(&kept, begin) != lines_with(&now, begin) {
            found.push(name.to_owned());
        }
    }
    let rest = |lines: &[String]| -> Vec<String> {
        let is_known = |line: &&String| known.iter().any(|begin| line.starts_with(begin));
        lines
            .iter()
            .filter(|line| !is_known(line))
            .cloned()
            .collect()
    };
    if rest(&kept) != rest(&now) {
        found.push("the machine".to_owned());
    }
    found
}

/// The lines of a document, without those of its disks.
fn without_disks(xml: &str) -> Vec<String> {
    let mut within = false;
    let mut lines = Vec::new();
    for line in xml.lines().map(str::trim) {
        within |= line.starts_with("<disk ");
        if !within && !line.is_empty() {
            lines.push(line.to_owned());
        }
        within &= line != "</disk>";
    }
    lines
}

fn lines_with<'l>(lines: &'l [String], begin: &str) -> Vec<&'l String> {
    let lines = lines.iter();
    lines.filter(|line| line.starts_with(begin)).collect()
}

fn disk_differences(kept: &Value, now: &Value) -> Vec<String> {
    let none = Vec::new();
    let kept = kept.as_array().unwrap_or(&none);
    let now = now.as_array().unwrap_or(&none);
    let find = |among: &'_ [Value], name: &Value| -> Option<Value> {
        among.iter().find(|disk| disk["name"] == *name).cloned()
    };
    let mut found = Vec::new();
    for disk in now {
        let name = disk["name"].as_str().unwrap_or("-");
        match find(kept, &disk["name"]) {
            None => found.push(format!("disk {name} (new)")),
            Some(before) => found.extend(difference(name, &before, disk)),
        }
    }
    for disk in kept {
        if find(now, &disk["name"]).is_none() {
            let name = disk["name"].as_str().unwrap_or("-");
            found.push(format!("disk {name} (not wanted any more)"));
        }
    }
    found
}

/// What was made larger while the VM ran is as large as its manifest says.
fn is_as_large(kept: &Value, now: &Value) -> bool {
    let (before, wanted) = (kept["size"].as_u64(), now["size"].as_u64());
    before == wanted || kept["grown"] == true && before >= wanted
}

fn difference(name: &str, kept: &Value, now: &Value) -> Option<String> {
    let digest = |disk: &Value| disk["source"]["digest"].clone();
    let is_another = is_another(kept, now) || kept["target"] != now["target"];
    if is_another && kept["source"].get("digest").is_some() && digest(kept) != digest(now) {
        Some(format!("the image of disk {name}"))
    } else if !is_as_large(kept, now) {
        Some(format!("the size of disk {name}"))
    } else {
        is_another.then(|| format!("disk {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(memory: u32, disks: &Value) -> Value {
        let xml = format!(
            "<domain type=\"kvm\">\n  <memory unit=\"b\">{memory}</memory>\n  <vcpu>1</vcpu>\n  \
             <devices>\n    <disk type=\"file\">\n      <source file=\"{}\"/>\n    </disk>\n  \
             </devices>\n</domain>\n",
            disks[0]["size"]
        );
        json!({"domainXml": xml, "disks": disks, "cloudInit": {"userData": "x"}})
    }

    #[test]
    fn what_changed_while_it_ran_is_no_difference() {
        let disk = |name: &str, target: &str, size: u32| json!({"name": name, "target": target, "size": size, "source": {"kind": "image", "digest": "a"}});
        let xml = |targets: &[&str]| {
            let disks = targets.iter().map(|it| {
                format!("    <disk type=\"file\">\n      <target dev=\"{it}\"/>\n    </disk>\n")
            });
            let disks: String = disks.collect();
            format!("<domain>\n  <devices>\n{disks}  </devices>\n</domain>\n")
        };
        let (root, data, end) = (
            disk("root", "sda", 8),
            disk("data", "sdb", 8),
            disk("end", "sdz", 8),
        );
        let now = json!({"disks": [root, data, end], "domainXml": xml(&["sda", "sdb", "sdz"])});
        let without = json!({"disks": [root, end], "domainXml": xml(&["sda", "sdz"])});
        let mut kept =
            json!({"disks": [root, end, data], "domainXml": xml(&["sda", "sdz", "sdb"])});
        kept["disks"][2]["attached"] = true.into();
        assert!(differences(&kept, &now).is_empty());
        assert!(differences(&kept, &without).is_empty());
        kept["disks"][0]["size"] = 16.into();
        assert_eq!(differences(&kept, &without), ["the size of disk root"]);
        kept["disks"][0]["grown"] = true.into();
        assert!(differences(&kept, &without).is_empty());
        let larger =
            json!({"disks": [disk("root", "sda", 32), end], "domainXml": xml(&["sda", "sdz"])});
        assert_eq!(differences(&kept, &larger), ["the size of disk root"]);
    }

    #[test]
    fn what_an_older_version_did_not_show_is_no_difference() {
        let disk = json!({"name": "root", "target": "sda", "size": 1, "source": {"kind": "image"}});
        let kept = plan(64, &json!([disk]));
        let mut now = kept.clone();
        now["disks"][0]["migration"] = "shared".into();
        now["disks"][0]["source"]["digest"] = "a".into();
        assert!(differences(&kept, &now).is_empty());
        now["disks"][0]["target"] = "sdb".into();
        assert_eq!(differences(&kept, &now), ["disk root"]);
    }

    #[test]
    fn each_difference_is_named_once() {
        let root = json!({"name": "root", "size": 1, "source": {"kind": "image", "digest": "a", "recreate": false}});
        let data = json!({"name": "data", "size": 8, "source": {"kind": "newVolume", "file": "f"}});
        let kept = plan(64, &json!([root, data]));
        assert!(differences(&kept, &kept).is_empty());

        let allowed = json!({"name": "root", "size": 1, "source": {"kind": "image", "digest": "a", "recreate": true}});
        assert!(differences(&kept, &plan(64, &json!([allowed, data]))).is_empty());

        let other = json!({"name": "root", "size": 2, "source": {"kind": "image", "digest": "b", "recreate": false}});
        let logs = json!({"name": "logs", "size": 8, "source": {"kind": "newVolume", "file": "f"}});
        let mut now = plan(128, &json!([other, logs]));
        now["cloudInit"]["userData"] = "y".into();
        assert_eq!(
            differences(&kept, &now),
            [
                "memory",
                "the image of disk root",
                "disk logs (new)",
                "disk data (not wanted any more)",
                "cloud-init",
            ]
        );
        let larger =
            json!({"name": "data", "size": 9, "source": {"kind": "newVolume", "file": "f"}});
        let now = plan(64, &json!([root, larger]));
        assert_eq!(differences(&kept, &now), ["the size of disk data"]);
    }
}
