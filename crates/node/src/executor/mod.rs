//! Carries steps out. This is the one place that matches on them.
//!
//! Each step is idempotent: carried out again after a crash, it keeps what is
//! complete and makes what is not. Files get their names only when they are
//! complete and durable, so a file that is there is complete.

mod volumes;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use disklet_core::plan::{Plan, Step};

use crate::failure::{Failure, Result, on};
use crate::libvirt::Libvirt;
use crate::record::Made;

/// What a plan is carried out with.
pub(crate) struct Executor<'e> {
    pub(crate) libvirt: &'e Libvirt,
    pub(crate) plan: &'e Plan,
}

impl Executor<'_> {
    /// Carries a step out.
    pub(crate) fn carry_out(&self, step: &Step) -> Result<()> {
        match step {
            Step::EnsurePool { directory, .. } => {
                fs::create_dir_all(directory).map_err(|error| on(directory, "made", error))
            }
            Step::PullImage { image, digest } => in_store(image, digest.as_deref()),
            Step::CreateOverlay {
                file,
                backing,
                size,
                ..
            } => volumes::overlay(Path::new(file), backing, *size),
            Step::CreateVolume { file, size, .. } => volumes::formatted(Path::new(file), *size),
            Step::WriteCloudInit { file, .. } => {
                volumes::cloud_init(Path::new(file), &self.plan.cloud_init)
            }
            Step::DefineDomain { name, .. } => {
                self.libvirt.define(name, &self.plan.domain.to_xml())
            }
            Step::StartDomain { .. } => self.libvirt.start(self.plan.uuid),
            Step::ExposeDevice { disk, .. } | Step::ExposeFile { disk, .. } => {
                Err(not_yet(&format!("disk {disk}")))
            }
            Step::FillRoot { device, .. } => Err(not_yet(device)),
            Step::DefineSecret { .. } => Err(not_yet("a disk in Ceph")),
        }
    }
}

/// Refuses what cannot be carried out before anything is made.
pub(crate) fn demand_supported(plan: &Plan) -> Result<()> {
    for step in &plan.steps {
        match step {
            Step::ExposeDevice { disk, .. } | Step::ExposeFile { disk, .. } => {
                return Err(not_yet(&format!("disk {disk}")));
            }
            Step::FillRoot { .. } => return Err(not_yet("a persistent root")),
            Step::DefineSecret { .. } => return Err(not_yet("a disk in Ceph")),
            Step::EnsurePool { .. }
            | Step::PullImage { .. }
            | Step::CreateOverlay { .. }
            | Step::CreateVolume { .. }
            | Step::WriteCloudInit { .. }
            | Step::DefineDomain { .. }
            | Step::StartDomain { .. } => {}
        }
    }
    Ok(())
}

fn not_yet(what: &str) -> Failure {
    Failure::new(format!("{what} can be planned, but not be run yet"))
}

fn in_store(image: &str, digest: Option<&str>) -> Result<()> {
    // Resolution has found it there, or the digest would be missing.
    digest.map(drop).ok_or_else(|| {
        Failure::new(format!("image {image} is not in the store"))
            .help("take it in with: disklet images pull NAME --from FILE")
    })
}

/// What a step makes that has to go with the VM.
pub(crate) fn made_by(step: &Step) -> Option<Made> {
    let file = |path: &str| {
        Some(Made::File {
            path: PathBuf::from(path),
        })
    };
    match step {
        Step::CreateOverlay { file: path, .. }
        | Step::CreateVolume { file: path, .. }
        | Step::WriteCloudInit { file: path, .. } => file(path),
        Step::DefineDomain { uuid, .. } => Some(Made::Domain { uuid: *uuid }),
        Step::EnsurePool { .. }
        | Step::PullImage { .. }
        | Step::ExposeDevice { .. }
        | Step::ExposeFile { .. }
        | Step::FillRoot { .. }
        | Step::DefineSecret { .. }
        | Step::StartDomain { .. } => None,
    }
}

/// Removes what was made. That it is not there is as good.
pub(crate) fn unmake(libvirt: &Libvirt, made: &Made) -> Result<()> {
    match made {
        Made::Domain { uuid } => libvirt.remove(*uuid),
        Made::File { path } => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(on(path, "removed", error))
            }
            _ => Ok(()),
        },
    }
}
