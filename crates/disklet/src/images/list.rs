//! `disklet images ls`.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use disklet::report::with_causes;
use disklet::shown::{age, short_size, table};
use disklet::store::{Listed, Store, StoreError, Uses, in_use};
use disklet_core::config::Config;
use serde::Serialize;

use super::{Failure, Output};

/// An image as programs see it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'l> {
    name: Option<&'l str>,
    digest: String,
    size: u64,
    allocated: u64,
    /// Seconds since 1970.
    since: Option<u64>,
    /// Its disk is in the system's store, and not the user's to remove.
    system: bool,
    /// Absent if it cannot be known.
    in_use_by: Option<BTreeSet<String>>,
}

pub(super) fn list(config: &Config, output: Output) -> Result<String, Failure> {
    let store = Store::configured(config);
    let images = with_systems(&store)?;
    let uses = match in_use(config) {
        Ok(uses) => Some(uses),
        // Whoever may not see the VMs may still see the images.
        Err(error) => {
            let _ = writeln!(
                io::stderr(),
                "notice: which images are in use is not known: {}",
                with_causes(&error)
            );
            None
        }
    };
    match output {
        Output::Table | Output::Wide => {
            let mut lines = for_people(&images, uses.as_ref(), output == Output::Wide);
            if store.system().is_some() {
                add_stores(&images, &mut lines);
            }
            Ok(table(&lines, &[]))
        }
        Output::Json => {
            let shown: Vec<_> = images
                .iter()
                .map(|image| shown(image, uses.as_ref()))
                .collect();
            serde_json::to_string_pretty(&shown)
                .map(|text| text + "\n")
                .map_err(|error| Failure::new(format!("the list cannot be written: {error}")))
        }
    }
}

/// The images of a store, and those of the system's that no name of its own
/// stands before.
fn with_systems(store: &Store) -> Result<Vec<Listed>, StoreError> {
    let mut images = store.listed()?;
    let Some(system) = store.system() else {
        return Ok(images);
    };
    let mut theirs = system.listed_names().unwrap_or_else(|error| {
        let _ = writeln!(
            io::stderr(),
            "notice: the system's images cannot be seen: {}",
            with_causes(&error)
        );
        Vec::new()
    });
    theirs.retain(|image| !images.iter().any(|own| own.name == image.name));
    let has_name = |own: &Listed| theirs.iter().any(|image| image.digest == own.digest);
    images.retain(|own| own.name.is_some() || !has_name(own));
    images.extend(theirs.into_iter().map(|image| Listed {
        is_borrowed: true,
        ..image
    }));
    images.sort_by(|one, other| {
        let place = |image: &Listed| (image.name.is_none(), image.name.clone());
        place(one).cmp(&place(other))
    });
    Ok(images)
}

fn shown<'l>(image: &'l Listed, uses: Option<&Uses>) -> Shown<'l> {
    let seconds = |time: SystemTime| Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs());
    Shown {
        name: image.name.as_deref(),
        digest: format!("sha256:{}", image.digest),
        size: image.size,
        allocated: image.allocated,
        since: image.since.and_then(seconds),
        system: image.is_borrowed,
        in_use_by: uses.map(|uses| uses.get(&image.digest).cloned().unwrap_or_default()),
    }
}

const HEADER: [&str; 6] = ["NAME", "DIGEST", "SIZE", "ALLOCATED", "AGE", "IN USE"];

fn for_people(images: &[Listed], uses: Option<&Uses>, wide: bool) -> Vec<Vec<String>> {
    let mut lines = vec![HEADER.map(str::to_owned).to_vec()];
    for image in images {
        let digest = image.digest.to_string();
        let users = uses.map(|uses| uses.get(&image.digest));
        lines.push(vec![
            image.name.clone().unwrap_or_else(|| "<none>".to_owned()),
            if wide {
                digest
            } else {
                digest[..12].to_owned()
            },
            short_size(image.size),
            short_size(image.allocated),
            image.since.map_or_else(String::new, age),
            in_use_cell(users, wide),
        ]);
    }
    lines
}

/// Whose each image is, where that is a question.
fn add_stores(images: &[Listed], lines: &mut [Vec<String>]) {
    let stores = images.iter().map(|image| match image.is_borrowed {
        true => "system",
        false => "own",
    });
    let column = std::iter::once("STORE").chain(stores);
    for (line, store) in lines.iter_mut().zip(column) {
        line.push(store.to_owned());
    }
}

/// By how many, or by whom.
fn in_use_cell(users: Option<Option<&BTreeSet<String>>>, wide: bool) -> String {
    match users {
        None => "unknown".to_owned(),
        Some(None) => "-".to_owned(),
        Some(Some(users)) if wide => {
            let users: Vec<_> = users.iter().map(String::as_str).collect();
            users.join(", ")
        }
        Some(Some(users)) => users.len().to_string(),
    }
}
