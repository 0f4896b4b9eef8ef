//! What became of a disk that was copied, told.

use disklet_block::convert::Report;
use disklet_block::ops::{Cloned, Way};
use disklet_block::stream;
use disklet_core::units::ByteSize;
use serde_json::json;

use super::options::Output;

/// How a copy was made, and what became of the bytes.
pub(super) enum Copied {
    Disk(Cloned),
    Stream(stream::Report),
}

impl Copied {
    /// Where blocks could not be shared to begin with.
    pub(super) fn written(report: Report) -> Self {
        Self::Disk(Cloned {
            way: Way::Copied,
            report,
        })
    }

    pub(super) fn told(&self, output: Output) -> String {
        match output {
            Output::Human => self.for_people(),
            Output::Json => self.for_programs(),
        }
    }

    fn for_people(&self) -> String {
        let size = |bytes| ByteSize::from_bytes(bytes).to_string();
        match self {
            Self::Disk(Cloned {
                way: Way::Whole,
                report,
            }) => {
                format!(
                    "shared as a whole with the source: {}\n",
                    size(report.shared)
                )
            }
            Self::Disk(Cloned { report, .. }) => format!(
                "written: {}, shared with the source: {}, zeroes: {}\n",
                size(report.written),
                size(report.shared),
                size(report.zero)
            ),
            Self::Stream(report) => format!(
                "read: {}, written: {}, zeroes: {}, kept for later: {}\n",
                size(report.file),
                size(report.written),
                size(report.zero),
                size(report.parked)
            ),
        }
    }

    fn for_programs(&self) -> String {
        let facts = match self {
            Self::Disk(Cloned { way, report }) => json!({
                "way": match way {
                    Way::Whole => "reflink",
                    Way::Ranges => "reflink-ranges",
                    Way::Copied => "copy",
                },
                "written": report.written,
                "shared": report.shared,
                "zero": report.zero,
            }),
            Self::Stream(report) => json!({
                "way": "stream",
                "virtual-size": report.size,
                "read": report.file,
                "written": report.written,
                "zero": report.zero,
                "parked": report.parked,
            }),
        };
        format!("{facts:#}\n")
    }
}
