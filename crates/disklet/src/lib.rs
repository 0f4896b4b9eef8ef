//! What Disklet's programs share at their edges: manifests from the command
//! line, what this machine answers, and telling people what is wrong.

pub mod cluster;
pub mod disks;
pub mod fill;
pub mod host;
pub mod manifests;
pub mod progress;
pub mod pull;
pub mod remedy;
pub mod report;
pub mod shown;
pub mod store;
pub mod style;
pub mod terminal;
pub mod vms;
