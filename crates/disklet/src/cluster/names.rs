//! The names by which controller, agent and people know things in a cluster.

/// The field manager of what the controller applies, and who tells its events.
pub const CONTROLLER: &str = "disklet-controller";
/// The field manager of what agents write.
pub const AGENT: &str = "disklet-agent";

/// Holds a VM object until its launcher pod is gone.
pub const VM_FINALIZER: &str = "disklet.io/vm";
/// Holds a launcher pod until the agent of its node has freed all that it made
/// for it. It is there from the beginning, so nothing is ever made without it.
pub const POD_FINALIZER: &str = disklet_core::launch::pod::AGENT_FINALIZER;
/// Holds a claim that a VM's QEMU opens by itself: the cluster knows of no pod
/// that uses it.
pub const CLAIM_FINALIZER: &str = "disklet.io/in-use";

/// On a launcher pod: the claims that its QEMU opens by itself.
pub const DIRECT_CLAIMS: &str = "disklet.io/direct-claims";
/// On a launcher pod: the generation of the VM that it was made of.
pub const GENERATION: &str = "disklet.io/generation";
/// On a launcher pod: the generation of the VM whose disks its guest shall have.
pub const WANTED: &str = "disklet.io/wanted-generation";
/// On a launcher pod: how often its VM was started again before.
pub const RESTARTS: &str = "disklet.io/restarts";

/// By which an administrator says that a node is off and stays off.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
