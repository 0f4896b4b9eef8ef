//! `disklet image check`.

use std::fmt::Write as _;
use std::path::Path;

use disklet_block::image::Format;
use disklet_block::qcow2::{self, CheckReport};
use disklet_core::units::ByteSize;
use serde_json::{Value, json};

use super::args::CheckArgs;
use super::open::{format_of, open_file};
use super::options::Output;
use super::{Answer, Failure};

/// What qemu-img exits with.
mod code {
    pub(super) const SOUND: u8 = 0;
    pub(super) const NOT_CHECKED: u8 = 1;
    pub(super) const CORRUPT: u8 = 2;
    pub(super) const LEAKS: u8 = 3;
    pub(super) const NOTHING_TO_CHECK: u8 = 63;
}

pub(super) fn check(args: &CheckArgs) -> Result<Answer, Failure> {
    let file = open_file(&args.file, args.share.access())?;
    if format_of(&args.format, &file)? == Format::Raw {
        let message = format!(
            "{}: a raw image has no tables that could be checked",
            file.name()
        );
        return Err(Failure::new(message).with_code(code::NOTHING_TO_CHECK));
    }
    let report = qcow2::check(&file, file.name())?;
    Ok(Answer {
        text: match args.output.output {
            Output::Json => format!("{:#}\n", facts(&report, &args.file)),
            Output::Human => for_people(&report),
        },
        code: code_of(&report),
    })
}

fn code_of(report: &CheckReport) -> u8 {
    if report.check_errors > 0 {
        code::NOT_CHECKED
    } else if report.corruptions > 0 {
        code::CORRUPT
    } else if report.leaks > 0 {
        code::LEAKS
    } else {
        code::SOUND
    }
}

/// With the field names of qemu-img.
fn facts(report: &CheckReport, path: &Path) -> Value {
    json!({
        "filename": path.to_string_lossy(),
        "format": Format::Qcow2.name(),
        "check-errors": report.check_errors,
        "corruptions": report.corruptions,
        "leaks": report.leaks,
        "total-clusters": report.total_clusters,
        "allocated-clusters": report.allocated_clusters,
        "fragmented-clusters": report.fragmented_clusters,
        "compressed-clusters": report.compressed_clusters,
        "image-end-offset": report.image_end_offset,
    })
}

fn for_people(report: &CheckReport) -> String {
    let mut out = String::new();
    for problem in &report.problems {
        let kind = if problem.leak { "leak" } else { "corrupt" };
        // It may quote the image.
        let what = problem.what.escape_debug();
        let _ = writeln!(out, "{kind}: {what}");
    }
    let told = report.problems.len() as u64;
    let more = (report.corruptions + report.leaks).saturating_sub(told);
    if more > 0 {
        let _ = writeln!(out, "and {more} more");
    }
    let verdict = match code_of(report) {
        code::SOUND => "The image is sound.".to_owned(),
        code::LEAKS => format!(
            "{} clusters are counted as used and are not: space is lost, data is not.",
            report.leaks
        ),
        code::CORRUPT => format!(
            "The image is corrupt: {} errors, {} leaked clusters.",
            report.corruptions, report.leaks
        ),
        _ => format!(
            "The image could not be checked as a whole: {} errors, {} of them in what is needed to go on.",
            report.corruptions, report.check_errors
        ),
    };
    let _ = writeln!(
        out,
        "{verdict}\n{} of {} clusters allocated, {} fragmented, {} compressed; the image ends at {}",
        report.allocated_clusters,
        report.total_clusters,
        report.fragmented_clusters,
        report.compressed_clusters,
        ByteSize::from_bytes(report.image_end_offset)
    );
    out
}
