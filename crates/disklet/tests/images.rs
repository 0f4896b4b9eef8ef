//! `disklet images`: the store, and how images come into it.

#![expect(
    clippy::unwrap_used,
    reason = "where a helper cannot go on, the test has failed"
)]

#[path = "images/coming_in.rs"]
mod coming_in;
#[path = "images/housekeeping.rs"]
mod housekeeping;
#[path = "images/scratch.rs"]
mod scratch;
