use super::*;

fn disk(kind: &str) -> RunningDisk {
    RunningDisk {
        name: "data".to_owned(),
        target: "sdb".to_owned(),
        bus: Bus::Scsi,
        device: DeviceKind::Disk,
        serial: "data".to_owned(),
        boot_order: None,
        source: RunningSource {
            kind: kind.to_owned(),
            claim: None,
            exposed_at: None,
        },
        size: None,
        copied_to: None,
        read_only: false,
        attached: false,
    }
}

fn vm(disks: Vec<RunningDisk>) -> RunningVm {
    RunningVm {
        namespace: Namespace::parse("default").unwrap(),
        name: ObjectName::parse("vm").unwrap(),
        uuid: Uuid::nil(),
        disks,
    }
}

const MIB: u64 = 1 << 20;

fn seen(guest: u64, device: Option<u64>) -> Seen {
    Seen {
        guest: ByteSize::from_bytes(guest * MIB),
        device: device.map(|size| ByteSize::from_bytes(size * MIB)),
    }
}

fn asked(disk: &RunningDisk, wanted: Option<u64>, seen: Seen) -> Result<Option<u64>, Refusal> {
    let wanted = wanted.map(|size| ByteSize::from_bytes(size * MIB));
    Ok(match resize(disk, wanted, seen)? {
        Growth::Already(_) | Growth::AsItsUnit => None,
        Growth::To(size) => Some(size.as_bytes() / MIB),
    })
}

#[test]
fn files_grow_and_never_shrink() {
    let file = disk("diskImage");
    assert_eq!(asked(&file, Some(9), seen(8, None)), Ok(Some(9)));
    assert_eq!(asked(&file, Some(8), seen(8, None)), Ok(None));
    assert_eq!(asked(&file, None, seen(8, None)), Err(Refusal::NoSize));
    let smaller = asked(&file, Some(7), seen(8, None)).unwrap_err();
    assert!(matches!(smaller, Refusal::Shrinks { .. }), "{smaller}");
    let most = asked(&file, Some(16 << 20), seen(8, None)).unwrap_err();
    assert!(matches!(most, Refusal::TooLarge(_)), "{most}");
}

#[test]
fn sizes_are_whole_sectors() {
    let wanted = ByteSize::from_bytes(MIB + 1);
    let grown = resize(&disk("newVolume"), Some(wanted), seen(1, None));
    let Growth::To(size) = grown.unwrap() else {
        panic!("it has that size already");
    };
    assert_eq!(size.as_bytes(), MIB + 512);
}

#[test]
fn a_device_says_itself_how_large_it_is() {
    let device = disk("blockClaim");
    assert_eq!(asked(&device, None, seen(8, Some(9))), Ok(Some(9)));
    assert_eq!(asked(&device, Some(9), seen(8, Some(9))), Ok(Some(9)));
    assert_eq!(asked(&device, None, seen(8, Some(8))), Ok(None));
    let other = asked(&device, Some(10), seen(8, Some(9))).unwrap_err();
    assert!(matches!(other, Refusal::OtherDevice { .. }), "{other}");
    let shrunk = asked(&device, None, seen(8, Some(7))).unwrap_err();
    assert!(matches!(shrunk, Refusal::Shrinks { .. }), "{shrunk}");
}

#[test]
fn only_a_target_is_asked_for_the_size_of_what_it_has() {
    let unit = resize(&disk("iscsi"), None, seen(8, None));
    assert!(matches!(unit, Ok(Growth::AsItsUnit)), "{unit:?}");
    assert_eq!(asked(&disk("iscsi"), Some(9), seen(8, None)), Ok(Some(9)));
    for kind in ["rbd", "gluster"] {
        let told = asked(&disk(kind), None, seen(8, None));
        assert_eq!(told, Err(Refusal::NoSizeOfServer), "{kind}");
        assert_eq!(asked(&disk(kind), Some(9), seen(8, None)), Ok(Some(9)));
    }
    // An overlay over a unit is a file of ours.
    let mut over = disk("iscsi");
    over.copied_to = Some(CopiedTo {
        file: "/over".to_owned(),
    });
    assert_eq!(asked(&over, None, seen(8, None)), Err(Refusal::NoSize));
}

#[test]
fn what_cannot_grow_says_why() {
    let refused = |disk: &RunningDisk| asked(disk, Some(9), seen(8, Some(9))).unwrap_err();
    assert_eq!(refused(&disk("persistentRoot")), Refusal::PersistentRoot);
    assert_eq!(refused(&disk("cloudInit")), Refusal::CloudInit);
    assert_eq!(refused(&disk("nbd")), Refusal::Opened("an NBD export"));
    assert_eq!(refused(&disk("container")), Refusal::Unknown);
    let change = |change: fn(&mut RunningDisk)| {
        let mut disk = disk("diskImage");
        change(&mut disk);
        refused(&disk)
    };
    assert_eq!(
        change(|disk| disk.device = DeviceKind::Cdrom),
        Refusal::Cdrom
    );
    assert_eq!(change(|disk| disk.device = DeviceKind::Lun), Refusal::Unit);
    assert_eq!(change(|disk| disk.bus = Bus::Sata), Refusal::Sata);
    assert_eq!(change(|disk| disk.read_only = true), Refusal::ReadOnly);
    // An overlay over an export is a file of ours.
    let mut over = disk("nbd");
    over.copied_to = Some(CopiedTo {
        file: "/over".to_owned(),
    });
    assert_eq!(asked(&over, Some(9), seen(8, None)), Ok(Some(9)));
}

#[test]
fn what_cannot_be_detached_says_why() {
    let mut boots = disk("image");
    boots.boot_order = Some(2);
    let vm = vm(vec![disk("nbd"), boots.clone()]);
    demand_detachable(&vm, &disk("nbd")).unwrap();
    assert_eq!(demand_detachable(&vm, &boots).unwrap_err(), Refusal::Boots);
    boots.boot_order = Some(3);
    demand_detachable(&vm, &boots).unwrap();
    let cloud_init = demand_detachable(&vm, &disk("cloudInit"));
    assert_eq!(cloud_init.unwrap_err(), Refusal::CloudInit);
    let mut sata = disk("image");
    sata.bus = Bus::Sata;
    assert_eq!(demand_detachable(&vm, &sata).unwrap_err(), Refusal::Sata);
}

#[test]
fn a_disk_is_found_by_name_and_by_target() {
    let mut other = disk("image");
    (other.name, other.target) = ("sdb".to_owned(), "sdc".to_owned());
    let vm = vm(vec![disk("image"), other]);
    assert_eq!(vm.disk("data").unwrap().target, "sdb");
    assert_eq!(vm.disk("sdc").unwrap().name, "sdb");
    let both = vm.disk("sdb").unwrap_err();
    assert!(matches!(both, Refusal::Ambiguous { .. }), "{both}");
    let none = vm.disk("dota").unwrap_err();
    assert_eq!(none.remedy(), "did you mean \"data\"?");
    let none = vm.disk("elsewhere").unwrap_err();
    assert_eq!(none.remedy(), "it has data (sdb), sdb (sdc)");
}
