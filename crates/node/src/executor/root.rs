//! The persistent root: filled once, kept since.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use disklet::manifests::root_fact;
use disklet_block::convert::{Watch, fitting_threads};
use disklet_block::device::{Caching, FileDevice, Size};
use disklet_block::gate::NoImplicitFiles;
use disklet_block::image::{Format, Image};
use disklet_block::root::{Behind, demand_room, fill, is_unused, look};
use disklet_core::names::Sha256;
use disklet_core::root::{RootFact, RootRefusal, RootVerdict, judge};
use disklet_core::units::ByteSize;

use super::locked::lock;
use super::told::Told;
use crate::failure::{Failure, Result, on_image};

/// What a root shall be.
pub(super) struct Wanted<'w> {
    pub(super) image: &'w Path,
    pub(super) digest: Sha256,
    /// How large the plan has the device.
    pub(super) device_size: Option<ByteSize>,
    /// Where the plan has the disk begin.
    pub(super) offset: u64,
    /// What is on the device may be lost.
    pub(super) overwrite: bool,
}

/// Fills a device, unless it is complete; no QEMU has it meanwhile. Resolution has decided the same from
/// what it saw; this is what counts.
pub(super) fn have(device: File, name: &str, wanted: &Wanted<'_>, watch: &dyn Watch) -> Result<()> {
    let failed = |error| failed_to_fill(name, error);
    let device = FileDevice::new(device, name, Caching::Direct).map_err(failed)?;
    lock(&device, name)?;
    demand_size(&device, name, wanted)?;
    let found = root_fact(look(&device).map_err(failed)?);
    let verdict = judge(found, &wanted.digest, wanted.overwrite)
        .map_err(|refusal| Failure::new(format!("{name}: {refusal}")).help(refusal.remedy()))?;
    let begins = match verdict {
        RootVerdict::Keep(offset) => offset,
        RootVerdict::Fill => disklet_core::root::DATA_OFFSET,
    };
    if begins != wanted.offset {
        return Err(
            Failure::new(format!("{name}: somebody has changed what is on it"))
                .help("say it again, to look at it anew"),
        );
    }
    let image = FileDevice::open(wanted.image, Caching::Buffered).map_err(failed)?;
    let image = Image::open(image, Format::Raw, &NoImplicitFiles).map_err(failed)?;
    let size = image.size().map_err(failed)?;
    demand_room(&device, begins, size).map_err(failed)?;
    match verdict {
        RootVerdict::Keep(_) => Ok(()),
        RootVerdict::Fill => {
            if found == RootFact::Blank && !wanted.overwrite {
                demand_unused(&device, name, size, watch)?;
            }
            fill_from(&device, name, &image, wanted, watch)
        }
    }
}

/// What the guest is shown ends where the device ended when it was planned.
fn demand_size(device: &FileDevice, name: &str, wanted: &Wanted<'_>) -> Result<()> {
    let size = device.size().map_err(|error| failed_to_fill(name, error))?;
    match wanted.device_size.map(ByteSize::as_bytes) {
        Some(planned) if planned == size => Ok(()),
        Some(planned) => Err(Failure::new(format!(
            "{name}: its size has changed from {} to {}",
            ByteSize::from_bytes(planned),
            ByteSize::from_bytes(size)
        ))
        .help("somebody is resizing it: say it again, to look at it anew")),
        None => Err(Failure::new(format!(
            "{name}: its size was not known when it was planned"
        ))
        .help("say it again, to look at it anew")),
    }
}

/// A device that looks blank may still hold something.
fn demand_unused(device: &FileDevice, name: &str, image: u64, watch: &dyn Watch) -> Result<()> {
    let _ = writeln!(io::stderr(), "{name}: looking whether anything is on it");
    let told = Told::new(image, watch);
    let unused = is_unused(device, image, &told);
    told.end();
    if unused.map_err(|error| failed_to_fill(name, error))? {
        return Ok(());
    }
    let refusal = RootRefusal::Foreign;
    Err(Failure::new(format!("{name}: {refusal}")).help(refusal.remedy()))
}

fn fill_from(
    device: &FileDevice,
    name: &str,
    image: &Image,
    wanted: &Wanted<'_>,
    watch: &dyn Watch,
) -> Result<()> {
    let _ = writeln!(io::stderr(), "{name}: filling the root disk from its image");
    let threads = fitting_threads(image, device);
    let size = image.size().map_err(|error| failed_to_fill(name, error))?;
    let watch = Told::new(size, watch);
    let behind = match wanted.overwrite {
        true => Behind::Discard,
        false => Behind::Keep,
    };
    let outcome = fill(
        device,
        image,
        wanted.digest.bytes(),
        behind,
        threads,
        &watch,
    );
    watch.end();
    outcome.map_err(|error| failed_to_fill(name, error))
}

fn failed_to_fill(name: &str, error: disklet_block::error::Error) -> Failure {
    on_image(name, "filled", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_as_large_as_it_was_planned_is_not_touched() {
        let path = std::env::temp_dir().join(format!("disklet-root-size-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        file.set_len(3 << 20).unwrap();
        let device = FileDevice::new(File::open(&path).unwrap(), "it", Caching::Buffered).unwrap();
        std::fs::remove_file(&path).unwrap();
        let told = |mebibytes: Option<u64>| {
            let wanted = Wanted {
                image: Path::new("/image"),
                digest: Sha256::from_bytes([0; 32]),
                device_size: mebibytes.map(|size| ByteSize::from_bytes(size << 20)),
                offset: 0,
                overwrite: true,
            };
            let outcome = demand_size(&device, "it", &wanted);
            outcome.err().map(|failure| failure.to_string())
        };
        assert_eq!(told(Some(3)), None);
        for planned in [2, 4] {
            let told = told(Some(planned)).unwrap();
            let wanted = format!("it: its size has changed from {planned} MiB to 3 MiB");
            assert!(told.starts_with(&wanted), "{told}");
        }
        assert!(told(None).unwrap().contains("its size was not known"));
    }
}
