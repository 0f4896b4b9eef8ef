//! Plans for people: a table, or a tree with the chain below each disk.

use std::io::{self, Write};

use disklet_core::plan::{CopyMode, Plan, PlannedDisk, Source};
use disklet_core::units::ByteSize;
use unicode_width::UnicodeWidthStr;

use disklet::style::{Style, Tone};

pub(super) fn table(out: &mut impl Write, style: Style, plans: &[Plan]) -> io::Result<()> {
    for (index, plan) in plans.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        heading(out, style, plan)?;
        let mut rows = vec![
            [
                "DISK",
                "TARGET",
                "SIZE",
                "FORMAT",
                "ACCESS",
                "FROM",
                "IN THE GUEST",
            ]
            .map(str::to_owned),
        ];
        rows.extend(plan.disks.iter().map(row));
        write_rows(out, style, &rows)?;
        writeln!(out, "{}", style.paint(Tone::Bold, "STEPS"))?;
        write_steps(out, plan, "")?;
        write_later(out, style, plan, "")?;
    }
    Ok(())
}

pub(super) fn tree(out: &mut impl Write, style: Style, plans: &[Plan]) -> io::Result<()> {
    for (index, plan) in plans.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        heading(out, style, plan)?;
        for disk in &plan.disks {
            let target = style.paint(Tone::Good, &disk.target.name());
            let name = style.paint(Tone::Bold, &disk.name);
            writeln!(out, "├─ {target} {name}: {}", facts_of(disk))?;
            write_chain(out, style, &chain(disk))?;
        }
        writeln!(out, "└─ {}", style.paint(Tone::Bold, "steps"))?;
        write_steps(out, plan, "   ")?;
        write_later(out, style, plan, "   ")?;
    }
    Ok(())
}

fn heading(out: &mut impl Write, style: Style, plan: &Plan) -> io::Result<()> {
    let name = style.paint(Tone::Bold, &format!("{}/{}", plan.namespace, plan.name));
    let cpus = match plan.domain.vcpus {
        1 => "1 CPU".to_owned(),
        count => format!("{count} CPUs"),
    };
    let memory = plan.domain.memory;
    writeln!(
        out,
        "VM {name}  {cpus}, {memory}, domain {}",
        plan.domain.name
    )
}

fn row(disk: &PlannedDisk) -> [String; 7] {
    [
        disk.name.clone(),
        disk.target.name(),
        disk.size.to_string(),
        disk.format.name().to_owned(),
        access(disk),
        origin(disk),
        in_guest(disk).unwrap_or_else(|| "-".to_owned()),
    ]
}

fn write_rows<const N: usize>(
    out: &mut impl Write,
    style: Style,
    rows: &[[String; N]],
) -> io::Result<()> {
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].width())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width - cell.width() + 3));
        }
        let line = line.trim_end();
        match index {
            0 => writeln!(out, "{}", style.paint(Tone::Bold, line))?,
            _ => writeln!(out, "{line}")?,
        }
    }
    Ok(())
}

fn write_steps(out: &mut impl Write, plan: &Plan, indent: &str) -> io::Result<()> {
    for (index, step) in plan.steps.iter().enumerate() {
        writeln!(out, "{indent}{:>2}. {step}", index + 1)?;
    }
    Ok(())
}

fn write_later(out: &mut impl Write, style: Style, plan: &Plan, indent: &str) -> io::Result<()> {
    for later in &plan.known_later {
        writeln!(
            out,
            "{indent}{}",
            style.paint(Tone::Unsure, &format!("not known yet: {later}"))
        )?;
    }
    Ok(())
}

/// What is below what, each line one level further down.
fn write_chain(out: &mut impl Write, style: Style, chain: &[String]) -> io::Result<()> {
    for (depth, line) in chain.iter().enumerate() {
        let indent = "   ".repeat(depth);
        writeln!(out, "│  {indent}└─ {}", style.paint(Tone::Dim, line))?;
    }
    Ok(())
}

fn facts_of(disk: &PlannedDisk) -> String {
    let mut words = vec![
        disk.format.name().to_owned(),
        disk.size.to_string(),
        access(disk),
    ];
    if disk.read_only {
        words.push("read-only".to_owned());
    }
    words.push(format!("serial {}", disk.serial));
    words.extend(in_guest(disk));
    words.join(", ")
}

/// Who may use the storage; of a copy, that it is one.
fn access(disk: &PlannedDisk) -> String {
    match disk.copy {
        CopyMode::None => disk.access.name().to_owned(),
        copy @ CopyMode::CopyOnWrite => format!("{} of {}", copy.name(), disk.access.name()),
    }
}

fn in_guest(disk: &PlannedDisk) -> Option<String> {
    let mounts = disk.mounts.iter().map(|mount| {
        let part = match mount.part {
            0 => "whole disk".to_owned(),
            part => format!("partition {part}"),
        };
        let read_only = if mount.read_only { ", read-only" } else { "" };
        format!("{} ({part}{read_only})", mount.path)
    });
    let link = disk.link.iter().map(|path| format!("{path} (link)"));
    let all: Vec<_> = mounts.chain(link).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// In a few words, where the bytes come from.
fn origin(disk: &PlannedDisk) -> String {
    let source = source_words(disk);
    match &disk.claim {
        Some(claim) => format!("claim {}: {source}", claim.claim),
        None => source,
    }
}

fn source_words(disk: &PlannedDisk) -> String {
    match &disk.source {
        Source::Image { image, .. } => format!("image {image}"),
        Source::NewVolume(volume) => format!("new volume {}", volume.name),
        Source::RawDevice(device) => format!("device {}", device.from),
        Source::BlockClaim(device) => format!("device {}", device.from),
        Source::PersistentRoot { device, image, .. } => {
            format!("device {}, filled from image {image}", device.from)
        }
        Source::DiskImage(file) => format!("file {}", file.from),
        Source::Rbd { ceph, .. } => {
            format!("rbd {}/{}", ceph.pool.as_str(), ceph.volume.as_str())
        }
        Source::CloudInit { .. } => "made for the VM".to_owned(),
    }
}

/// From what QEMU opens down to where the bytes are.
fn chain(disk: &PlannedDisk) -> Vec<String> {
    let mut chain = files_of(disk);
    if let Some(claim) = &disk.claim {
        // Below what is ours, above what it leads to.
        let ours = usize::from(!matches!(
            disk.source,
            Source::Rbd { .. } | Source::NewVolume(_)
        ));
        chain.insert(
            ours,
            format!("claim {}, volume {}", claim.claim, claim.volume),
        );
    }
    chain
}

fn files_of(disk: &PlannedDisk) -> Vec<String> {
    let pool = disk
        .pool
        .as_ref()
        .map(|pool| format!(" (pool {pool})"))
        .unwrap_or_default();
    match &disk.source {
        Source::Image {
            image,
            store_file,
            overlay,
            ..
        } => vec![
            format!("overlay {}{pool}", overlay.path),
            format!("image {image} as raw file {store_file}"),
        ],
        Source::NewVolume(volume) => vec![format!(
            "new volume {}{pool}, ext4 on one partition",
            volume.path
        )],
        Source::RawDevice(device) => vec![
            format!("device {}", device.exposed),
            match device.number {
                Some(number) => format!("raw device {} ({number})", device.from),
                None => format!("raw device {}", device.from),
            },
        ],
        Source::BlockClaim(device) => vec![
            format!("device {}", device.exposed),
            format!("block device {}", device.from),
        ],
        Source::PersistentRoot {
            device,
            image,
            store_file,
            data_offset,
            ..
        } => vec![
            format!(
                "device {} from {} on",
                device.exposed,
                ByteSize::from_bytes(*data_offset)
            ),
            format!("block device {}", device.from),
            format!("filled once from image {image} as raw file {store_file}"),
        ],
        Source::DiskImage(file) => vec![
            format!("file {}", file.exposed),
            format!("raw file {}", file.from),
        ],
        Source::Rbd { ceph, key } => {
            let monitors: Vec<_> = ceph.monitors.iter().map(ToString::to_string).collect();
            let user = match key {
                Some(_) => format!("user {} with a key", ceph.user.as_str()),
                None => "without cephx".to_owned(),
            };
            vec![format!(
                "rbd image {}/{} at {}, {user}",
                ceph.pool.as_str(),
                ceph.volume.as_str(),
                monitors.join(", "),
            )]
        }
        Source::CloudInit { path } => vec![format!("new image {path}")],
    }
}
