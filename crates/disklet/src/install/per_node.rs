//! What differs between nodes: those that have pools of their own have an agent and a
//! libvirt of their own, which mount their claims.

use disklet_core::config::{ClaimedPool, NodePools, PoolAnnotation};
use disklet_core::launch::pod::label_value;

use super::settings::Settings;
use super::template::{Fill, scalar};

/// The label of what is for one node, with its name.
pub(crate) const NODE: &str = "disklet.io/node";

impl Settings {
    pub(super) fn of_other_nodes(&self) -> Vec<(&'static str, Fill)> {
        let (volumes, mounts) = self.other_directories();
        let none = || Fill::Yaml(String::new());
        let others = self.per_node.iter().map(|it| is("NotIn", it));
        vec![
            ("of-node", none()),
            ("node-label", none()),
            ("pool-annotations", Fill::Lines(Vec::new())),
            ("node-affinity", Fill::Lines(affinity(others.collect()))),
            ("pool-mounts", Fill::Lines(mounts)),
            ("pool-volumes", Fill::Lines(volumes)),
        ]
    }

    pub(super) fn of_node(&self, node: &NodePools) -> Vec<(&'static str, Fill)> {
        let (mut volumes, mut mounts) = self.other_directories();
        for (i, pool) in node.pools.iter().enumerate() {
            // A usage type may be too long for a volume's name.
            let name = format!("pool-{i}");
            let (claim, path) = (scalar(pool.claim.as_str()), scalar(&pool.pool.path));
            volumes.push(format!(
                "- {{name: {name}, persistentVolumeClaim: {{claimName: {claim}}}}}"
            ));
            mounts.push(format!("- {{name: {name}, mountPath: {path}}}"));
        }
        let label = label_value(node.node.as_str());
        let annotations = node.pools.iter().flat_map(annotations);
        vec![
            ("of-node", Fill::Yaml(format!("-{}", node.node))),
            (
                "node-label",
                Fill::Yaml(format!(", {NODE}: {}", scalar(&label))),
            ),
            ("pool-annotations", Fill::Lines(annotations.collect())),
            ("node-affinity", Fill::Lines(affinity(vec![is("In", node)]))),
            ("pool-mounts", Fill::Lines(mounts)),
            ("pool-volumes", Fill::Lines(volumes)),
        ]
    }
}

fn annotations(of: &ClaimedPool) -> Vec<String> {
    let line = |prefix: &str, value: &str| format!("{prefix}{}: {}", of.name, scalar(value));
    let mut lines = vec![line(PoolAnnotation::PATH, &of.pool.path)];
    if of.pool.shared {
        lines.push(line(PoolAnnotation::SHARED, "true"));
    }
    if let Some(times) = of.pool.overcommit {
        lines.push(line(PoolAnnotation::OVERCOMMIT, &times.to_string()));
    }
    lines
}

/// By its name: its label may say something else.
fn is(operator: &str, node: &NodePools) -> String {
    let name = scalar(node.node.as_str());
    format!("      - {{key: metadata.name, operator: {operator}, values: [{name}]}}")
}

fn affinity(fields: Vec<String>) -> Vec<String> {
    if fields.is_empty() {
        return Vec::new();
    }
    let head = [
        "affinity:",
        "  nodeAffinity:",
        "    requiredDuringSchedulingIgnoredDuringExecution:",
        "      nodeSelectorTerms:",
        "      - matchFields:",
    ];
    let fields = fields.into_iter().map(|field| format!("  {field}"));
    head.map(str::to_owned).into_iter().chain(fields).collect()
}
