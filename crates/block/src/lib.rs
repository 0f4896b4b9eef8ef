//! Disklet's block engine: disk images, read, made, checked and converted
//! in-process.
//!
//! It acts on bytes and knows no Kubernetes. Everything is synchronous and
//! works on open files; threads are its only concurrency.

pub mod convert;
pub mod device;
pub mod error;
pub mod gate;
pub mod image;
pub mod iso9660;
mod magic;
pub mod nbd;
pub mod new_file;
pub mod ops;
pub mod qcow2;
pub mod root;
pub mod stream;
pub mod sys;
pub mod tar;
pub mod zero;
