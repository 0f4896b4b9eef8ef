//! Who may use a master at the same time, and how it may be copied.
//!
//! | | none | copy-on-write, copy-on-read | clone |
//! |---|---|---|---|
//! | write-exclusive | one writer, alone | refused | refused |
//! | write-shared | many writers, raw only | refused | refused |
//! | read-shared | many readers | many readers, the copy is written | the same, while it is copied |

use std::fmt;

use crate::domain::{DeviceKind, Format};
use crate::plan::{Access, CopyMode};

/// What is asked of a master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) access: Option<Access>,
    pub(super) copy: Option<CopyMode>,
    pub(super) device: DeviceKind,
    pub(super) format: Format,
    pub(super) master: Writable,
}

/// Whether a master can be written at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writable {
    /// It can.
    Yes,
    /// It can, within a filesystem that one node has mounted at a time.
    Mounted,
    /// Its claim or volume says that it is read only.
    ClaimSaysNo,
    /// An image of the store is everybody's.
    Image,
    /// The protocol has no way to write.
    Protocol,
    /// It is made for this VM, by us.
    New,
}

/// How a master is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) access: Access,
    pub(super) copy: CopyMode,
    /// The guest cannot write.
    pub(super) read_only: bool,
}

/// Why a wish cannot be fulfilled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A copy does not write the master, so asking for that is a mistake.
    CopyWrites(Access),
    /// A CD-ROM, whose guest only reads.
    CdromWrites,
    /// A copy that a CD-ROM never fills.
    CdromCopy,
    /// A unit is the storage itself.
    UnitCopy,
    /// Commands go through to a unit, so nothing keeps the guest from writing.
    UnitReadOnly,
    /// A unit has no format.
    UnitFormat,
    /// Two guests would write their own ideas of its tables.
    SharedQcow2,
    /// QEMU would follow what a tenant wrote into it.
    DirectQcow2,
    /// Two nodes would write their own ideas of a filesystem.
    SharedFilesystem,
    /// The master cannot be written.
    NotWritable(Writable),
    /// Nobody else has what is made for this VM.
    SharedNew,
    /// Nor is there anything in it to copy.
    CopiedNew,
    /// It is a file, which is no unit.
    UnitNew,
}

/// Decides.
pub(super) fn judge(wish: Wish) -> Result<Use, Refusal> {
    let copy = wish.copy.unwrap_or(match (wish.master, wish.device) {
        (Writable::Image, DeviceKind::Disk) => CopyMode::CopyOnWrite,
        _ => CopyMode::None,
    });
    let access = wish.access.unwrap_or(default_access(wish, copy));
    if wish.master == Writable::New {
        check_new(wish.device, access, copy)?;
    }
    check_device(wish.device, access, copy, wish.format)?;
    if copy != CopyMode::None && access != Access::ReadShared {
        return Err(Refusal::CopyWrites(access));
    }
    let writable = matches!(
        wish.master,
        Writable::Yes | Writable::Mounted | Writable::New
    );
    if access != Access::ReadShared && !writable {
        return Err(Refusal::NotWritable(wish.master));
    }
    if access == Access::WriteShared && wish.master == Writable::Mounted {
        return Err(Refusal::SharedFilesystem);
    }
    match (wish.format, access, copy) {
        // No tenant has written to it before this VM does.
        _ if wish.master == Writable::New => {}
        (Format::Qcow2, Access::WriteShared, _) => return Err(Refusal::SharedQcow2),
        (Format::Qcow2, _, copy) if copy != CopyMode::Clone => return Err(Refusal::DirectQcow2),
        _ => {}
    }
    let is_cdrom = wish.device == DeviceKind::Cdrom;
    Ok(Use {
        access,
        copy,
        read_only: is_cdrom || (access == Access::ReadShared && copy == CopyMode::None),
    })
}

/// Alone, unless the guest could not write anyway. That a web server's file
/// cannot be written its user may not know, and is told.
fn default_access(wish: Wish, copy: CopyMode) -> Access {
    let only_read = matches!(wish.master, Writable::ClaimSaysNo | Writable::Image);
    if copy != CopyMode::None || only_read || wish.device == DeviceKind::Cdrom {
        Access::ReadShared
    } else {
        Access::WriteExclusive
    }
}

fn check_new(device: DeviceKind, access: Access, copy: CopyMode) -> Result<(), Refusal> {
    if device == DeviceKind::Lun {
        return Err(Refusal::UnitNew);
    }
    if copy != CopyMode::None {
        return Err(Refusal::CopiedNew);
    }
    match access {
        Access::WriteShared => Err(Refusal::SharedNew),
        Access::WriteExclusive | Access::ReadShared => Ok(()),
    }
}

fn check_device(
    device: DeviceKind,
    access: Access,
    copy: CopyMode,
    format: Format,
) -> Result<(), Refusal> {
    match device {
        DeviceKind::Disk => Ok(()),
        DeviceKind::Cdrom if access != Access::ReadShared => Err(Refusal::CdromWrites),
        DeviceKind::Cdrom if !matches!(copy, CopyMode::None | CopyMode::Clone) => {
            Err(Refusal::CdromCopy)
        }
        DeviceKind::Lun if copy != CopyMode::None => Err(Refusal::UnitCopy),
        DeviceKind::Lun if access == Access::ReadShared => Err(Refusal::UnitReadOnly),
        DeviceKind::Lun if format != Format::Raw => Err(Refusal::UnitFormat),
        DeviceKind::Cdrom | DeviceKind::Lun => Ok(()),
    }
}

impl Refusal {
    /// The field that is to be pointed at.
    pub(super) fn field(self) -> Field {
        match self {
            Self::CopyWrites(_) | Self::NotWritable(_) | Self::UnitReadOnly => Field::Access,
            Self::CdromWrites | Self::SharedNew | Self::SharedFilesystem => Field::Access,
            Self::CdromCopy | Self::UnitCopy | Self::CopiedNew => Field::Copy,
            Self::SharedQcow2 | Self::DirectQcow2 | Self::UnitFormat | Self::UnitNew => {
                Field::Format
            }
        }
    }

    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::CopyWrites(_) => "remove access-mode, or write read-shared",
            Self::CdromWrites => "remove access-mode, or use device: disk",
            Self::CdromCopy => "remove copy, or use mode: clone",
            Self::UnitCopy => "remove copy, or use device: disk",
            Self::UnitReadOnly | Self::UnitNew => "use device: disk",
            Self::UnitFormat => "remove format",
            Self::SharedNew => "remove access-mode",
            Self::SharedFilesystem => {
                "have what is below it as the disk, with driver: {name: qemu} or a claim with volumeMode: Block"
            }
            Self::CopiedNew => "remove copy",
            Self::SharedQcow2 => "use a raw master, which write-shared needs",
            Self::DirectQcow2 => {
                "use copy: {mode: clone}, which makes a raw copy, or convert the master with disklet image convert"
            }
            Self::NotWritable(Writable::Protocol | Writable::Image) => {
                "write access-mode: read-only, or have a copy with copy: {mode: copy-on-write}"
            }
            Self::NotWritable(_) => {
                "write access-mode: read-only, or use a claim with an access mode such as ReadWriteOnce"
            }
        }
    }
}

/// Fields of a disk that a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Access,
    Copy,
    Format,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CopyWrites(access) => write!(
                f,
                "a copy does not write its master, so {} has no meaning",
                access.name()
            ),
            Self::CdromWrites => f.write_str("a CD-ROM cannot be written"),
            Self::CdromCopy => f.write_str("a CD-ROM is only read: there is nothing to copy on"),
            Self::UnitCopy => f.write_str("a unit is the storage itself, not a copy"),
            Self::UnitReadOnly => {
                f.write_str("a unit cannot be made read-only: the guest's commands go through")
            }
            Self::UnitFormat => f.write_str("a unit is raw"),
            Self::SharedQcow2 => f.write_str("qcow2 cannot be write-shared"),
            Self::SharedFilesystem => f.write_str(
                "a disk.img cannot be write-shared on a volume whose filesystem one node mounts at a time",
            ),
            Self::DirectQcow2 => {
                f.write_str("QEMU does not open a qcow2 master: it would follow file names in it")
            }
            Self::NotWritable(Writable::Protocol) => {
                f.write_str("a file of a web server cannot be written")
            }
            Self::UnitNew => {
                f.write_str("a volume that is made for this VM understands no SCSI commands")
            }
            Self::SharedNew => f.write_str("a volume that is made for this VM has no other user"),
            Self::CopiedNew => {
                f.write_str("a volume that is made for this VM is new: there is nothing to copy")
            }
            Self::NotWritable(Writable::Image) => f.write_str("an image cannot be written"),
            Self::NotWritable(_) => f.write_str("the claim's volume is read-only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESSES: [Option<Access>; 4] = [
        None,
        Some(Access::WriteExclusive),
        Some(Access::WriteShared),
        Some(Access::ReadShared),
    ];

    fn disk(access: Option<Access>, copy: Option<CopyMode>) -> Wish {
        Wish {
            access,
            copy,
            device: DeviceKind::Disk,
            format: Format::Raw,
            master: Writable::Yes,
        }
    }

    #[test]
    fn the_matrix_is_the_designs() {
        use Access::{ReadShared, WriteExclusive, WriteShared};
        for access in ACCESSES {
            for copy in CopyMode::ALL {
                let found = judge(disk(access, Some(copy)));
                let wanted = match (access, copy) {
                    (None | Some(WriteExclusive), CopyMode::None) => {
                        Ok((WriteExclusive, copy, false))
                    }
                    (Some(WriteShared), CopyMode::None) => Ok((WriteShared, copy, false)),
                    (Some(ReadShared), CopyMode::None) => Ok((ReadShared, copy, true)),
                    (None | Some(ReadShared), copy) => Ok((ReadShared, copy, false)),
                    (Some(writing), _) => Err(Refusal::CopyWrites(writing)),
                };
                let found = found.map(|it| (it.access, it.copy, it.read_only));
                assert_eq!(found, wanted, "{access:?} {copy:?}");
            }
        }
    }

    /// All wishes there are.
    fn all() -> Vec<Wish> {
        let mut all = Vec::new();
        let copies = CopyMode::ALL.map(Some).into_iter().chain([None]);
        for copy in copies {
            for access in ACCESSES {
                for device in [DeviceKind::Disk, DeviceKind::Cdrom, DeviceKind::Lun] {
                    for format in [Format::Raw, Format::Qcow2] {
                        for master in [
                            Writable::Yes,
                            Writable::Mounted,
                            Writable::ClaimSaysNo,
                            Writable::Image,
                            Writable::Protocol,
                            Writable::New,
                        ] {
                            all.push(Wish {
                                access,
                                copy,
                                device,
                                format,
                                master,
                            });
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn nothing_is_written_that_cannot_or_must_not_be() {
        for wish in all() {
            let Ok(granted) = judge(wish) else { continue };
            let writes_master = granted.copy == CopyMode::None && !granted.read_only;
            if writes_master {
                let writable = [Writable::Yes, Writable::Mounted, Writable::New];
                assert!(writable.contains(&wish.master), "{wish:?}");
                assert_ne!(granted.access, Access::ReadShared, "{wish:?}");
            } else {
                assert_eq!(granted.access, Access::ReadShared, "{wish:?}");
            }
            if wish.master == Writable::Mounted {
                assert_ne!(granted.access, Access::WriteShared, "{wish:?}");
            }
            if wish.master == Writable::New {
                assert_eq!(granted.copy, CopyMode::None, "{wish:?}");
                assert_ne!(granted.access, Access::WriteShared, "{wish:?}");
            } else if wish.format == Format::Qcow2 {
                assert_eq!(granted.copy, CopyMode::Clone, "{wish:?}");
            }
            if wish.device == DeviceKind::Cdrom {
                assert!(granted.read_only && granted.copy != CopyMode::CopyOnRead);
            }
            if let Some(access) = wish.access {
                assert_eq!(granted.access, access, "{wish:?}");
            }
            if let Some(copy) = wish.copy {
                assert_eq!(granted.copy, copy, "{wish:?}");
            }
        }
    }

    #[test]
    fn an_image_is_copied_unless_something_else_is_said() {
        let image = Wish {
            master: Writable::Image,
            ..disk(None, None)
        };
        assert_eq!(judge(image).unwrap().copy, CopyMode::CopyOnWrite);
        let whole = Wish {
            copy: Some(CopyMode::None),
            ..image
        };
        assert!(judge(whole).unwrap().read_only);
        let web = Wish {
            master: Writable::Protocol,
            ..disk(None, None)
        };
        assert_eq!(judge(web), Err(Refusal::NotWritable(Writable::Protocol)));
    }
}
