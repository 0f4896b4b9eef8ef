//! A VM's launcher: what it and the node's agent say to each other.

pub mod ports;
pub mod protocol;
