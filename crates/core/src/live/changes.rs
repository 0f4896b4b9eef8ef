//! From the disks that a VM has to those that its changed object wants.

use serde_json::Value;

use super::is_another;
use crate::units::ByteSize;

/// What has to become of the disks of a VM that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Disks that it lacks, by name.
    pub attach: Vec<String>,
    /// Disks that nobody wants any more.
    pub detach: Vec<String>,
    /// Disks that shall be larger.
    pub grow: Vec<(String, ByteSize)>,
    /// Disks that shall be otherwise, in words: only the next start can do that.
    pub later: Vec<String>,
}

/// Compares the disks of two plans, as plans show them: the one that is kept of the VM,
/// and the one of its object now.
///
/// Disks without a name have that of their target, which is their place in the list: one
/// that is taken out of its middle makes others of all that follow. So as long as any disk
/// is another under its name, none comes or goes while the VM runs.
#[must_use]
pub fn changes(kept: &[Value], now: &[Value]) -> Changes {
    let mut changes = Changes::default();
    let of_name = |disks: &'_ [Value], name: &Value| -> Option<Value> {
        disks.iter().find(|disk| disk["name"] == *name).cloned()
    };
    for disk in now {
        let name = text(&disk["name"]);
        match of_name(kept, &disk["name"]) {
            None => changes.attach.push(name),
            Some(before) if is_another(&before, disk) => {
                changes.later.push(format!("disk {name}"));
            }
            Some(before) => grow(&mut changes, name, &before, disk),
        }
    }
    let gone = kept
        .iter()
        .filter(|disk| of_name(now, &disk["name"]).is_none());
    changes.detach = gone.map(|disk| text(&disk["name"])).collect();
    if !changes.later.is_empty() {
        changes.wait();
    }
    changes
}

impl Changes {
    /// The same, of an object that has disks which its plan leaves out, by their names. One
    /// that has a name of a disk that is there is that disk, made another; one without a name
    /// may be any.
    #[must_use]
    pub fn beside(mut self, left_out: &[Option<&str>], kept: &[Value]) -> Self {
        let is_kept = |name: &str| kept.iter().any(|disk| disk["name"] == name);
        if left_out.iter().any(|name| name.is_none_or(is_kept)) {
            self.wait();
        }
        self
    }

    /// No disk comes or goes before the next start.
    fn wait(&mut self) {
        let new = self.attach.drain(..).map(|it| format!("disk {it} (new)"));
        self.later.extend(new);
        let gone = self.detach.drain(..);
        let gone = gone.map(|it| format!("disk {it} (not wanted any more)"));
        self.later.extend(gone);
    }
}

fn grow(changes: &mut Changes, name: String, before: &Value, now: &Value) {
    let grown = before["grown"] == true;
    match (before["size"].as_u64(), now["size"].as_u64()) {
        (Some(before), Some(now)) if now > before => {
            changes.grow.push((name, ByteSize::from_bytes(now)));
        }
        // What somebody has made larger stays so.
        (Some(before), Some(now)) if now < before && !grown => {
            changes.later.push(format!("the size of disk {name}"));
        }
        _ => {}
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn disk(name: &str, target: &str, claim: &str) -> Value {
        json!({"name": name, "target": target, "bus": "scsi", "size": 10, "source": {"kind": "rbd", "claim": {"claim": claim, "volume": claim}}})
    }

    #[test]
    fn named_disks_come_and_go_wherever_they_stand() {
        let kept = [
            disk("root", "sda", "r"),
            disk("a", "sdb", "a"),
            disk("b", "sdc", "b"),
        ];
        let now = [
            disk("root", "sda", "r"),
            disk("b", "sdb", "b"),
            disk("c", "sdc", "c"),
        ];
        let expected = Changes {
            attach: vec!["c".to_owned()],
            detach: vec!["a".to_owned()],
            ..Changes::default()
        };
        assert_eq!(changes(&kept, &now), expected);
        assert_eq!(changes(&kept, &kept), Changes::default());
    }

    #[test]
    fn a_disk_without_a_name_is_not_taken_for_its_neighbour() {
        let kept = [
            disk("sda", "sda", "r"),
            disk("sdb", "sdb", "a"),
            disk("sdc", "sdc", "b"),
        ];
        let now = [disk("sda", "sda", "r"), disk("sdb", "sdb", "b")];
        let found = changes(&kept, &now);
        assert_eq!(found.detach, [""; 0]);
        assert_eq!(found.attach, [""; 0]);
        assert_eq!(found.later, ["disk sdb", "disk sdc (not wanted any more)"]);
    }

    /// A disk whose claim becomes one that only a new pod can carry is not pulled.
    #[test]
    fn a_disk_that_is_left_out_is_still_the_same_disk() {
        let kept = [disk("root", "sda", "r"), disk("data", "sdb", "d")];
        let now = [disk("root", "sda", "r")];
        let found = || changes(&kept, &now);
        assert_eq!(found().beside(&[], &kept).detach, ["data"]);
        assert_eq!(found().beside(&[Some("new")], &kept).detach, ["data"]);
        for left_out in [Some("data"), None] {
            let waits = found().beside(&[left_out], &kept);
            assert_eq!(waits.detach, [""; 0]);
            assert_eq!(waits.later, ["disk data (not wanted any more)"]);
        }
    }

    /// Of a VM that was started by an older version, whose plans showed less.
    #[test]
    fn an_upgrade_makes_no_other_disks() {
        let kept = [disk("root", "sda", "r"), disk("data", "sdb", "d")];
        let now = kept.clone().map(|mut disk| {
            disk["migration"] = "shared".into();
            disk["queues"] = 4.into();
            disk["pool"] = Value::Null;
            disk["source"]["user"] = "me".into();
            disk
        });
        assert_eq!(changes(&kept, &now), Changes::default());
    }

    #[test]
    fn disks_grow_and_do_not_shrink() {
        let sized = |size: u64, grown: bool| {
            let mut disk = disk("data", "sdb", "d");
            disk["size"] = size.into();
            if grown {
                disk["grown"] = true.into();
            }
            [disk]
        };
        let more = changes(&sized(10, false), &sized(20, false));
        assert_eq!(more.grow, [("data".to_owned(), ByteSize::from_bytes(20))]);
        let less = changes(&sized(10, false), &sized(5, false));
        assert_eq!(less.later, ["the size of disk data"]);
        assert_eq!(
            changes(&sized(10, true), &sized(5, false)),
            Changes::default()
        );
    }
}
