//! What the driver does.

pub(crate) mod answer;
pub(crate) mod calls;
pub(crate) mod install;
mod memory;
mod place;
