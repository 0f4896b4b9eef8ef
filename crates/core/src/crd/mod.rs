//! What we add to a cluster's API: the definitions of our kinds.
//!
//! A schema here is a coarse sieve: types, words and what must be there. What a
//! field means, and what goes together, is checked when the object is read
//! (`manifest`), by the same code for files and for a cluster.

mod disk;
mod machine;
mod schema;
mod source;
mod status;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use schema::{Kind, Schema};
pub use status::PHASES;

/// The group of our kinds.
pub const GROUP: &str = "disklet.io";
/// Their version.
pub const VERSION: &str = "v1alpha1";
/// `kubectl get disklet` lists all of ours.
pub const CATEGORY: &str = "disklet";

/// A `CustomResourceDefinition`, ready to be written.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Clone, Serialize)]
struct Metadata {
    name: String,
    labels: Labels,
}

#[derive(Debug, Clone, Serialize)]
struct Labels {
    #[serde(rename = "app.kubernetes.io/part-of")]
    part_of: &'static str,
}

#[derive(Debug, Clone, Serialize)]
struct Spec {
    group: &'static str,
    scope: &'static str,
    names: Names,
    versions: [Version; 1],
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Names {
    kind: &'static str,
    list_kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: [&'static str; 1],
    categories: [&'static str; 2],
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    name: &'static str,
    served: bool,
    storage: bool,
    subresources: Subresources,
    additional_printer_columns: Vec<Column>,
    schema: Validation,
}

#[derive(Debug, Clone, Serialize)]
struct Subresources {
    status: Empty,
}

#[derive(Debug, Clone, Serialize)]
struct Empty {}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Column {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    /// 0 shows always, more than that with `-o wide`.
    priority: u8,
    json_path: &'static str,
    description: &'static str,
}

#[derive(Debug, Clone, Serialize)]
struct Validation {
    #[serde(rename = "openAPIV3Schema")]
    schema: Schema,
}

impl Definition {
    /// VM objects.
    #[must_use]
    pub fn vm() -> Self {
        Self {
            api_version: "apiextensions.k8s.io/v1",
            kind: "CustomResourceDefinition",
            metadata: Metadata {
                name: format!("vms.{GROUP}"),
                labels: Labels { part_of: "disklet" },
            },
            spec: Spec {
                group: GROUP,
                scope: "Namespaced",
                names: Names {
                    kind: "VM",
                    list_kind: "VMList",
                    plural: "vms",
                    singular: "vm",
                    short_names: ["dvm"],
                    categories: [CATEGORY, "all"],
                },
                versions: [Version {
                    name: VERSION,
                    served: true,
                    storage: true,
                    subresources: Subresources { status: Empty {} },
                    additional_printer_columns: vm_columns(),
                    schema: Validation {
                        schema: vm_schema().for_api_servers(),
                    },
                }],
            },
        }
    }

    /// Its name in the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.metadata.name
    }
}

/// All our kinds.
#[must_use]
pub fn definitions() -> Vec<Definition> {
    vec![Definition::vm()]
}

/// The schema of a VM object. For `metadata` the API server has its own and takes no
/// other.
#[must_use]
pub fn vm_schema() -> Schema {
    // Closed, or `kubectl explain` would say nothing at all; kubectl itself refuses
    // what is unknown here.
    Schema::closed("A virtual machine: its machine, its disks and what its guest is told at boot.")
        .require(["spec"])
        .field("apiVersion", Schema::text("disklet.io/v1alpha1."))
        .field("kind", Schema::text("VM."))
        .field("spec", machine::spec())
        .field("status", status::status())
}

fn vm_columns() -> Vec<Column> {
    let column = |name, priority, json_path, description| Column {
        name,
        kind: "string",
        priority,
        json_path,
        description,
    };
    vec![
        column("Phase", 0, ".status.phase", "Where it is in its life"),
        column(
            "Ready",
            0,
            ".status.conditions[?(@.type==\"Ready\")].status",
            "Whether the guest runs",
        ),
        column("Node", 0, ".status.node", "Where it runs"),
        Column {
            kind: "date",
            ..column(
                "Age",
                0,
                ".metadata.creationTimestamp",
                "How long ago it was made",
            )
        },
        column("IP", 1, ".status.podIP", "The guest's address"),
        // Of a list the API server shows the first item only.
        column(
            "Disks",
            1,
            ".status.conditions[?(@.type==\"DisksReady\")].status",
            "Whether all its disks are there",
        ),
        column(
            "Reason",
            1,
            ".status.conditions[?(@.type==\"Ready\")].reason",
            "Why it is ready or not",
        ),
    ]
}
