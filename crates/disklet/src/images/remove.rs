//! `disklet images rm` and `disklet images gc`.

use std::fmt::Write as _;
use std::io::{self, Write};

use disklet::shown::short_size;
use disklet::store::{Deed, Gone, Removal, Store, in_use};
use disklet_core::config::Config;
use disklet_core::names::ImageName;

use super::{Failure, image_name};

pub(super) fn remove(config: &Config, names: &[String]) -> Result<String, Failure> {
    let names = names
        .iter()
        .map(|name| image_name(name))
        .collect::<Result<Vec<ImageName>, _>>()?;
    let store = Store::configured(config);
    let alone = alone(&store)?;
    let uses = in_use(config)?;
    match store.remove(&names, &uses, &alone) {
        Ok(gone) => Ok(told(&gone, Deed::Done)),
        Err(refused) => Err(Failure::all(refused)),
    }
}

pub(super) fn collect(config: &Config, deed: Deed) -> Result<String, Failure> {
    let store = Store::configured(config);
    let alone = alone(&store)?;
    let uses = in_use(config)?;
    let gone = store.sweep(&uses, &alone, deed)?;
    let freed = short_size(gone.iter().map(|gone| gone.freed).sum());
    let mut text = told(&gone, deed);
    let _ = match deed {
        Deed::Done => writeln!(text, "freed {freed}"),
        Deed::Told => writeln!(text, "would free {freed}"),
    };
    Ok(text)
}

fn alone(store: &Store) -> Result<Removal, Failure> {
    let waiting = || {
        let _ = writeln!(
            io::stderr(),
            "waiting for those who are about to use images of the store"
        );
    };
    Ok(store.to_remove(waiting)?)
}

fn told(gone: &[Gone], deed: Deed) -> String {
    let word = match deed {
        Deed::Done => "removed",
        Deed::Told => "would remove",
    };
    let mut text = String::new();
    for gone in gone {
        let freed = short_size(gone.freed);
        let _ = writeln!(text, "{word} {} ({freed})", gone.what);
    }
    text
}
