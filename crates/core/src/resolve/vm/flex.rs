//! Flexvolumes of ours that PersistentVolumes have: their type says how they
//! are opened, as it does for pods.

use super::claim::{Wanted, idle_create};
use super::disk::written_format;
use super::master::Found;
use super::matrix::Writable;
use crate::diag::{Diagnostic, Diagnostics};
use crate::domain::Format;
use crate::manifest::{DiskSpec, FlexVolume, PersistentVolume};
use crate::plan::Source;
use crate::resolve::Resolver;
use crate::resolve::disks::flex::FlexOf;
use crate::resolve::disks::volumes::refuse_less_than_promised;

impl<'r> Resolver<'r> {
    pub(super) fn flex_master(
        &self,
        wanted: Wanted<'_>,
        flex: &FlexVolume,
        volume: &PersistentVolume,
        diags: &mut Diagnostics,
    ) -> Option<Found<'r>> {
        if let Some(driver) = &wanted.spec.driver {
            diags.push(
                Diagnostic::error(&driver.place, "a flexvolume's type says how it is opened")
                    .help("remove driver"),
            );
        }
        if wanted.create {
            diags.push(idle_create(wanted.place));
        }
        refuse_less_than_promised(flex, volume, diags);
        let kind = self.flex_kind(
            FlexOf {
                home: wanted.vm.home(),
                namespace: wanted.vm.namespace(),
                name: wanted.name,
                flex,
                hosts: volume.nodes.as_deref(),
            },
            diags,
        )?;
        let is_new = matches!(kind.source, Source::NewVolume(_));
        if is_new {
            refuse_format(wanted.spec, kind.format, diags);
        }
        Some(Found {
            format: match is_new {
                true => kind.format,
                false => written_format(wanted.spec),
            },
            writable: match is_new {
                true => Writable::New,
                false => Writable::Yes,
            },
            source: kind.source,
            size: kind.size,
            migration: kind.migration,
            storage: kind.storage,
            pool: kind.pool,
            // The administrator wrote them.
            server_names: Vec::new(),
            claim: None,
            volume: None,
        })
    }
}

/// What is made is made in its own format.
fn refuse_format(spec: &DiskSpec, made: Format, diags: &mut Diagnostics) {
    if let Some(format) = &spec.format
        && format.value != made
    {
        diags.push(
            Diagnostic::error(&format.place, "a flexvolume's type says its format")
                .found(format.value.name())
                .help("remove format"),
        );
    }
}
