//! `spec` of a VM: the machine, and what its guest is told.

use super::disk::disk;
use super::schema::Schema;

pub(super) fn spec() -> Schema {
    // Older API servers tell kubectl nothing of what is below it.
    Schema::object(
        "What the VM shall be: running (true or false); domain with memory (2Gi), cpu (2), firmware and devices.disks, each with a source (image, pvc, iscsi, rbd, nbd, gluster, http, container), target, copy and more; cloudInit with userData and sshKeys. Unknown fields are refused. docs/vm-objects.md has all of it.",
    )
        .require(["domain"])
        .field(
            "running",
            Schema::flag(
                "Whether it shall run. True if absent; false switches it off and keeps its disks.",
            ),
        )
        .field(
            "restartPolicy",
            Schema::word(
                ["Always", "OnFailure", "Never"],
                "What follows when the VM ends by itself. OnFailure if absent: it is started again unless the guest has switched itself off.",
            ),
        )
        .field(
            "terminationGracePeriodSeconds",
            Schema::number("How long the guest has to switch itself off. 30 if absent."),
        )
        .field(
            "readinessProbe",
            probe("Asked while the guest runs; Services send nothing to a guest that does not answer."),
        )
        .field(
            "livenessProbe",
            probe("Asked while the guest runs; one that does not answer is ended, and started again as restartPolicy says."),
        )
        .field(
            "startupProbe",
            probe("Asked first; the other probes wait until it is answered."),
        )
        .field("domain", domain())
        .field("cloudInit", cloud_init())
        .field("identity", identity())
}

fn probe(description: &'static str) -> Schema {
    let seconds = |description| Schema::number(description);
    Schema::object(description)
        .field(
            "httpGet",
            Schema::object("An answer between 200 and 399 is good.")
                .require(["port"])
                .field("port", Schema::number("The guest's port."))
                .field("path", Schema::text("What is asked for. / if absent."))
                .field("scheme", Schema::word(["HTTP", "HTTPS"], "HTTP if absent."))
                .field(
                    "httpHeaders",
                    Schema::list(header(), "Headers of the request."),
                ),
        )
        .field(
            "tcpSocket",
            Schema::object("Tells that the VM runs, not that its guest answers: use httpGet.")
                .require(["port"])
                .field("port", Schema::number("The guest's port.")),
        )
        .field("initialDelaySeconds", seconds("Before the first question."))
        .field("periodSeconds", seconds("Between questions. 10 if absent."))
        .field("timeoutSeconds", seconds("For an answer. 1 if absent."))
        .field(
            "successThreshold",
            seconds("How many answers in a row are good. 1 if absent."),
        )
        .field(
            "failureThreshold",
            seconds("How many questions in a row without an answer are bad. 3 if absent."),
        )
}

fn header() -> Schema {
    Schema::object("A header.")
        .require(["name", "value"])
        .field("name", Schema::text("Its name."))
        .field("value", Schema::text("Its value."))
}

fn domain() -> Schema {
    Schema::object("The machine.")
        .field("memory", memory())
        .field("cpu", cpu())
        .field("firmware", firmware())
        .field("devices", devices())
}

fn memory() -> Schema {
    Schema::short_or_long(
        "The guest's memory: a quantity such as 2Gi, or {value, unit}. Absent: the node's default.",
    )
    .field("value", Schema::number("How many of the unit."))
    .field(
        "unit",
        Schema::word(
            ["KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB", "bytes"],
            "The unit of value. KiB if absent, as libvirt counts.",
        ),
    )
}

fn cpu() -> Schema {
    let count = |description| Schema::number(description);
    Schema::short_or_long(
        "The guest's CPUs: their number, or {sockets, cores, threads, model}. One if absent.",
    )
    .field("sockets", count("Sockets, 1 if absent."))
    .field("cores", count("Cores of each socket, 1 if absent."))
    .field("threads", count("Threads of each core, 1 if absent."))
    .field(
        "model",
        Schema::word(
            ["default", "host-model"],
            "host-model: as close to the node's CPU as can be. Absent: as the node is configured.",
        ),
    )
}

fn firmware() -> Schema {
    Schema::object("What the machine boots with.")
        .field(
            "type",
            Schema::word(["bios", "uefi", "efi"], "bios if absent; efi means uefi."),
        )
        .field(
            "uuid",
            Schema::text("The machine's UUID. Absent: made of the VM's own."),
        )
}

fn devices() -> Schema {
    Schema::object("Disks and network.")
        .field(
            "disks",
            Schema::list(disk(), "The disks, in order. Without a bootOrder, the guest boots from the first."),
        )
        .field(
            "interfaces",
            Schema::list(
                interface(),
                "Absent: one interface, with the pod's address. An empty list: no network. More than one: refused.",
            ),
        )
}

fn interface() -> Schema {
    Schema::object("A network interface.")
        .field("name", Schema::text("For people."))
        .field("network", Schema::word(["pod"], "What it is connected to."))
        .field(
            "model",
            Schema::word(
                ["virtio", "e1000"],
                "What the guest sees. virtio if absent.",
            ),
        )
        .field(
            "ports",
            Schema::list(
                Schema::number_or_text("A port, or a text: 8000-8099, 53/udp."),
                "Where the guest is reached. Absent: TCP 1-9999 and UDP 1-1023.",
            ),
        )
        .field(
            "mac",
            Schema::text(
                "Its hardware address, such as 52:54:00:12:34:56. Absent: made of the VM's UUID.",
            ),
        )
}

fn cloud_init() -> Schema {
    Schema::object(
        "What the guest is told at boot. Absent: it gets no cloud-init image. At most one of userData, secretRef and configMapRef.",
    )
    .field(
        "type",
        // No closed set: capital letters do not count.
        Schema::text("The layout of the image: nocloud, also if absent, or configdrive."),
    )
    .field(
        "userData",
        Schema::text("A cloud-config, or a script that begins with #!."),
    )
    .field(
        "secretRef",
        reference("A Secret of the VM's namespace that has the user data."),
    )
    .field(
        "configMapRef",
        reference("A ConfigMap of the VM's namespace that has the user data."),
    )
    .field(
        "metaData",
        Schema::object("Entries of the guest's meta-data, beside those that we make."),
    )
    .field(
        "sshKeys",
        Schema::list(Schema::text("Such as ssh-ed25519 AAAA… me@example."), "Public keys for the guest's user."),
    )
}

fn reference(description: &'static str) -> Schema {
    Schema::object(description)
        .require(["name"])
        .field("name", Schema::text("Its name."))
        .field("key", Schema::text("The key in it. userdata if absent."))
}

fn identity() -> Schema {
    Schema::object("The VM identity whose root disk comes first.")
        .require(["set", "name"])
        .field("set", Schema::text("The identity's set."))
        .field("name", Schema::text("The identity."))
}
