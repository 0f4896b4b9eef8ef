use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn holder(vm: u128, node: u32, access: Access) -> Holder {
    Holder {
        uuid: Uuid::from_u128(vm),
        namespace: "shop".to_owned(),
        name: format!("vm-{vm}"),
        node: format!("node-{node}"),
        boot: "boot-0".to_owned(),
        access,
        hosts: Vec::new(),
        since: "2026-01-01T00:00:00Z".to_owned(),
    }
}

fn writer(vm: u128, node: u32) -> Holder {
    holder(vm, node, Access::WriteExclusive)
}

fn granted(content: &Content, wanted: &Holder) -> Content {
    match content.taken(wanted) {
        Taken::Granted(content) => content,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_writes_or_many_agree() {
    for first in Access::ALL {
        for second in Access::ALL {
            let content = granted(&Content::new("unit"), &holder(1, 1, first));
            let taken = content.taken(&holder(2, 2, second));
            let is_busy = matches!(taken, Taken::Busy(_));
            assert_eq!(is_busy, !first.agrees_with(second), "{first:?} {second:?}");
        }
    }
}

#[test]
fn a_domain_that_has_it_has_it_whatever_the_clock_says() {
    let content = granted(&Content::new("unit"), &writer(1, 1));
    let since = "1970-01-01T00:00:00Z".to_owned();
    let again = Holder {
        since,
        ..writer(1, 1)
    };
    assert_eq!(content.taken(&again), Taken::Held);
}

#[test]
fn who_has_a_disk_has_its_partitions() {
    let of = |vm: u128, part: Option<&str>| Holder {
        hosts: part.map(str::to_owned).into_iter().collect(),
        ..writer(vm, 1)
    };
    let one = granted(&Content::new("disk"), &of(1, Some("1")));
    let both = granted(&one, &of(2, Some("2")));
    assert!(matches!(both.taken(&of(3, None)), Taken::Busy(_)));
    assert!(matches!(both.taken(&of(3, Some("2"))), Taken::Busy(_)));
    let whole = granted(&Content::new("disk"), &of(1, None));
    assert!(matches!(whole.taken(&of(2, Some("1"))), Taken::Busy(_)));
}

#[test]
fn a_domain_on_two_nodes_is_two() {
    let content = granted(&Content::new("unit"), &writer(1, 1));
    assert_eq!(content.taken(&writer(1, 2)), Taken::Busy(writer(1, 1)));
}

#[test]
fn a_node_that_has_started_anew_has_no_domains_of_before() {
    let content = granted(&Content::new("unit"), &writer(1, 1));
    let boot = "boot-1".to_owned();
    let after = Holder {
        boot,
        ..writer(2, 1)
    };
    assert_eq!(
        granted(&content, &after).holders,
        std::slice::from_ref(&after)
    );
    // Of another node nobody else knows that.
    let elsewhere = Holder {
        node: "node-2".to_owned(),
        ..after
    };
    assert_eq!(content.taken(&elsewhere), Taken::Busy(writer(1, 1)));
}

#[test]
fn what_an_overlay_stands_on_outlives_the_power_of_its_node() {
    let reader = |vm, boot: &str| Holder {
        boot: boot.to_owned(),
        ..holder(vm, 1, Access::ReadShared)
    };
    let content = granted(&Content::new("unit"), &reader(1, "boot-0"));
    let other = Holder {
        boot: "boot-1".to_owned(),
        ..writer(2, 1)
    };
    assert_eq!(content.taken(&other), Taken::Busy(reader(1, "boot-0")));
    // Its own VM has it again.
    let again = granted(&content, &reader(1, "boot-1"));
    assert_eq!(again.holders, [reader(1, "boot-1")]);
}

#[test]
fn clusters_that_share_no_server_are_two() {
    let at = |vm, hosts: &[&str]| Holder {
        hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        ..writer(vm, 1)
    };
    let content = granted(&Content::new("rbd image p/i"), &at(1, &["a", "b"]));
    assert!(matches!(content.taken(&at(2, &["b", "c"])), Taken::Busy(_)));
    assert!(matches!(content.taken(&at(2, &[])), Taken::Busy(_)));
    let both = granted(&content, &at(2, &["c"]));
    assert_eq!(both.holders.len(), 2);
    // One VM may have an image of that name in each.
    let both = granted(&content, &at(1, &["c"]));
    assert_eq!(both.holders.len(), 2);
}

#[test]
fn tenants_learn_of_their_own_only() {
    let holder = writer(7, 1);
    assert_eq!(holder.shown_to("shop"), "VM shop/vm-7 on node node-1");
    let shown = holder.shown_to("bank");
    assert_eq!(shown, "a VM of another namespace");
}

#[test]
fn what_is_written_is_read() {
    let content = granted(&Content::new("unit"), &writer(1, 1));
    assert_eq!(Content::read(Some(&content.written())), Ok(content.clone()));
    assert_eq!(content.in_a_word().as_deref(), Some("shop/vm-1"));
    let later = content.written().replace("\"version\":1", "\"version\":9");
    assert_eq!(Content::read(Some(&later)), Err(Unreadable::Later(9)));
    for damaged in [
        None,
        Some(""),
        Some("{}"),
        Some(r#"{"version":1,"storage":"x"}"#),
    ] {
        let read = Content::read(damaged);
        assert!(matches!(read, Err(Unreadable::Damaged(_))), "{read:?}");
    }
}

#[test]
fn the_format_is_the_one_that_is_documented() {
    let content = granted(
        &Content::new("iscsi unit iqn.2026-01.example:a/1"),
        &writer(1, 1),
    );
    let page = include_str!("../../../../docs/formats/lease.md");
    assert!(page.contains(&content.written()), "{}", content.written());
    let name = object_name(&content.storage);
    assert!(page.contains(&name), "{name}");
}

#[test]
fn a_lease_has_room_for_hundreds_and_says_when_it_is_full() {
    let mut content = Content::new("unit");
    let full = (0..5000).find(|&vm| {
        match content.taken(&holder(vm, 1, Access::ReadShared)) {
            Taken::Granted(more) => content = more,
            Taken::Full => return true,
            other => panic!("{other:?}"),
        }
        false
    });
    assert!(full.is_some_and(|most| most > 500), "{full:?}");
}

/// What happens to a storage, its users and their nodes.
#[derive(Debug, Clone)]
enum Happens {
    /// An agent looks at the object, and may be slow to act on what it saw.
    Look(u128, u32),
    /// It acts: the domain starts if the lease is had.
    Start(u128, u32, Access, String),
    /// The domain ends; nobody has noticed.
    End(u128, u32),
    /// Its agent has, and releases what it held.
    Release(u128, u32),
    /// An agent is killed: it forgets what it saw. Domains run on.
    AgentDies(u32),
    Reboot(u32),
    /// An administrator has switched a node off and says so.
    OutOfService(u32),
}

fn happens() -> impl Strategy<Value = Happens> {
    let (vm, node) = (0..4_u128, 0..3_u32);
    let access = prop::sample::select(Access::ALL.to_vec());
    prop_oneof![
        4 => (vm.clone(), node.clone()).prop_map(|(vm, node)| Happens::Look(vm, node)),
        6 => (vm.clone(), node.clone(), access, "[0-9]{1,4}")
            .prop_map(|(vm, node, access, since)| Happens::Start(vm, node, access, since)),
        2 => (vm.clone(), node.clone()).prop_map(|(vm, node)| Happens::End(vm, node)),
        3 => (vm, node.clone()).prop_map(|(vm, node)| Happens::Release(vm, node)),
        1 => node.clone().prop_map(Happens::AgentDies),
        1 => node.clone().prop_map(Happens::Reboot),
        1 => node.prop_map(Happens::OutOfService),
    ]
}

/// The object as the API server has it: written only by who saw this version.
#[derive(Debug, Clone)]
struct Object {
    version: u32,
    content: Content,
}

struct World {
    object: Object,
    boots: [u32; 3],
    seen: BTreeMap<(u128, u32), Object>,
    /// What really runs.
    running: BTreeMap<(u128, u32), Holder>,
}

impl World {
    fn new() -> Self {
        let content = Content::new("unit");
        Self {
            object: Object {
                version: 0,
                content,
            },
            boots: [0; 3],
            seen: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    fn write(&mut self, seen: u32, content: Content) -> bool {
        let is_current = seen == self.object.version;
        if is_current {
            let version = seen + 1;
            self.object = Object { version, content };
        }
        is_current
    }

    fn happen(&mut self, what: Happens) {
        match what {
            Happens::Look(vm, node) => {
                self.seen.insert((vm, node), self.object.clone());
            }
            Happens::Start(vm, node, access, since) => self.start(vm, node, access, since),
            Happens::End(vm, node) => drop(self.running.remove(&(vm, node))),
            Happens::Release(vm, node) => self.release(vm, node),
            Happens::AgentDies(node) => self.seen.retain(|(_, on), _| *on != node),
            Happens::Reboot(node) => {
                self.power_off(node);
                self.boots[node as usize] += 1;
            }
            Happens::OutOfService(node) => {
                self.power_off(node);
                self.boots[node as usize] += 1;
                let is_off = |holder: &Holder| holder.node == format!("node-{node}");
                if let Some(content) = self.object.content.without(is_off) {
                    assert!(self.write(self.object.version, content));
                }
            }
        }
    }

    fn power_off(&mut self, node: u32) {
        self.running.retain(|(_, on), _| *on != node);
        self.seen.retain(|(_, on), _| *on != node);
    }

    fn start(&mut self, vm: u128, node: u32, access: Access, since: String) {
        if self.running.contains_key(&(vm, node)) {
            return;
        }
        let boot = format!("boot-{}", self.boots[node as usize]);
        let wanted = Holder {
            boot,
            since,
            ..holder(vm, node, access)
        };
        let Some(seen) = self.seen.remove(&(vm, node)) else {
            return;
        };
        let may_start = match seen.content.taken(&wanted) {
            Taken::Held => true,
            Taken::Granted(content) => self.write(seen.version, content),
            Taken::Busy(_) | Taken::Full => false,
        };
        if may_start {
            assert_eq!(self.object.content.taken(&wanted), Taken::Held);
            self.running.insert((vm, node), wanted);
        }
    }

    /// One thread at a time acts for a VM on its node: what it saw before is gone.
    fn release(&mut self, vm: u128, node: u32) {
        self.seen.remove(&(vm, node));
        let gone = holder(vm, node, Access::ReadShared);
        let is_off = |holder: &Holder| (holder.uuid, &holder.node) == (gone.uuid, &gone.node);
        if !self.running.contains_key(&(vm, node))
            && let Some(content) = self.object.content.without(is_off)
        {
            assert!(self.write(self.object.version, content));
        }
    }

    fn check(&self) {
        let running: Vec<_> = self.running.values().collect();
        for (nth, one) in running.iter().enumerate() {
            for two in &running[..nth] {
                assert!(one.access.agrees_with(two.access), "{one:?} beside {two:?}");
            }
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_those_who_run_agree(course in prop::collection::vec(happens(), 1..80)) {
        let mut world = World::new();
        for what in course {
            world.happen(what);
            world.check();
        }
        // Once all is off and released, nothing keeps anybody.
        world.running.clear();
        for vm in 0..4 {
            (0..3).for_each(|node| world.release(vm, node));
        }
        prop_assert_eq!(&world.object.content.holders, &[]);
    }
}
