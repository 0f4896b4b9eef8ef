//! Each way in which a disk at a server can be used: where the plan accepts it,
//! a real QEMU opens what the plan says.
//!
//! The steps are carried out by hand, so that this shows the domain and nothing
//! else.

use std::path::Path;
use std::process::Command;

use disklet_core::config::Config;
use disklet_core::diag::Diagnostics;
use disklet_core::domain::KeyKind;
use disklet_core::facts::Facts;
use disklet_core::manifest::{Input, Objects};
use disklet_core::names::Namespace;
use disklet_core::plan::{Access, CopyMode, Plan, Step};
use disklet_core::resolve::resolve;
use serde_json::json;

use crate::disks::{self, ServerDisk, vm};
use crate::support::Machine;
use crate::support::servers::{Kind, Server};
use crate::support::things::with_secrets;
use crate::xml::Element;

type Cell = (Access, CopyMode);

const ACCESSES: [Access; 3] = [
    Access::WriteExclusive,
    Access::WriteShared,
    Access::ReadShared,
];

fn all_cells() -> Vec<Cell> {
    let copies = |access| CopyMode::ALL.map(|copy| (access, copy));
    ACCESSES.into_iter().flat_map(copies).collect()
}

/// Goes through these cells; how many of them the plan accepts.
fn go_through(name: &str, disk: &ServerDisk, machine: &Machine, cells: &[Cell]) -> usize {
    let before = machine.things();
    let accepted = cells.iter().filter(|(access, copy)| {
        // Whoever shares is not alone.
        let users = match (access, copy) {
            (Access::WriteExclusive, _) => 1,
            (_, CopyMode::None) => 2,
            _ => 1,
        };
        let fields = format!(
            "        access-mode: {}\n        copy: {{mode: {}}}\n",
            access.name(),
            copy.name()
        );
        let plans: Option<Vec<_>> = (0..users)
            .map(|user| {
                let name = format!("{name}-{}-{}-{user}", access.name(), copy.name());
                plan(machine, &vm(&name, &disk.item(&fields), &disk.objects))
            })
            .collect();
        let Some(plans) = plans else { return false };
        let vms: Vec<_> = plans
            .iter()
            .map(|plan| Opened::new(machine, plan))
            .collect();
        for vm in vms {
            vm.use_and_close(*copy, &disk.text);
        }
        true
    });
    let accepted = accepted.count();
    assert_eq!(machine.things(), before);
    accepted
}

/// The plan, unless the matrix refuses it.
fn plan(machine: &Machine, text: &str) -> Option<Plan> {
    let mut diags = Diagnostics::default();
    let mut objects = Objects::default();
    let input = |name: &str, text: String| Input {
        name: name.into(),
        text,
    };
    let namespace = Namespace::parse("default").unwrap();
    objects.read(&input("vm.yaml", text.to_owned()), &namespace, &mut diags);
    let config = std::fs::read_to_string(machine.path("config.yaml")).unwrap();
    let config = Config::default().read(&input("config.yaml", config), &mut diags);
    let mut plans = resolve(&objects, &config, &Facts::default(), &mut diags);
    for problem in diags.into_sorted() {
        let place = problem.place.as_ref().unwrap().path.to_string();
        assert!(place.ends_with("access-mode"), "{problem}");
    }
    plans.pop()
}

/// A VM that stands still at its first instruction, with its disks open.
struct Opened<'o> {
    machine: &'o Machine,
    plan: &'o Plan,
    uuid: String,
    /// The disk as libvirt has it.
    device: String,
}

impl<'o> Opened<'o> {
    fn new(machine: &'o Machine, plan: &'o Plan) -> Self {
        for step in &plan.steps {
            by_hand(machine, step);
        }
        std::fs::create_dir_all(Path::new(&plan.domain.serial_log).parent().unwrap()).unwrap();
        let document = plan.domain.to_xml();
        let file = machine.write("domain.xml", &document);
        machine.virsh_done(&["create", "--paused", file.to_str().unwrap()]);
        let uuid = plan.uuid.to_string();
        let running = machine.virsh_done(&["dumpxml", &uuid]);
        let (ours, theirs) = (Element::parse(&document), Element::parse(&running));
        let (ours, theirs) = (disk(&ours), disk(&theirs));
        assert_kept(ours, theirs);
        let target = plan.disks[0].target.name();
        let listed = machine.virsh_done(&["domblklist", "--details", &uuid]);
        let source = ours.child("source").unwrap();
        let name = source.attribute("file").or(source.attribute("name"));
        // The export without a name has none.
        let name = name.unwrap_or("-");
        let listed: Vec<_> = listed.split_whitespace().collect();
        let name: Vec<_> = name.split_whitespace().collect();
        assert!(listed.ends_with(&name), "{listed:?}");
        assert!(listed.contains(&target.as_str()), "{listed:?}");
        let alias = theirs.child("alias").unwrap().attribute("name");
        let device = alias.unwrap().to_owned();
        Self {
            machine,
            plan,
            uuid,
            device,
        }
    }

    /// Whatever happens above a copy, the master's bytes are below it, and come
    /// into it when the mode says so.
    fn use_and_close(self, copy: CopyMode, text: &str) {
        let command = match copy {
            CopyMode::None | CopyMode::Clone => "read 0 512",
            // Of a cluster, what is not written comes from the master.
            CopyMode::CopyOnWrite => "write 512 512",
            CopyMode::CopyOnRead => "read 0 512",
        };
        let command = format!("qemu-io -d {} \"{command}\"", self.device);
        let monitor = ["qemu-monitor-command", &self.uuid, "--hmp", &command];
        let overlay = self.plan.disks[0]
            .copy
            .file()
            .filter(|_| matches!(copy, CopyMode::CopyOnWrite | CopyMode::CopyOnRead));
        if let Some(overlay) = overlay {
            assert_ne!(own_line(self.machine, &overlay.path), text);
        }
        self.machine.virsh_done(&monitor);
        self.machine.virsh_done(&["destroy", &self.uuid]);
        if let Some(overlay) = overlay {
            assert_eq!(own_line(self.machine, &overlay.path), text);
        }
        for step in self.plan.steps.iter().rev() {
            undo(self.machine, step);
        }
        let home = Path::new(&self.plan.domain.serial_log).parent().unwrap();
        std::fs::remove_dir_all(home).unwrap();
    }
}

/// The only disk.
fn disk(domain: &Element) -> &Element {
    domain.child("devices").unwrap().child("disk").unwrap()
}

/// What libvirt runs says of the disk what we said, and adds nothing but names
/// of its own.
fn assert_kept(ours: &Element, theirs: &Element) {
    let (ours, theirs) = (ours.statements(), theirs.statements());
    let lost: Vec<_> = ours.difference(&theirs).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let is_name = |new: &String| new.contains("@index=") || new.starts_with("disk/alias");
    let added: Vec<_> = theirs
        .difference(&ours)
        .filter(|new| !is_name(new))
        .collect();
    assert!(added.is_empty(), "{added:?}");
}

fn by_hand(machine: &Machine, step: &Step) {
    match step {
        Step::EnsurePool { directory, .. } => std::fs::create_dir_all(directory).unwrap(),
        Step::CreateOverlay { file, .. } => {
            // Nobody follows the name inside: the domain spells what is below.
            let nowhere = ["-u", "-F", "raw", "-b", "/nowhere"];
            let create = ["create", "-q", "-f", "qcow2"];
            qemu_img(&[&create[..], &nowhere, &[file, "4M"]].concat());
        }
        Step::CloneMaster { file, .. } => {
            std::fs::File::create_new(file)
                .and_then(|file| file.set_len(4 << 20))
                .unwrap();
        }
        Step::DefineSecret {
            uuid,
            usage,
            key_kind,
            key,
            ..
        } => {
            let (element, form) = match key_kind {
                // As Ceph prints keys, so virsh reads them.
                KeyKind::Ceph => ("name", None),
                KeyKind::Iscsi => ("target", Some("--plain")),
                KeyKind::Web => panic!("QEMU gets no password for the web"),
            };
            let kind = key_kind.name();
            let secret = format!(
                "<secret ephemeral='yes' private='yes'><uuid>{uuid}</uuid>\
                 <usage type='{kind}'><{element}>{usage}</{element}></usage></secret>"
            );
            let secret = machine.write("secret.xml", secret);
            machine.virsh_done(&["secret-define", secret.to_str().unwrap()]);
            let key = machine.write("key", key.expose());
            let uuid = uuid.to_string();
            let set = ["secret-set-value", &uuid, "--file", key.to_str().unwrap()];
            let form: Vec<_> = form.into_iter().collect();
            machine.virsh_done(&[&set[..], &form].concat());
        }
        Step::WriteCephConfig { file } => {
            std::fs::create_dir_all(std::path::Path::new(file).parent().unwrap()).unwrap();
            std::fs::write(file, "[global]\nclient_mount_timeout = 30\n").unwrap();
        }
        Step::TakeLease { .. }
        | Step::EndLease { .. }
        | Step::CheckServers { .. }
        | Step::DefineDomain { .. }
        | Step::StartDomain { .. } => {}
        other => panic!("{other}: not a step of such a disk"),
    }
}

fn undo(machine: &Machine, step: &Step) {
    match step {
        Step::CreateOverlay { file, .. }
        | Step::CloneMaster { file, .. }
        | Step::WriteCephConfig { file } => {
            std::fs::remove_file(file).unwrap();
        }
        Step::DefineSecret { uuid, .. } => {
            machine.virsh_done(&["secret-undefine", &uuid.to_string()]);
        }
        _ => {}
    }
}

/// The first line of what is in an overlay itself.
fn own_line(machine: &Machine, overlay: &str) -> String {
    let copy = machine.path("own");
    let file = json!({"driver": "file", "filename": overlay, "locking": "off"});
    let alone = json!({"driver": "qcow2", "backing": null, "file": file});
    let from = format!("json:{alone}");
    qemu_img(&["convert", "-O", "raw", &from, copy.to_str().unwrap()]);
    let bytes = std::fs::read(&copy).unwrap();
    let sector = String::from_utf8_lossy(&bytes[..512]);
    sector
        .trim_end_matches('\0')
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

fn qemu_img(arguments: &[&str]) {
    let output = Command::new("qemu-img").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// All of the matrix but copies that would write their master.
const OF_WRITABLE: usize = 6;
/// The same without those who write.
const OF_READ_ONLY: usize = 4;

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn rbd_is_used_in_every_way() {
    let machine = Machine::new("matrix-rbd");
    let _secrets = with_secrets();
    let disk = disks::rbd();
    let accepted = go_through("matrix-rbd", &disk, &machine, &all_cells());
    assert_eq!(accepted, OF_WRITABLE);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn iscsi_is_used_in_every_way() {
    let machine = Machine::new("matrix-iscsi");
    let _secrets = with_secrets();
    let disk = disks::iscsi_chap("chap", Some("iqn.2024-01.test.disklet:matrix"));
    let accepted = go_through("matrix-iscsi", &disk, &machine, &all_cells());
    assert_eq!(accepted, OF_WRITABLE);
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn nbd_is_used_in_every_way() {
    let machine = Machine::new("matrix-nbd");
    let server = Server::shared(Kind::Nbd);
    for (name, disk) in [
        ("matrix-nbd-tcp", disks::nbd(server, "tcp")),
        ("matrix-nbd-unix", disks::nbd_socket(machine.run_dir())),
    ] {
        let accepted = go_through(name, &disk, &machine, &all_cells());
        assert_eq!(accepted, OF_WRITABLE);
    }
}

#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn a_web_file_is_read_in_every_way() {
    let machine = Machine::new("matrix-http");
    let disk = disks::web(Server::shared(Kind::Http), "http");
    let accepted = go_through("matrix-http", &disk, &machine, &all_cells());
    assert_eq!(accepted, OF_READ_ONLY);
}

/// Few cells: whoever uses Gluster's library waits ten seconds when it closes.
#[test]
#[ignore = "needs servers beside a private libvirtd: script/test"]
fn gluster_is_shared_and_copied() {
    let machine = Machine::new("matrix-gluster");
    let cells = [
        (Access::WriteShared, CopyMode::None),
        (Access::ReadShared, CopyMode::CopyOnRead),
    ];
    let accepted = go_through("matrix-gluster", &disks::gluster(), &machine, &cells);
    assert_eq!(accepted, cells.len());
}
