//! The plan that is kept of a VM follows what becomes of its disks.

use std::collections::BTreeMap;

use disklet_core::config::Config;
use serde_json::Value;

use crate::differences::blocks;

/// It has a disk more.
pub(super) fn add(plan: &mut Value, disk: &Value, xml: &str) {
    remove(
        plan,
        disk["name"].as_str().unwrap_or_default(),
        disk["target"].as_str().unwrap_or_default(),
    );
    if let Value::Array(disks) = &mut plan["disks"] {
        disks.push(disk.clone());
    }
    edit_document(plan, |document| {
        let end = document.rfind("</devices>")?;
        let (before, after) = document.split_at(end);
        Some(format!("{before}{xml}\n{after}"))
    });
}

/// It has a disk less.
pub(crate) fn remove(plan: &mut Value, name: &str, target: &str) {
    if let Value::Array(disks) = &mut plan["disks"] {
        disks.retain(|disk| disk["name"] != name);
    }
    let quoted = format!("<target dev=\"{target}\"");
    edit_document(plan, |document| {
        let all = blocks(document);
        let block = all.iter().find(|block| block.contains(&quoted))?;
        Some(document.replacen(*block, "", 1))
    });
}

/// One of its disks is larger.
pub(super) fn grow(plan: &mut Value, name: &str, size: u64) {
    let disks = plan["disks"].as_array_mut().into_iter().flatten();
    for disk in disks.filter(|disk| disk["name"] == name) {
        disk["size"] = size.into();
        disk["grown"] = true.into();
    }
}

/// The size of one of these disks is known by now.
pub(super) fn learn(disks: &mut Value, name: &str, size: u64) {
    let disks = disks.as_array_mut().into_iter().flatten();
    for disk in disks.filter(|disk| disk["name"] == name) {
        disk["size"] = size.into();
    }
}

/// The images that its disks use: names and digests.
pub(super) fn images(plan: &Value) -> Vec<(String, String)> {
    let disks = plan["disks"].as_array().into_iter().flatten();
    let sources = disks.map(|disk| &disk["source"]);
    let images = sources.filter_map(|source| {
        let text = |key: &str| source[key].as_str().map(str::to_owned);
        Some((text("image")?, text("digest")?))
    });
    images.collect()
}

/// What its files may grow to, by the directories of their pools.
pub(super) fn promised(plan: &Value, config: &Config) -> BTreeMap<String, u64> {
    let mut promised = BTreeMap::new();
    for disk in plan["disks"].as_array().into_iter().flatten() {
        let is_ours = !disk["copiedTo"].is_null() || disk["source"]["kind"] == "newVolume";
        let mut pools = config.pools.iter();
        let pool = pools.find(|(name, _)| disk["pool"] == name.as_str());
        if let (true, Some((_, pool)), Some(size)) = (is_ours, pool, disk["size"].as_u64()) {
            *promised.entry(pool.path.clone()).or_default() += size;
        }
    }
    promised
}

fn edit_document(plan: &mut Value, edit: impl FnOnce(&str) -> Option<String>) {
    let edited = plan["domainXml"].as_str().and_then(edit);
    if let Some(edited) = edited {
        plan["domainXml"] = edited.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_promised_follows_the_disks() {
        let config = Config::default();
        let ours = json!({"copiedTo": {"file": "f"}, "pool": "volumes", "size": 5, "source": {}});
        let new = json!({"copiedTo": null, "pool": "volumes", "size": 7, "source": {"kind": "newVolume"}});
        let other = json!({"copiedTo": null, "pool": null, "size": 9, "source": {"kind": "nbd"}});
        let plan = json!({"disks": [ours, new, other]});
        let promised = promised(&plan, &config);
        assert_eq!(
            promised.into_iter().collect::<Vec<_>>(),
            [(config.volumes_dir().to_owned(), 12)]
        );
    }

    #[test]
    fn a_plan_loses_what_it_got() {
        let before = json!({
            "disks": [{"name": "root", "target": "sda", "source": {"image": "i", "digest": "d"}}],
            "domainXml": "<domain>\n  <devices>\n    <disk type=\"file\">\n      <target dev=\"sda\" bus=\"scsi\"/>\n    </disk>\n  </devices>\n</domain>\n",
        });
        let disk = json!({"name": "data", "target": "sdb", "source": {"kind": "nbd"}});
        let xml = "<disk type=\"network\">\n  <target dev=\"sdb\" bus=\"scsi\"/>\n</disk>";
        let mut plan = before.clone();
        add(&mut plan, &disk, xml);
        assert_eq!(plan["disks"].as_array().unwrap().len(), 2);
        let document = plan["domainXml"].as_str().unwrap();
        assert_eq!(blocks(document).len(), 2, "{document}");
        // Said twice, it is there once.
        add(&mut plan, &disk, xml);
        assert_eq!(plan["disks"].as_array().unwrap().len(), 2);
        grow(&mut plan, "data", 7);
        assert_eq!(plan["disks"][1]["size"], 7);
        assert_eq!(images(&plan), [("i".to_owned(), "d".to_owned())]);
        remove(&mut plan, "data", "sdb");
        assert_eq!(plan["disks"], before["disks"]);
        assert_eq!(blocks(plan["domainXml"].as_str().unwrap()).len(), 1);
    }
}
