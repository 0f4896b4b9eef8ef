//! The nodes that claimed volumes are for.

use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::{PersistentVolume, VmPod, Volume};

/// A volume of one node is of no use on another. A notice only: volumes name
/// nodes by their label for the host name, which need not be the node's name.
pub(super) fn tell_other_node(
    pod: &VmPod,
    at: &Volume,
    volume: &PersistentVolume,
    diags: &mut Diagnostics,
) {
    let (Some(node), Some(nodes)) = (&pod.node, &volume.nodes) else {
        return;
    };
    if !nodes.contains(node) {
        diags.push(
            Diagnostic::notice(
                &at.source.place,
                "the claim's volume is not for the node that the pod is bound to",
            )
            .found(format!(
                "node {node}; volume {} is for {}",
                volume.name,
                nodes.join(", ")
            ))
            .help("mend the pod's nodeName, or nodeAffinity of the volume"),
        );
    }
}

/// Volumes that have no node in common cannot be disks of one VM.
pub(in crate::resolve) fn refuse_distant<'v>(
    volumes: impl Iterator<Item = (&'v Place, &'v PersistentVolume)>,
    diags: &mut Diagnostics,
) {
    let mut common: Option<Vec<&String>> = None;
    for (place, volume) in volumes {
        let Some(nodes) = &volume.nodes else { continue };
        let left: Vec<_> = match &common {
            None => nodes.iter().collect(),
            Some(before) => nodes.iter().filter(|node| before.contains(node)).collect(),
        };
        if let (Some(before), true) = (&common, left.is_empty()) {
            let before: Vec<_> = before.iter().map(|node| node.as_str()).collect();
            diags.push(
                Diagnostic::error(place, "no node has all volumes of the VM")
                    .found(format!(
                        "volume {} is for {}, those before it for {}",
                        volume.name,
                        nodes.join(", "),
                        before.join(", ")
                    ))
                    .help("use volumes of one node, or mend their nodeAffinity"),
            );
            return;
        }
        common = Some(left);
    }
}
