//! What differs between the plan that a VM runs by and the one of its manifest
//! now, in words.

use serde_json::Value;

/// Each difference; none if both plans are of one manifest.
pub(crate) fn differences(kept: &Value, now: &Value) -> Vec<String> {
    let mut found = machine_differences(&kept["domainXml"], &now["domainXml"]);
    found.extend(disk_differences(&kept["disks"], &now["disks"]));
    if kept["cloudInit"] != now["cloudInit"] {
        found.push("cloud-init".to_owned());
    }
    if found.is_empty() && kept["domainXml"] != now["domainXml"] {
        found.push("the domain".to_owned());
    }
    found
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
        if !within {
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
        let found = among.iter().find(|disk| disk["name"] == *name);
        found.map(without_permission)
    };
    let mut found = Vec::new();
    for disk in now {
        let name = disk["name"].as_str().unwrap_or("-");
        match find(kept, &disk["name"]) {
            None => found.push(format!("disk {name} (new)")),
            Some(before) => found.extend(difference(name, &before, &without_permission(disk))),
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

/// That a root may be made anew changes nothing about one that is used.
fn without_permission(disk: &Value) -> Value {
    let mut disk = disk.clone();
    if let Some(source) = disk["source"].as_object_mut() {
        source.remove("recreate");
    }
    disk
}

fn difference(name: &str, kept: &Value, now: &Value) -> Option<String> {
    if kept == now {
        None
    } else if kept["source"]["digest"] != now["source"]["digest"] {
        Some(format!("the image of disk {name}"))
    } else if kept["size"] != now["size"] {
        Some(format!("the size of disk {name}"))
    } else {
        Some(format!("disk {name}"))
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
    fn each_difference_is_named_once() {
        let root = json!({"name": "root", "size": 1, "source": {"digest": "a", "recreate": false}});
        let data = json!({"name": "data", "size": 8, "source": {"file": "f"}});
        let kept = plan(64, &json!([root, data]));
        assert!(differences(&kept, &kept).is_empty());

        let allowed =
            json!({"name": "root", "size": 1, "source": {"digest": "a", "recreate": true}});
        assert!(differences(&kept, &plan(64, &json!([allowed, data]))).is_empty());

        let other =
            json!({"name": "root", "size": 2, "source": {"digest": "b", "recreate": false}});
        let logs = json!({"name": "logs", "size": 8, "source": {"file": "f"}});
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
        let larger = json!({"name": "data", "size": 9, "source": {"file": "f"}});
        let now = plan(64, &json!([root, larger]));
        assert_eq!(differences(&kept, &now), ["the size of disk data"]);
    }
}
