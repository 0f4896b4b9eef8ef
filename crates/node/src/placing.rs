//! Volumes that are kept for other machines than this one.

use disklet_core::diag::{Diagnostic, Diagnostics};
use disklet_core::manifest::Objects;
use disklet_core::plan::Plan;

/// A volume of another machine leads to whatever this one has at its path. A
/// notice only: volumes name nodes by a label, which need not be the host name.
pub(crate) fn tell_other_hosts(plans: &[Plan], objects: &Objects, diags: &mut Diagnostics) {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let claims = plans.iter().flat_map(|plan| &plan.disks);
    for claim in claims.filter_map(|disk| disk.claim.as_ref()) {
        let Some(volume) = objects.volumes.get(&claim.volume) else {
            continue;
        };
        let Some(nodes) = &volume.nodes else { continue };
        if !nodes.iter().any(|node| is_host(node, &host)) {
            diags.push(
                Diagnostic::notice(&volume.place, "the volume is kept for another machine")
                    .found(format!("for {}; this is {host}", nodes.join(", ")))
                    .help("what this machine has at its path is used: see that this is what you mean, or mend nodeAffinity"),
            );
        }
    }
}

/// Kubernetes writes names small, and some have the domain in them.
fn is_host(node: &str, host: &str) -> bool {
    let short = |name: &str| {
        let first = name.split('.').next().unwrap_or(name);
        first.to_ascii_lowercase()
    };
    match node.contains('.') && host.contains('.') {
        true => node.eq_ignore_ascii_case(host),
        false => short(node) == short(host),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_known_by_their_short_and_long_names() {
        assert!(is_host("Node-1", "node-1"));
        assert!(is_host("node-1", "node-1.example.org"));
        assert!(is_host("node-1.example.org", "node-1"));
        assert!(!is_host("node-1.example.org", "node-1.example.com"));
        assert!(!is_host("node-1", "node-10"));
    }
}
