//! `disklet image info`.

use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disklet_block::device::Size;
use disklet_block::image::Image;
use disklet_block::qcow2::{Compression, Qcow2};
use disklet_core::units::ByteSize;
use serde_json::{Map, Value, json};

use super::args::InfoArgs;
use super::open::open;
use super::options::Output;
use super::{Answer, Failure};

pub(super) fn info(args: &InfoArgs) -> Result<Answer, Failure> {
    let image = open(&args.source, &args.file)?;
    let facts = facts(&image, &args.file)?;
    Ok(Answer::yes(match args.output.output {
        Output::Json => format!("{:#}\n", Value::Object(facts)),
        Output::Human => for_people(&facts),
    }))
}

/// With the field names of qemu-img.
fn facts(image: &Image, path: &Path) -> Result<Map<String, Value>, Failure> {
    let on_disk = path.metadata().map_or(0, |meta| meta.blocks() * 512);
    let mut facts = Map::new();
    facts.insert("filename".to_owned(), json!(path.to_string_lossy()));
    facts.insert("virtual-size".to_owned(), json!(image.size()?));
    facts.insert("actual-size".to_owned(), json!(on_disk));
    match image {
        Image::Raw(_) => {
            facts.insert("format".to_owned(), json!("raw"));
        }
        Image::Qcow2(image) => qcow2_facts(image, &mut facts)?,
    }
    Ok(facts)
}

fn qcow2_facts(image: &Qcow2, facts: &mut Map<String, Value>) -> Result<(), Failure> {
    let header = image.header();
    facts.insert("format".to_owned(), json!("qcow2"));
    facts.insert("cluster-size".to_owned(), json!(header.cluster.bytes()));
    facts.insert("dirty-flag".to_owned(), json!(header.dirty));
    if let Some(file) = &header.backing_file {
        facts.insert("backing-filename".to_owned(), json!(file));
    }
    if let Some(format) = &header.backing_format {
        facts.insert("backing-filename-format".to_owned(), json!(format));
    }
    let snapshots: Vec<_> = image
        .snapshots()?
        .iter()
        .map(|snapshot| {
            json!({
                "id": snapshot.id,
                "name": snapshot.name,
                "date-sec": snapshot.seconds,
                "date-nsec": snapshot.nanoseconds,
                "vm-state-size": snapshot.state_size,
            })
        })
        .collect();
    if !snapshots.is_empty() {
        facts.insert("snapshots".to_owned(), json!(snapshots));
    }
    let bitmaps: Vec<_> = image
        .bitmaps()?
        .iter()
        .map(|bitmap| json!({"name": bitmap.name, "granularity": bitmap.granularity}))
        .collect();
    let mut data = json!({
        "compat": if header.version == 2 { "0.10" } else { "1.1" },
        "compression-type": match header.compression {
            Compression::Zlib => "zlib",
            Compression::Zstd => "zstd",
        },
        "refcount-bits": header.refcount_bits,
        "corrupt": header.marked_corrupt,
        "extended-l2": header.extended_l2,
    });
    if !bitmaps.is_empty() {
        data["bitmaps"] = json!(bitmaps);
    }
    facts.insert(
        "format-specific".to_owned(),
        json!({"type": "qcow2", "data": data}),
    );
    Ok(())
}

fn for_people(facts: &Map<String, Value>) -> String {
    let mut out = String::new();
    for (key, value) in facts {
        let shown = match (key.as_str(), value) {
            ("virtual-size" | "actual-size" | "cluster-size", value) => {
                ByteSize::from_bytes(value.as_u64().unwrap_or(0)).to_string()
            }
            // Names come out of the image; they are shown, not obeyed.
            (_, Value::String(text)) => text.escape_debug().to_string(),
            (_, value) => value.to_string(),
        };
        let _ = writeln!(out, "{}: {shown}", key.replace('-', " "));
    }
    out
}
