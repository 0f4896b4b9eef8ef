//! `disklet image map`, `compare` and `measure`.

use std::fmt::Write as _;

use disklet_block::convert::Unwatched;
use disklet_block::ops::{self, Comparison};
use disklet_block::qcow2::ClusterSize;
use disklet_core::units::ByteSize;
use serde_json::{Value, json};

use super::args::{CompareArgs, MapArgs, MeasureArgs};
use super::open::{open, open_as};
use super::options::Output;
use super::{Answer, Failure};

pub(super) fn map(args: &MapArgs) -> Result<Answer, Failure> {
    let image = open(&args.source, &args.file)?;
    let mut extents = Vec::new();
    for extent in ops::map(&image)? {
        extents.push(extent?);
    }
    Ok(Answer::yes(match args.output.output {
        Output::Json => {
            let list: Vec<_> = extents.iter().map(extent_facts).collect();
            format!("{:#}\n", Value::Array(list))
        }
        Output::Human => {
            let mut out = format!("{:<20}{:<20}{:<20}DEPTH\n", "START", "LENGTH", "AT");
            for extent in extents.iter().filter(|extent| extent.data) {
                let at = match extent.offset {
                    Some(offset) => format!("{offset:#x}"),
                    None => "compressed".to_owned(),
                };
                let (start, length) = (
                    format!("{:#x}", extent.start),
                    format!("{:#x}", extent.length),
                );
                let _ = writeln!(out, "{start:<20}{length:<20}{at:<20}{}", extent.depth);
            }
            out
        }
    }))
}

/// With the field names of qemu-img.
fn extent_facts(extent: &ops::Extent) -> Value {
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

/// What qemu-img exits with if it cannot say.
const CANNOT_SAY: u8 = 3;

pub(super) fn compare(args: &CompareArgs) -> Result<Answer, Failure> {
    let cannot_say = |failure: Failure| failure.with_code(CANNOT_SAY);
    let source = &args.source;
    let second_format = args.second_format.or(source.format.format);
    let one = open(source, &args.first).map_err(cannot_say)?;
    let other = open_as(source, second_format, &args.second).map_err(cannot_say)?;
    let comparison =
        ops::compare(&one, &other, &Unwatched).map_err(|error| cannot_say(error.into()))?;
    Ok(match comparison {
        Comparison::Same { sizes_differ: true } if args.strict => {
            Answer::no("The disks differ in size.\n")
        }
        Comparison::Same { sizes_differ: true } => {
            Answer::yes("The disks are the same; the rest of the larger one is zeroes.\n")
        }
        Comparison::Same {
            sizes_differ: false,
        } => Answer::yes("The disks are the same.\n"),
        Comparison::Differs(offset) => {
            Answer::no(format!("The disks differ at offset {offset}.\n"))
        }
    })
}

pub(super) fn measure(args: &MeasureArgs) -> Result<Answer, Failure> {
    let image = open(&args.source, &args.file)?;
    let measure = ops::measure(&image, args.output_format.into(), ClusterSize::DEFAULT)?;
    Ok(Answer::yes(match args.output.output {
        Output::Json => format!(
            "{:#}\n",
            json!({"required": measure.required, "fully-allocated": measure.fully_allocated})
        ),
        Output::Human => format!(
            "required size: {}\nfully allocated size: {}\n",
            ByteSize::from_bytes(measure.required),
            ByteSize::from_bytes(measure.fully_allocated)
        ),
    }))
}
