//! `disklet image info`, with the field names of qemu-img.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disklet_block::device::{FileDevice, Size};
use disklet_block::image::Format;
use disklet_block::qcow2::{BitmapInfo, Compression, DataFile, Header, Overview, SnapshotInfo};
use serde_json::{Map, Value, json};

use super::args::InfoArgs;
use super::open::{format_of, open_file};
use super::options::Output;
use super::people;
use super::{Answer, Failure};

pub(super) fn info(args: &InfoArgs) -> Result<Answer, Failure> {
    let file = open_file(&args.file, args.share.access())?;
    let format = format_of(&args.format, &file)?;
    let facts = facts(&file, format, &args.file)?;
    Ok(Answer::yes(match args.output.output {
        Output::Json => format!("{:#}\n", Value::Object(facts)),
        Output::Human => people::shown(&facts),
    }))
}

fn facts(file: &FileDevice, format: Format, path: &Path) -> Result<Map<String, Value>, Failure> {
    let mut facts = Map::new();
    let mut tell = |key: &str, value: Value| facts.insert(key.to_owned(), value);
    let on_disk = path.metadata().map_or(0, |meta| meta.blocks() * 512);
    tell("filename", json!(path.to_string_lossy()));
    tell("format", json!(format.name()));
    tell("actual-size", json!(on_disk));
    tell("children", json!([child(file, path, on_disk)?]));
    match format {
        Format::Raw => {
            tell("virtual-size", json!(file.size()?));
            tell("dirty-flag", json!(false));
        }
        Format::Qcow2 => facts.append(&mut qcow2_facts(file, path)?),
    }
    Ok(facts)
}

/// The file itself, as qemu-img shows it.
fn child(file: &FileDevice, path: &Path, on_disk: u64) -> Result<Value, Failure> {
    let kind = if file.is_block() {
        "host_device"
    } else {
        "file"
    };
    let mut info = json!({
        "children": [],
        "filename": path.to_string_lossy(),
        "format": kind,
        // In sectors, as qemu-img has it.
        "virtual-size": file.size()?.next_multiple_of(512),
        "actual-size": on_disk,
        "dirty-flag": false,
    });
    if !file.is_block() {
        info["format-specific"] = json!({"type": "file", "data": {}});
    }
    Ok(json!({"name": "file", "info": info}))
}

fn qcow2_facts(file: &FileDevice, path: &Path) -> Result<Map<String, Value>, Failure> {
    let image = Overview::of(file, file.name())?;
    let header = &image.header;
    let mut facts = Map::new();
    let mut tell = |key: &str, value: Value| facts.insert(key.to_owned(), value);
    tell("virtual-size", json!(header.size));
    tell("cluster-size", json!(header.cluster.bytes()));
    tell("dirty-flag", json!(header.dirty));
    if let Some(name) = &header.backing_file {
        tell("backing-filename", json!(name));
        tell("full-backing-filename", json!(seen_from(path, name)));
    }
    if let Some(format) = &header.backing_format {
        tell("backing-filename-format", json!(format));
    }
    if !image.snapshots.is_empty() {
        let snapshots: Vec<_> = image.snapshots.iter().map(snapshot_facts).collect();
        tell("snapshots", json!(snapshots));
    }
    let data = specific_facts(header, &image.bitmaps);
    tell("format-specific", json!({"type": "qcow2", "data": data}));
    Ok(facts)
}

fn specific_facts(header: &Header, bitmaps: &[BitmapInfo]) -> Value {
    let mut data = json!({
        "compat": if header.version == 2 { "0.10" } else { "1.1" },
        "compression-type": match header.compression {
            Compression::Zlib => "zlib",
            Compression::Zstd => "zstd",
        },
        "refcount-bits": header.refcount_bits,
    });
    if header.version > 2 {
        data["lazy-refcounts"] = json!(header.lazy_refcounts);
        data["corrupt"] = json!(header.marked_corrupt);
        data["extended-l2"] = json!(header.extended_l2);
    }
    if let DataFile::External { name, raw } = &header.data_file {
        if let Some(name) = name {
            data["data-file"] = json!(name);
        }
        data["data-file-raw"] = json!(raw);
    }
    if !bitmaps.is_empty() {
        let bitmaps: Vec<_> = bitmaps.iter().map(bitmap_facts).collect();
        data["bitmaps"] = json!(bitmaps);
    }
    data
}

fn bitmap_facts(bitmap: &BitmapInfo) -> Value {
    let flags = [("in-use", bitmap.in_use), ("auto", bitmap.auto)];
    let flags = flags.iter().filter(|(_, set)| *set).map(|(name, _)| *name);
    json!({
        "name": bitmap.name,
        "granularity": bitmap.granularity,
        "flags": flags.collect::<Vec<_>>(),
    })
}

fn snapshot_facts(snapshot: &SnapshotInfo) -> Value {
    const SECOND: u64 = 1_000_000_000;
    let mut facts = json!({
        "id": snapshot.id,
        "name": snapshot.name,
        "date-sec": snapshot.seconds,
        "date-nsec": snapshot.nanoseconds,
        "vm-clock-sec": snapshot.guest_clock / SECOND,
        "vm-clock-nsec": snapshot.guest_clock % SECOND,
        "vm-state-size": snapshot.state_size,
    });
    if let Some(count) = snapshot.instructions {
        facts["icount"] = json!(count);
    }
    facts
}

/// A name that stands in an image is seen from the image's directory, unless
/// it says where it is itself. Nothing is opened.
fn seen_from(image: &Path, name: &str) -> String {
    let before_slash = name.split('/').next().unwrap_or_default();
    let directory = image
        .parent()
        .filter(|directory| *directory != Path::new(""));
    match directory {
        Some(directory) if !before_slash.contains(':') => {
            directory.join(name).to_string_lossy().into_owned()
        }
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_seen_from_the_image() {
        let seen = |image, name| seen_from(Path::new(image), name);
        assert_eq!(seen("top", "base"), "base");
        assert_eq!(seen("a/b/top", "base"), "a/b/base");
        assert_eq!(seen("a/top", "/base"), "/base");
        assert_eq!(seen("a/top", "nbd:host:1/x"), "nbd:host:1/x");
    }
}
