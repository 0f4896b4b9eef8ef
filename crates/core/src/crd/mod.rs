//! What we add to a cluster's API: the definitions of our kinds.
//!
//! A schema here is a coarse sieve: types, words and what must be there. What a
//! field means, and what goes together, is checked when the object is read
//! (`manifest`), by the same code for files and for a cluster.

mod disk;
mod machine;
mod mapping;
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
/// The group of the kinds that Virtlet has, too.
pub const VIRTLET_GROUP: &str = "virtlet.k8s";
/// Their version.
pub const VIRTLET_VERSION: &str = "v1";
/// The kind of mappings of images' names.
pub use crate::images::MAPPING_KIND;
/// As the API server has it in its paths.
pub const MAPPING_PLURAL: &str = "virtletimagemappings";
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
    categories: Vec<&'static str>,
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
        let names = Names {
            kind: "VM",
            list_kind: "VMList",
            plural: "vms",
            singular: "vm",
            short_names: ["dvm"],
            categories: vec![CATEGORY, "all"],
        };
        Self::of(GROUP, VERSION, names, vm_columns(), vm_schema())
    }

    /// Mappings of images' names to addresses, as Virtlet has them.
    #[must_use]
    pub fn image_mapping() -> Self {
        let names = Names {
            kind: MAPPING_KIND,
            list_kind: "VirtletImageMappingList",
            plural: MAPPING_PLURAL,
            singular: "virtletimagemapping",
            short_names: ["vim"],
            categories: vec![CATEGORY],
        };
        let (columns, schema) = (mapping::columns(), mapping::schema());
        Self::of(VIRTLET_GROUP, VIRTLET_VERSION, names, columns, schema)
    }

    fn of(
        group: &'static str,
        version: &'static str,
        names: Names,
        columns: Vec<Column>,
        schema: Schema,
    ) -> Self {
        Self {
            api_version: "apiextensions.k8s.io/v1",
            kind: "CustomResourceDefinition",
            metadata: Metadata {
                name: format!("{}.{group}", names.plural),
                labels: Labels { part_of: "disklet" },
            },
            spec: Spec {
                group,
                scope: "Namespaced",
                names,
                versions: [Version {
                    name: version,
                    served: true,
                    storage: true,
                    subresources: Subresources { status: Empty {} },
                    additional_printer_columns: columns,
                    schema: Validation {
                        schema: schema.for_api_servers(),
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
    vec![Definition::vm(), Definition::image_mapping()]
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

impl Column {
    fn text(
        name: &'static str,
        priority: u8,
        json_path: &'static str,
        description: &'static str,
    ) -> Self {
        Self {
            name,
            kind: "string",
            priority,
            json_path,
            description,
        }
    }

    fn age() -> Self {
        let path = ".metadata.creationTimestamp";
        Self {
            kind: "date",
            ..Self::text("Age", 0, path, "How long ago it was made")
        }
    }
}

fn vm_columns() -> Vec<Column> {
    vec![
        Column::text("Phase", 0, ".status.phase", "Where it is in its life"),
        Column::text(
            "Ready",
            0,
            ".status.conditions[?(@.type==\"Ready\")].status",
            "Whether the guest runs",
        ),
        Column::text("Node", 0, ".status.node", "Where it runs"),
        Column::age(),
        Column::text("IP", 1, ".status.podIP", "The guest's address"),
        // Of a list the API server shows the first item only.
        Column::text(
            "Disks",
            1,
            ".status.conditions[?(@.type==\"DisksReady\")].status",
            "Whether all its disks are there",
        ),
        Column::text(
            "Reason",
            1,
            ".status.conditions[?(@.type==\"Ready\")].reason",
            "Why it is ready or not",
        ),
    ]
}
