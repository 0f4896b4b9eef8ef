//! Disklet's deciding half.
//!
//! Manifests and facts go in, plans come out. Same input, same output: there
//! is no I/O here, no clock, no environment.
//!
//! ```text
//!   text --yaml--> tree --manifest--> objects --resolve(config, facts)--> plan
//!                                                                        /    \
//!                                                                  domain   cloudinit
//! ```

pub mod cloudinit;
pub mod config;
pub mod crd;
pub mod diag;
pub mod domain;
pub mod facts;
pub mod guest;
pub mod images;
pub mod launch;
pub mod lease;
pub mod live;
pub mod manifest;
pub mod names;
pub mod networks;
pub mod plan;
pub mod resolve;
pub mod root;
mod secrecy;
pub mod source;
pub mod text;
pub mod units;
pub mod url;
pub mod yaml;
