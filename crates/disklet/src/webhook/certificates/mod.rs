//! The webhook's own certificates: made, kept in a Secret, told to the API
//! servers, and replaced before they end, without anybody's help.

mod keep;
mod make;
mod served;
mod state;

pub(super) use keep::{Keeper, Place};
#[cfg(test)]
pub(super) use make::make;
pub(super) use served::{Served, tls};
