//! Files of web servers.

mod agent;
mod answer;
mod client;
mod disk;
mod download;
mod judging;
mod patience;

pub(super) use client::Client;
pub use disk::WebDisk;
pub(super) use download::{Download, Keeping};
