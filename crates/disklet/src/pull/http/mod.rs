//! Files of web servers.

mod agent;
mod answer;
mod client;
mod download;
mod judging;
mod patience;

pub(super) use client::Client;
pub(super) use download::{Download, Keeping};
