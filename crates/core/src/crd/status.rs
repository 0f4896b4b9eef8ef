//! `status` of a VM: what is true of it now. Only our own programs write it.

use super::schema::Schema;

/// The phases that a VM can be in. Controller and agents write no others.
pub const PHASES: [&str; 7] = [
    "Pending",
    "Running",
    "Paused",
    "Restarting",
    "Stopped",
    "Succeeded",
    "Failed",
];

pub(super) fn status() -> Schema {
    Schema::closed("What is true of the VM now.")
        .field(
            "phase",
            Schema::word(PHASES, "In one word. conditions say why."),
        )
        .field(
            "observedGeneration",
            Schema::number("The generation of the spec that this speaks of.").format("int64"),
        )
        .field(
            "restarts",
            Schema::number("How often it was started again after it had ended by itself."),
        )
        .field("node", Schema::text("The node on which it runs."))
        .field("podIP", Schema::text("The guest's address: that of its pod."))
        .field(
            "conditions",
            Schema::list_by("type", condition(), "Ready: the guest runs. DisksReady: all its disks are there. Accepted: its spec is one that can be run."),
        )
        .field(
            "disks",
            // As a whole: API servers cannot take the last of a list's parts away.
            Schema::list(disk(), "Its disks, as they are on the node."),
        )
}

/// `metav1.Condition`.
pub(super) fn condition() -> Schema {
    Schema::closed("Something that is true of it, or not.")
        .require(["type", "status", "lastTransitionTime", "reason", "message"])
        .field("type", Schema::text("Which."))
        .field(
            "status",
            Schema::word(["True", "False", "Unknown"], "Whether it is."),
        )
        .field(
            "observedGeneration",
            Schema::number("The generation of the spec that this speaks of.").format("int64"),
        )
        .field(
            "lastTransitionTime",
            Schema::text("Since when it is so.").format("date-time"),
        )
        .field("reason", Schema::text("Why, in one word for programs."))
        .field("message", Schema::text("Why, and what to do, for people."))
}

fn disk() -> Schema {
    Schema::closed("A disk.")
        .require(["name"])
        .field("name", Schema::text("Its name in the VM."))
        .field(
            "target",
            Schema::text("Its name in the guest, such as sda."),
        )
        .field("source", Schema::text("Where its bytes come from."))
        .field(
            "size",
            Schema::text("How large the guest sees it, as a quantity."),
        )
        .field(
            "allocation",
            Schema::text("What it takes on the node, as a quantity."),
        )
        .field(
            "access",
            Schema::word(
                ["write-exclusive", "write-shared", "read-shared"],
                "How it is shared.",
            ),
        )
}
