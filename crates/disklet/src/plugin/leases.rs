//! `kubectl disklet leases`: who uses storage that several nodes reach.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use disklet::cluster::leases::{Leases, content_of};
use disklet::cluster::names::OUT_OF_SERVICE;
use disklet::report::{harmless, harmless_line, print};
use disklet::shown::table;
use disklet_core::lease::{Content, Holder};
use disklet_core::names::Namespace;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace as NamespaceObject, Node};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde::Serialize;

use super::cluster::{Answer, Cluster, forbidden};
use super::names;
use crate::refusal::Refusal;

/// Who uses storage that several nodes reach
#[derive(Debug, ClapArgs)]
pub(super) struct LeasesArgs {
    #[command(subcommand)]
    command: LeasesCommand,

    /// Where Disklet is installed
    #[arg(long, value_name = "NAMESPACE", value_parser = names::namespace, global = true, default_value = crate::install::DEFAULT_NAMESPACE)]
    disklet_namespace: Namespace,
}

#[derive(Debug, Subcommand)]
enum LeasesCommand {
    /// List the leases of all VMs of the cluster
    ///
    /// For administrators: it needs the right to list leases in Disklet's own
    /// namespace, and to say how holders are, the right to list nodes.
    Ls {
        /// How to show them; wide says why they are as they are
        #[arg(short, long, value_enum, default_value_t = Output::Table)]
        output: Output,
    },
    /// Let others use storage although its VM may still use it
    ///
    /// The VM is not told and not ended: if it runs, it goes on writing, and two
    /// VMs that write to one disk destroy what is on it. Delete the VM instead; if
    /// its node is lost, make sure that the machine is off, and taint it with
    /// node.kubernetes.io/out-of-service, which releases all that its VMs held.
    Release {
        /// The lease, by the name that `ls` shows: all of it, or storage- and at least 8
        /// characters more
        lease: String,

        /// Only this VM's part of it, as NAMESPACE/NAME
        #[arg(long, value_name = "NAMESPACE/NAME")]
        vm: Option<String>,

        /// It is released although the VM may run
        #[arg(long, required = true)]
        force: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people
    Table,
    /// For people, with more columns
    Wide,
    /// A list, for programs
    Json,
}

/// A holder as programs see it.
#[derive(Debug, Serialize)]
struct Shown<'s> {
    lease: String,
    storage: &'s str,
    #[serde(flatten)]
    holder: &'s Holder,
    state: &'static str,
    why: String,
}

pub(super) async fn leases(args: &LeasesArgs, cluster: &Cluster) -> Result<ExitCode, Refusal> {
    let leases = Leases::new(cluster.client.clone(), args.disklet_namespace.as_str());
    let what = format!("leases of namespace {}", args.disklet_namespace);
    let found = match cluster.ask(&what, leases.list()).await? {
        Answer::Found(found) => found,
        Answer::Absent => Vec::new(),
        Answer::Forbidden(why) => return Err(forbidden(&what, &why)),
    };
    if found.is_empty() {
        demand_namespace(cluster, &args.disklet_namespace).await?;
    }
    match &args.command {
        LeasesCommand::Ls { output } => list(&found, &nodes(cluster).await?, *output),
        LeasesCommand::Release { lease, vm, .. } => {
            let lease = select(&found, lease)?;
            release(cluster, &leases, lease, vm.as_deref()).await
        }
    }
}

/// A namespace that is not there has no leases, as far as the API server tells.
async fn demand_namespace(cluster: &Cluster, namespace: &Namespace) -> Result<(), Refusal> {
    let namespaces = Api::<NamespaceObject>::all(cluster.client.clone());
    let what = format!("namespace {namespace}");
    match cluster
        .ask(&what, namespaces.get(namespace.as_str()))
        .await?
    {
        Answer::Absent => Err(Refusal::new(format!("there is no namespace {namespace}"))
            .help("--disklet-namespace says where Disklet is installed")),
        // Who may not know is not told.
        Answer::Found(_) | Answer::Forbidden(_) => Ok(()),
    }
}

/// The nodes by their names; nothing if the user may not know.
async fn nodes(cluster: &Cluster) -> Result<Option<BTreeMap<String, Node>>, Refusal> {
    let nodes = Api::<Node>::all(cluster.client.clone());
    let all = ListParams::default();
    let found = cluster.ask("nodes", nodes.list(&all)).await?.found();
    let by_name = |node: Node| (node.name_any(), node);
    Ok(found.map(|found| found.items.into_iter().map(by_name).collect()))
}

/// How a holder is, as far as its node shows that.
fn state(holder: &Holder, nodes: Option<&BTreeMap<String, Node>>) -> (&'static str, String) {
    let name = &holder.node;
    let Some(nodes) = nodes else {
        return ("unknown", "you may not list nodes".to_owned());
    };
    let Some(node) = nodes.get(name) else {
        return ("stale", format!("there is no node {name}"));
    };
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    if taints
        .into_iter()
        .flatten()
        .any(|it| it.key == OUT_OF_SERVICE)
    {
        return ("stale", format!("node {name} is out of service"));
    }
    let status = node.status.as_ref();
    let mut conditions = status
        .and_then(|it| it.conditions.as_ref())
        .into_iter()
        .flatten();
    match conditions.any(|it| it.type_ == "Ready" && it.status == "True") {
        true => (
            "live",
            "its node's agent releases it when the VM is off".to_owned(),
        ),
        false => (
            "unknown",
            format!("node {name} does not answer: the VM may run"),
        ),
    }
}

fn list(
    found: &[Lease],
    nodes: &Option<BTreeMap<String, Node>>,
    output: Output,
) -> Result<ExitCode, Refusal> {
    let read: Vec<_> = found
        .iter()
        .map(|lease| (lease.name_any(), content_of(lease)))
        .collect();
    let mut shown = Vec::new();
    for (lease, content) in &read {
        match content {
            Ok(Content {
                storage, holders, ..
            }) => {
                shown.extend(holders.iter().map(|holder| {
                    let (state, why) = state(holder, nodes.as_ref());
                    Shown {
                        lease: lease.clone(),
                        storage,
                        holder,
                        state,
                        why,
                    }
                }));
            }
            Err(why) => {
                let _ = writeln!(
                    io::stderr(),
                    "warning: lease {lease}: {}",
                    harmless_line(&why.to_string())
                );
            }
        }
    }
    let text = match output {
        Output::Table => harmless(&shown_table(&shown, 7)),
        Output::Wide => harmless(&shown_table(&shown, 9)),
        Output::Json => {
            serde_json::to_string_pretty(&shown)
                .map_err(|error| Refusal::new(format!("the list cannot be written: {error}")))?
                + "\n"
        }
    };
    Ok(print(text.as_bytes(), "the list"))
}

fn shown_table(shown: &[Shown<'_>], columns: usize) -> String {
    let head = [
        "LEASE", "STORAGE", "ACCESS", "VM", "NODE", "STATE", "SINCE", "WHY", "UUID",
    ];
    let rows = shown.iter().map(|it| {
        let Shown {
            lease,
            storage,
            holder,
            state,
            why,
        } = it;
        // Enough to tell them apart, and to release one by.
        let lease = if columns > 7 {
            lease
        } else {
            &lease[..lease.floor_char_boundary(20)]
        };
        vec![
            lease.to_owned(),
            (*storage).to_owned(),
            holder.access.name().to_owned(),
            format!("{}/{}", holder.namespace, holder.name),
            holder.node.clone(),
            (*state).to_owned(),
            holder.since.clone(),
            why.clone(),
            holder.uuid.to_string(),
        ]
    });
    let head = head.map(str::to_owned).to_vec();
    let mut lines: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    for line in &mut lines {
        line.truncate(columns);
    }
    table(&lines, &[])
}

/// What all their names begin with.
const COMMON: &str = "storage-";
/// How much of the rest has to be said, so that a slip does not name another.
const ENOUGH: usize = 8;

fn select<'f>(found: &'f [Lease], wanted: &str) -> Result<&'f Lease, Refusal> {
    if let Some(lease) = found.iter().find(|it| it.name_any() == wanted) {
        return Ok(lease);
    }
    let own = wanted.strip_prefix(COMMON).unwrap_or_default();
    if own.len() < ENOUGH {
        return Err(
            Refusal::new(format!("{wanted:?} is too little of a lease's name")).help(
                "at least storage- and 8 characters, as kubectl disklet leases ls shows them",
            ),
        );
    }
    let mut named = found.iter().filter(|it| it.name_any().starts_with(wanted));
    match (named.next(), named.next()) {
        (Some(lease), None) => Ok(lease),
        (Some(_), Some(_)) => Err(Refusal::new(format!("several leases begin with {wanted}"))
            .help("say more of the name, which kubectl disklet leases ls -o wide shows")),
        (None, _) => Err(Refusal::new(format!("there is no lease {wanted:?}"))
            .help("kubectl disklet leases ls lists those there are")),
    }
}

async fn release(
    cluster: &Cluster,
    leases: &Leases,
    lease: &Lease,
    vm: Option<&str>,
) -> Result<ExitCode, Refusal> {
    let name = lease.name_any();
    let content = content_of(lease).map_err(|why| {
        Refusal::new(format!("lease {name}: {why}"))
            .help("if no VM runs with its storage, kubectl delete lease removes it")
    })?;
    let is_meant =
        |holder: &Holder| vm.is_none_or(|vm| vm == format!("{}/{}", holder.namespace, holder.name));
    let meant: Vec<_> = content.holders.iter().filter(|it| is_meant(it)).collect();
    if meant.is_empty() {
        let whom = vm.map_or("anybody".to_owned(), |vm| format!("VM {vm}"));
        return Err(Refusal::new(format!("lease {name} is not held by {whom}"))
            .help("kubectl disklet leases ls lists the holders"));
    }
    match cluster
        .ask(&format!("lease {name}"), leases.release(&name, is_meant))
        .await?
    {
        Answer::Found(()) | Answer::Absent => {}
        Answer::Forbidden(why) => return Err(forbidden(&format!("lease {name}"), &why)),
    }
    let mut out = io::stderr().lock();
    for holder in &meant {
        let Holder {
            namespace,
            name,
            node,
            ..
        } = holder;
        let _ = writeln!(
            out,
            "warning: VM {namespace}/{name} on node {node} was not ended: if it still writes to {} \
             and another VM does as well, what is on it is destroyed",
            harmless_line(&content.storage)
        );
    }
    let _ = writeln!(
        out,
        "  help: an agent that is started anew ends a guest whose storage another VM has got"
    );
    let done = format!("lease {name} released: {} holders\n", meant.len());
    Ok(print(done.as_bytes(), "what was done"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(value: serde_json::Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_lease_is_released_by_enough_of_its_name() {
        let lease = |name: &str| -> Lease {
            serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
        };
        let found = [
            lease("storage-0123456789"),
            lease("storage-0123456799"),
            lease("other"),
        ];
        let selected = |wanted| select(&found, wanted).ok().map(ResourceExt::name_any);
        for (wanted, name) in [
            ("storage-0123456789", "storage-0123456789"),
            ("storage-012345678", "storage-0123456789"),
            ("other", "other"),
        ] {
            assert_eq!(selected(wanted).as_deref(), Some(name), "{wanted}");
        }
        let one = [lease("storage-0123456789")];
        for wanted in ["", "s", "storage-", "storage-0", "storage-0123456", "o"] {
            assert_eq!(selected(wanted), None, "{wanted}");
            assert!(select(&one, wanted).is_err(), "{wanted}");
        }
        assert_eq!(selected("storage-01234567"), None);
        select(&one, "storage-01234567").unwrap();
    }

    #[test]
    fn a_holder_is_as_its_node_is() {
        let holder = |node: &str| -> Holder {
            let holder = json!({
                "uuid": "00000000-0000-0000-0000-000000000001",
                "namespace": "shop", "name": "db", "node": node, "boot": "b",
                "access": "write-exclusive", "since": "then",
            });
            serde_json::from_value(holder).unwrap()
        };
        let ready = |status: &str| json!({"conditions": [{"type": "Ready", "status": status}]});
        let out = json!({"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]});
        let nodes = BTreeMap::from([
            ("well".to_owned(), node(json!({"status": ready("True")}))),
            (
                "silent".to_owned(),
                node(json!({"status": ready("Unknown")})),
            ),
            (
                "out".to_owned(),
                node(json!({"spec": out, "status": ready("Unknown")})),
            ),
        ]);
        let state = |name: &str| state(&holder(name), Some(&nodes)).0;
        assert_eq!(state("well"), "live");
        // Silence is not enough.
        assert_eq!(state("silent"), "unknown");
        assert_eq!(state("out"), "stale");
        assert_eq!(state("gone"), "stale");
        assert_eq!(super::state(&holder("well"), None).0, "unknown");
    }
}
