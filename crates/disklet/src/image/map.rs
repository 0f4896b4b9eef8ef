//! `disklet image map`: told as it is found, since a disk can have more extents
//! than memory has room for.

use std::io::{self, BufWriter, Write};

use disklet_block::image::Image;
use disklet_block::ops::{self, Extent};
use serde_json::{Value, json};

use super::args::MapArgs;
use super::open::open;
use super::options::Output;
use super::{Answer, Failure};

pub(super) fn map(args: &MapArgs) -> Result<Answer, Failure> {
    let image = open(&args.source, &args.file)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let outcome = match args.output.output {
        Output::Json => for_programs(&image, &mut out),
        Output::Human => for_people(&image, &mut out),
    };
    match outcome.and_then(|()| out.flush().map_err(Stopped::Writing)) {
        Ok(()) => Ok(Answer::yes("")),
        Err(Stopped::Reading(failure)) => Err(failure),
        // The reader has seen enough, such as head.
        Err(Stopped::Writing(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            Ok(Answer::yes(""))
        }
        Err(Stopped::Writing(error)) => Err(Failure::new(format!(
            "the answer cannot be written: {error}"
        ))),
    }
}

/// Why it was not told to the end.
enum Stopped {
    Reading(Failure),
    Writing(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Writing(error)
    }
}

impl From<disklet_block::error::Error> for Stopped {
    fn from(error: disklet_block::error::Error) -> Self {
        Self::Reading(error.into())
    }
}

/// An extent a line, as qemu-img writes them.
fn for_programs(image: &Image, out: &mut impl Write) -> Result<(), Stopped> {
    write!(out, "[")?;
    for (index, extent) in ops::map(image)?.enumerate() {
        let facts = extent_facts(&extent?);
        let before = if index == 0 { "" } else { ",\n" };
        write!(out, "{before}{facts}")?;
    }
    writeln!(out, "]")?;
    Ok(())
}

/// With the field names of qemu-img.
fn extent_facts(extent: &Extent) -> Value {
    let mut facts = json!({
        "start": extent.start,
        "length": extent.length,
        "depth": extent.depth,
        "present": extent.present,
        "zero": extent.zero,
        "data": extent.data,
        "compressed": extent.compressed,
    });
    if let Some(offset) = extent.offset {
        facts["offset"] = json!(offset);
    }
    facts
}

fn for_people(image: &Image, out: &mut impl Write) -> Result<(), Stopped> {
    writeln!(out, "{:<20}{:<20}{:<20}DEPTH", "START", "LENGTH", "AT")?;
    for extent in ops::map(image)? {
        let extent = extent?;
        if !extent.data {
            continue;
        }
        let at = match extent.offset {
            Some(offset) => format!("{offset:#x}"),
            None => "compressed".to_owned(),
        };
        let [start, length] = [extent.start, extent.length].map(|bytes| format!("{bytes:#x}"));
        writeln!(out, "{start:<20}{length:<20}{at:<20}{}", extent.depth)?;
    }
    Ok(())
}
