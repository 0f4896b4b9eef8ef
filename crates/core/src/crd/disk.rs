//! A disk of a VM.

use super::schema::Schema;
use super::source::source;

pub(super) fn disk() -> Schema {
    let spelling = "The other spelling of the field before. Keep one of the two.";
    Schema::object("A disk: where its bytes come from, and what the guest sees.")
        .require(["source"])
        .field("name", Schema::text("Its name in the VM. Absent: the name of its target, such as sda."))
        .field(
            "type",
            Schema::word(
                ["PersistentVolumeClaim"],
                "The older way to name a claim: with it, source has name and create.",
            ),
        )
        .field("source", source())
        .field("driver", driver())
        .field("target", target())
        .field(
            "device",
            Schema::word(
                ["disk", "cdrom", "lun"],
                "What the guest sees it as. disk if absent; lun hands SCSI commands through (iSCSI and block devices).",
            ),
        )
        .field(
            "format",
            Schema::word(["raw", "qcow2"], "Of the bytes at the source. raw if absent; qcow2 with a copy of mode clone only."),
        )
        .field_or(
            "bootOrder",
            "boot-order",
            Schema::number("Its turn, 1 to 1000, when the guest looks for something to boot."),
            spelling,
        )
        .field(
            "serial",
            Schema::number_or_text("What the guest knows it by: at most 20 letters, digits, - _ . +. Absent: made of its name."),
        )
        .field(
            "cache",
            Schema::word(
                ["none", "writeback", "writethrough", "directsync", "unsafe"],
                "How the node caches it. Absent: none where the storage can do that.",
            ),
        )
        .field(
            "io",
            Schema::word(["threads", "native", "io_uring"], "How requests reach the node's kernel. Not for disks at servers."),
        )
        .field("iotune", limits())
        .field_or(
            "access-mode",
            "accessMode",
            Schema::word(
                ["write-exclusive", "write-shared", "read-shared", "read-only"],
                "Who may use the source at the same time. write-exclusive if absent, or read-shared below a copy; read-only means read-shared.",
            ),
            spelling,
        )
        .field("copy", copy())
}

fn driver() -> Schema {
    Schema::object("Who opens a claim.").require(["name"]).field(
        "name",
        Schema::word(
            ["qemu", "kubelet"],
            "qemu: QEMU itself, over the network. kubelet: the node mounts or maps it. Absent: by the volume's type.",
        ),
    )
}

fn target() -> Schema {
    Schema::object("Where it is plugged in.")
        .field(
            "bus",
            Schema::word(
                ["scsi", "virtio", "sata"],
                "scsi (sda to sdz), virtio (vda to vdt) or sata (sda to sdf).",
            ),
        )
        .field_or(
            "device",
            "target",
            Schema::text("Its name there, such as sda. Absent: the first free one."),
            "The older spelling of device. Keep one of the two.",
        )
}

fn limits() -> Schema {
    let spelling = "The other spelling of the field before. Keep one of the two.";
    let fields = [
        (
            "total-bytes-sec",
            "totalBytesSec",
            "Bytes in a second, read and written; such as 50Mi.",
        ),
        (
            "read-bytes-sec",
            "readBytesSec",
            "Bytes read in a second. Not with a total.",
        ),
        (
            "write-bytes-sec",
            "writeBytesSec",
            "Bytes written in a second. Not with a total.",
        ),
        (
            "total-iops-sec",
            "totalIopsSec",
            "Requests in a second, read and written.",
        ),
        (
            "read-iops-sec",
            "readIopsSec",
            "Requests to read in a second. Not with a total.",
        ),
        (
            "write-iops-sec",
            "writeIopsSec",
            "Requests to write in a second. Not with a total.",
        ),
    ];
    fields.into_iter().fold(
        Schema::object("How much of it the guest may use in a second."),
        |limits, (kebab, camel, description)| {
            limits.field_or(kebab, camel, Schema::number_or_text(description), spelling)
        },
    )
}

fn copy() -> Schema {
    Schema::object("Whether the guest gets a copy instead of the source itself. A copy lives on the node and goes with the VM.")
        .require(["mode"])
        .field(
            "mode",
            Schema::word(
                ["none", "copy-on-write", "copy-on-read", "clone"],
                "copy-on-write keeps what the guest changes, copy-on-read also what it has read; clone copies all of it before the VM starts.",
            ),
        )
        .field_or(
            "usage-type",
            "usageType",
            Schema::text("The node's pool for the copy. volumes if absent."),
            "The other spelling of the field before. Keep one of the two.",
        )
        .field(
            "size",
            Schema::number_or_text("How large an overlay over an image is at least, such as 20Gi. It grows with this, also while the guest runs."),
        )
}
