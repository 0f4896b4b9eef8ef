//! Plans for people: a table, or a tree with the chain below each disk.

use std::io::{self, Write};

use disklet_core::plan::{CopyMode, Plan, PlannedDisk, Source};
use disklet_core::source::Network;
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
                "MIGRATION",
                "FROM",
                "IN THE GUEST",
            ]
            .map(str::to_owned),
        ];
        rows.extend(plan.disks.iter().map(row));
        write_rows(out, style, &rows)?;
        writeln!(out, "{}", style.paint(Tone::Bold, "STEPS"))?;
        write_steps(out, plan, "")?;
        write_pools(out, plan, "")?;
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
            match disk.name == disk.target.name() {
                true => writeln!(out, "├─ {target}: {}", facts_of(disk))?,
                false => writeln!(out, "├─ {target} {name}: {}", facts_of(disk))?,
            }
            write_chain(out, style, &chain(disk))?;
            if let Some(lease) = lease(disk) {
                writeln!(out, "│  {}", style.paint(Tone::Dim, &lease))?;
            }
        }
        writeln!(out, "└─ {}", style.paint(Tone::Bold, "steps"))?;
        write_steps(out, plan, "   ")?;
        write_pools(out, plan, "   ")?;
        write_later(out, style, plan, "   ")?;
    }
    Ok(())
}

/// What the VM is promised of the node's storage.
fn write_pools(out: &mut impl Write, plan: &Plan, indent: &str) -> io::Result<()> {
    for pool in &plan.pools {
        let (name, path, bytes) = (&pool.name, &pool.path, pool.promised_bytes);
        let promised = match (pool.complete, bytes.as_bytes()) {
            (true, _) => bytes.to_string(),
            (false, 0) => "known later".to_owned(),
            (false, _) => format!("at least {bytes}"),
        };
        writeln!(out, "{indent}promised of pool {name} ({path}): {promised}")?;
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

fn row(disk: &PlannedDisk) -> [String; 8] {
    [
        disk.name.clone(),
        disk.target.name(),
        disk.size.to_string(),
        disk.format().name().to_owned(),
        access(disk),
        disk.migration.name().to_owned(),
        disk.origin_in_words(),
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
        disk.format().name().to_owned(),
        disk.size.to_string(),
        access(disk),
    ];
    if disk.read_only {
        words.push("read-only".to_owned());
    }
    words.push(format!("serial {}", disk.serial));
    words.extend(in_guest(disk));
    words.push(format!("migration: {}", disk.migration.name()));
    words.join(", ")
}

/// Who may use the master; of a copy, that it is one.
fn access(disk: &PlannedDisk) -> String {
    let access = disk.access.name();
    match disk.copy.mode() {
        CopyMode::None => access.to_owned(),
        copy => format!("{} of {access}", copy.name()),
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

/// From what QEMU opens down to where the bytes are.
fn chain(disk: &PlannedDisk) -> Vec<String> {
    let mut chain = files_of(disk);
    if let Some(claim) = &disk.claim {
        // Below what is ours, above what it leads to.
        let ours = usize::from(!matches!(
            disk.source,
            Source::Network { .. } | Source::NewVolume(_)
        ));
        let claim = format!("claim {}, volume {}", claim.claim, claim.volume);
        chain.insert(ours, claim);
    }
    if let Some(copy) = copied(disk) {
        chain.insert(0, copy);
    }
    chain
}

/// The right that the VM has to have. What a container makes, or nobody can see
/// from here, has a name only later.
fn lease(disk: &PlannedDisk) -> Option<String> {
    let while_copied = match disk.copy.mode() {
        CopyMode::Clone => " while it is copied",
        _ => "",
    };
    let access = disk.access.name();
    match &disk.storage {
        Some(storage) => Some(format!("lease {access}: {storage}{while_copied}")),
        None if matches!(disk.source, Source::Later(_)) => {
            Some(format!("lease {access}{while_copied}: known at launch"))
        }
        None => None,
    }
}

/// The file that takes the guest's writes.
fn copied(disk: &PlannedDisk) -> Option<String> {
    let file = disk.copy.file()?;
    let what = match disk.copy.mode() {
        CopyMode::Clone => "clone",
        CopyMode::CopyOnRead => "overlay, filled by reading,",
        CopyMode::None | CopyMode::CopyOnWrite => "overlay",
    };
    Some(format!("{what} {}{}", file.path, pool(disk)))
}

fn pool(disk: &PlannedDisk) -> String {
    let pool = disk.pool.as_ref();
    pool.map(|pool| format!(" (pool {pool})"))
        .unwrap_or_default()
}

fn files_of(disk: &PlannedDisk) -> Vec<String> {
    match &disk.source {
        Source::Image {
            image, store_file, ..
        } => vec![format!("image {image} as raw file {store_file}")],
        Source::NewVolume(volume) => vec![format!(
            "new volume {}{}, ext4 on one partition",
            volume.path,
            pool(disk)
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
            format!("filled once from image {image} as raw file {store_file}"),
            format!("block device {}", device.from),
        ],
        Source::DiskImage { file, create } => {
            let made = create.map(|size| format!(", made of {size} if it is missing"));
            vec![
                format!("file {}", file.exposed),
                format!("raw file {}{}", file.from, made.unwrap_or_default()),
            ]
        }
        Source::Network { network, key } => vec![match (network, key) {
            (_, Some(key)) => format!("{network}, user {} with a key", key.user),
            (Network::Rbd(_), None) => format!("{network}, without cephx"),
            (_, None) => network.to_string(),
        }],
        Source::CloudInit { path } => vec![format!("new image {path}")],
        Source::Later(later) => vec![later.to_string()],
    }
}
