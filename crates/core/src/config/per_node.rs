//! Pools that only some nodes have, each a claim: what `disklet install --per-node`
//! reads. docs/formats/per-node.md has the fields.

use std::collections::{BTreeMap, BTreeSet};

use super::pools::{self, overlap};
use super::{Config, Pool};
use crate::diag::{Diagnostic, Diagnostics};
use crate::manifest::Input;
use crate::names::{ObjectName, PoolName};
use crate::yaml::{self, Limits, Spanned, View};

/// A node, and the pools that it alone has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePools {
    /// The node's name in the cluster.
    pub node: ObjectName,
    /// Its pools.
    pub pools: Vec<ClaimedPool>,
}

/// A pool that is a claim in Disklet's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedPool {
    /// Its usage type.
    pub name: PoolName,
    /// The claim.
    pub claim: ObjectName,
    /// Where it is mounted, and what may be promised of it.
    pub pool: Pool,
}

impl NodePools {
    /// Reads the file, for nodes that also have what the configuration says.
    #[must_use]
    pub fn read(input: &Input, config: &Config, diags: &mut Diagnostics) -> Vec<Self> {
        let mut nodes = BTreeMap::new();
        diags.begin_file(&input.name);
        for document in yaml::documents(&input.text, Limits::default()) {
            match document {
                Ok(root) => {
                    let view = View::root(&root, &input.name);
                    take(&view, config, &mut nodes, diags);
                }
                Err(errors) => {
                    for error in errors {
                        diags.push(error.in_file(&input.name));
                    }
                }
            }
        }
        refuse_shared_claims(&nodes, diags);
        let nodes = nodes.into_iter();
        nodes
            .map(|(node, pools)| Self {
                node,
                pools: pools.into_iter().map(|pool| pool.value).collect(),
            })
            .collect()
    }
}

type Nodes = BTreeMap<ObjectName, Vec<Spanned<ClaimedPool>>>;

fn take(view: &View<'_>, config: &Config, nodes: &mut Nodes, diags: &mut Diagnostics) {
    let Some(mut fields) = view.fields(diags) else {
        return;
    };
    fields.required("nodes", diags);
    for (name, view) in fields.entries("nodes", diags) {
        let node = ObjectName::parse(name);
        if let Err(rule) = &node {
            diags.push(Diagnostic::error(&view.place, "not a node's name").allowed(rule.allowed));
        }
        let pools = read_node(&view, config, diags);
        if let (Ok(node), Some(pools)) = (node, pools) {
            nodes.insert(node, pools);
        }
    }
    fields.no_others(&["nodes"], diags);
}

fn read_node(
    view: &View<'_>,
    config: &Config,
    diags: &mut Diagnostics,
) -> Option<Vec<Spanned<ClaimedPool>>> {
    let mut fields = view.fields(diags)?;
    fields.required("pools", diags)?;
    let mut pools: Vec<Spanned<ClaimedPool>> = Vec::new();
    for (name, view) in fields.entries("pools", diags) {
        let Some(read) = read_pool(name, &view, diags) else {
            continue;
        };
        if let Some(what) = in_the_way(&read, config, &pools) {
            diags.push(
                Diagnostic::error(&view.place, "the path leads into another directory of ours")
                    .found(format!("{} and {what}", read.pool.path))
                    .help("give each pool a directory of its own, such as /storage/ssd"),
            );
        }
        pools.push(Spanned {
            value: read,
            place: view.place,
        });
    }
    fields.no_others(&["pools"], diags);
    Some(pools)
}

fn read_pool(name: &str, view: &View<'_>, diags: &mut Diagnostics) -> Option<ClaimedPool> {
    let name = pools::read_name(name, view, diags);
    let mut fields = view.fields(diags)?;
    let claim = fields.required_text("claim", diags).and_then(|claim| {
        let parsed = ObjectName::parse(&claim.value);
        if let Err(rule) = &parsed {
            let problem = Diagnostic::error(&claim.place, "not a claim's name");
            diags.push(
                problem
                    .found(format!("{:?}", claim.value))
                    .allowed(rule.allowed),
            );
        }
        parsed.ok()
    });
    let pool = pools::read_fields(&mut fields, diags);
    let [path, shared, overcommit] = pools::FIELDS;
    fields.no_others(&["claim", path, shared, overcommit], diags);
    Some(ClaimedPool {
        name: name?,
        claim: claim?,
        pool: pool?,
    })
}

/// What the container has there already. A pool of the configuration with the same
/// name is replaced, unless its directory is where another would be.
fn in_the_way(
    added: &ClaimedPool,
    config: &Config,
    before: &[Spanned<ClaimedPool>],
) -> Option<String> {
    let path = &added.pool.path;
    let fixed = [
        &*config.data_dir,
        &*config.run_dir,
        &*config.kubelet_root,
        "/host",
        "/dev",
        "/proc",
    ];
    if let Some(there) = fixed.into_iter().find(|there| overlap(path, there)) {
        return Some(there.to_owned());
    }
    let of_config = config.pools.iter().map(|(name, pool)| (name, &pool.path));
    let of_node = before
        .iter()
        .map(|it| (&it.value.name, &it.value.pool.path));
    let mut others = of_config.chain(of_node);
    let clash = others.find(|(name, there)| **name != added.name && overlap(path, there))?;
    Some(format!("pool {} at {}", clash.0, clash.1))
}

/// A claim that two nodes have at a time is one filesystem, which both would write to.
fn refuse_shared_claims(nodes: &Nodes, diags: &mut Diagnostics) {
    let mut seen: BTreeSet<&ObjectName> = BTreeSet::new();
    for pool in nodes.values().flatten() {
        if !seen.insert(&pool.value.claim) && !pool.value.pool.shared {
            diags.push(
                Diagnostic::error(&pool.place, "the claim is another pool's already")
                    .found(pool.value.claim.as_str())
                    .help(
                        "name a claim for each, or say shared: true of one that all may write to",
                    ),
            );
        }
    }
}
