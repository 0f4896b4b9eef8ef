//! A VM's launcher: what it and the node's agent say to each other, and its pod.

mod claims;
pub mod grace;
mod overhead;
pub mod pod;
pub mod ports;
pub mod protocol;
pub mod vm_pod;

pub use claims::{LeftOut, leave_out};
