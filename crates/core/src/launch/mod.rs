//! A VM's launcher: what it and the node's agent say to each other, and its pod.

mod claims;
mod overhead;
pub mod pod;
pub mod ports;
pub mod protocol;
pub mod vm_pod;
