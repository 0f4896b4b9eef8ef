//! `disklet launch`: the real program, and an agent and a QEMU of the tests' own.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "launch/agent.rs"]
mod agent;
#[path = "launch/console.rs"]
mod console;
#[path = "launch/ends.rs"]
mod ends;
#[path = "launch/hostile.rs"]
mod hostile;
#[path = "launch/launched.rs"]
mod launched;
#[path = "launch/network.rs"]
mod network;
