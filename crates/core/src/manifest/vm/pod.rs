//! What a VM object says of its pod: restarts, the time to end, ports.

use crate::diag::{Diagnostic, Diagnostics};
use crate::launch::ports::Ports;
use crate::yaml::{Fields, View};

use super::words::{number, word};

/// When a VM that has ended is started again, on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RestartPolicy {
    /// However it ended.
    Always,
    /// Unless the guest has switched itself off.
    #[default]
    OnFailure,
    /// Not at all.
    Never,
}

/// Seconds that a guest has to switch itself off, unless the VM says so.
const GRACE: u32 = 30;
/// A week: longer than any guest needs, and short enough for a clock.
const MOST_GRACE: i64 = 7 * 24 * 3600;

pub(super) fn read_restart(spec: &mut Fields<'_>, diags: &mut Diagnostics) -> RestartPolicy {
    let policies = [
        ("Always", RestartPolicy::Always),
        ("OnFailure", RestartPolicy::OnFailure),
        ("Never", RestartPolicy::Never),
    ];
    spec.get("restartPolicy")
        .and_then(|view| word(&view, "a restart policy", &policies, diags))
        .map(|policy| policy.value)
        .unwrap_or_default()
}

pub(super) fn read_grace(spec: &mut Fields<'_>, diags: &mut Diagnostics) -> u32 {
    spec.get("terminationGracePeriodSeconds")
        .and_then(|view| number(&view, "a time in seconds", 0..=MOST_GRACE, diags))
        .map_or(GRACE, |grace| grace.value)
}

/// The ports at which a guest is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuestPorts {
    /// By TCP.
    pub tcp: Ports,
    /// By UDP.
    pub udp: Ports,
}

impl GuestPorts {
    /// `[22, 8000-8099, 53/udp]`.
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Self {
        let mut ports = Self::default();
        for item in view.items(diags) {
            let Some(text) = item.scalar_text(diags) else {
                continue;
            };
            let (range, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
            let of_protocol = match protocol.to_ascii_lowercase().as_str() {
                "tcp" => Some(&mut ports.tcp),
                "udp" => Some(&mut ports.udp),
                _ => None,
            };
            match of_protocol.zip(Ports::parse_range(range)) {
                Some((ports, (first, last))) => ports.add(first, last),
                None => diags.push(
                    Diagnostic::error(&item.place, "not a port of the guest")
                        .found(format!("{text:?}"))
                        .allowed("such as 22, 8000-8099 or 53/udp; by TCP if it is not said"),
                ),
            }
        }
        ports
    }
}
