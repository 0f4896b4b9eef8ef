//! `disklet images`: the store, and how images come into it.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "images/collected.rs"]
mod collected;
#[path = "images/coming_in.rs"]
mod coming_in;
#[path = "images/housekeeping.rs"]
mod housekeeping;
#[path = "images/library.rs"]
mod library;
#[path = "registry/images.rs"]
mod made;
#[path = "images/mapping.rs"]
mod mapping;
#[path = "images/parts.rs"]
mod parts;
#[path = "images/planned.rs"]
mod planned;
#[path = "images/registries.rs"]
mod registries;
#[path = "images/resumed.rs"]
mod resumed;
#[path = "images/rights.rs"]
mod rights;
#[path = "images/scratch.rs"]
mod scratch;
#[path = "images/server.rs"]
mod server;
#[path = "images/silent.rs"]
mod silent;
#[path = "images/systems.rs"]
mod systems;
#[path = "images/tenants.rs"]
mod tenants;
#[path = "images/tls.rs"]
mod tls;
#[path = "images/web.rs"]
mod web;
