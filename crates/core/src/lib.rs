//! Disklet's deciding half.
//!
//! Manifests and facts go in, a [`plan`](crate::text) comes out. Same input,
//! same output: no I/O, no clock, no environment.

pub mod diag;
pub mod guest;
pub mod text;
pub mod yaml;
