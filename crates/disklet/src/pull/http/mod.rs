//! Files of web servers.

mod agent;
mod ahead;
mod answer;
mod client;
mod disk;
mod document;
mod download;
mod judging;
mod mark;
mod patience;
mod session;

pub(super) use ahead::Ahead;
pub(super) use client::Client;
pub use disk::WebDisk;
pub(super) use document::Document;
pub(super) use download::{Download, Keeping};
pub(super) use session::{Login, Session};
