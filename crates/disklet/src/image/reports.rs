//! `disklet image compare` and `measure`.

use std::fmt::Write as _;

use disklet_block::convert::Unwatched;
use disklet_block::ops::{self, Comparison};
use disklet_block::qcow2::ClusterSize;
use disklet_core::units::ByteSize;
use serde_json::json;

use super::args::{CompareArgs, MeasureArgs};
use super::open::{open, open_as};
use super::options::Output;
use super::{Answer, Failure};

/// What qemu-img exits with if it cannot say; 1 says that they differ.
const CANNOT_SAY: u8 = 2;

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
        Output::Json => {
            let mut facts = json!({
                "required": measure.required,
                "fully-allocated": measure.fully_allocated,
            });
            if let Some(bitmaps) = measure.bitmaps {
                facts["bitmaps"] = json!(bitmaps);
            }
            format!("{facts:#}\n")
        }
        Output::Human => measured_for_people(&measure),
    }))
}

fn measured_for_people(measure: &ops::Measure) -> String {
    let size = |bytes| ByteSize::from_bytes(bytes);
    let mut out = format!(
        "required size: {}\nfully allocated size: {}\n",
        size(measure.required),
        size(measure.fully_allocated)
    );
    if let Some(bitmaps) = measure.bitmaps.filter(|bytes| *bytes > 0) {
        let _ = writeln!(out, "bitmaps size: {}", size(bitmaps));
    }
    out
}
