//! What Disklet's programs that run in a cluster have in common: how they reach
//! the API server, what they log, and how they show that they are well.

pub mod agents;
pub mod client;
mod credentials;
pub mod events;
pub mod health;
pub mod kubeconfig;
pub mod leases;
pub mod logs;
pub mod names;
pub mod process;
pub mod trouble;
pub mod words;
