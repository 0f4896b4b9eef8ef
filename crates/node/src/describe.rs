//! `describe`: a VM's plan, and what has become of it.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use disklet::vms::{DescribeArgs, DescribeOutput};
use disklet_core::plan::CopyMode;
use disklet_core::source::Servers;
use disklet_core::units::ByteSize;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Result};
use crate::knock::{Answer, SOON, knock};
use crate::libvirt::{Libvirt, Pause};
use crate::ps::state;
use crate::record::{Record, Records};
use crate::vms::{configuration, select};

pub(crate) fn describe(args: &DescribeArgs) -> Result<String> {
    let config = configuration(args.config.as_deref())?;
    let records = Records::of(&config);
    let all = records.list()?;
    let record = select(&all, &args.name, &args.namespace)?;
    let libvirt = Libvirt::open(args.libvirt.connect.as_deref())?;
    // Its files are here, wherever its domain is.
    if let Err(failure) = libvirt.demand_daemon_of(record) {
        let failure = failure.of(&record.full_name());
        let _ = writeln!(io::stderr(), "notice: {failure}");
    }
    let mut plan = match plan_in(&records.plan_file(record.uuid)) {
        Ok(plan) => plan,
        Err(failure) => {
            let failure = failure.of(&record.full_name());
            let _ = writeln!(io::stderr(), "notice: {failure}");
            without_plan(record)
        }
    };
    plan.insert("state".into(), state(Some(&libvirt), record)?.into());
    if libvirt.pause(record.uuid)? == Some(Pause::DiskError) {
        plan.insert("pausedBy".into(), "disk error".into());
    }
    plan.insert("libvirt".into(), record.libvirt.as_str().into());
    plan.insert("created".into(), record.created.into());
    if let Some(Value::Array(disks)) = plan.get_mut("disks") {
        for disk in disks {
            let chain = chain(disk);
            if let Value::Object(fields) = disk {
                fields.insert("chain".into(), chain);
                let name = fields.get("name").and_then(Value::as_str);
                let name = name.unwrap_or_default().to_owned();
                if record.changes.iter().any(|begun| begun.detaches(&name)) {
                    fields.insert("detaching".into(), true.into());
                }
            }
        }
    }
    match args.output {
        DescribeOutput::Text => Ok(for_people(&plan)),
        DescribeOutput::Json => Ok(format!("{:#}\n", Value::Object(plan))),
    }
}

/// The plan that is kept beside a VM's record.
fn plan_in(path: &Path) -> Result<Map<String, Value>> {
    let failed = || Failure::new(format!("its plan, {}, cannot be read", path.display()));
    let text = fs::read(path).map_err(|error| failed().because(error));
    let plan = text
        .and_then(|text| serde_json::from_slice(&text).map_err(|error| failed().because(error)));
    plan.map_err(|failure| {
        failure.help(
            "its disks are not known, only what its record names; disklet up keeps a plan again \
             when it starts the VM the next time",
        )
    })
}

/// What is known of a VM by its record alone.
fn without_plan(record: &Record) -> Map<String, Value> {
    let files = record.made.iter().filter_map(|made| {
        let path = made.path()?.display().to_string();
        Some(link(&path, &Value::Null))
    });
    let mut known = Map::new();
    known.insert("namespace".into(), record.namespace.as_str().into());
    known.insert("name".into(), record.name.as_str().into());
    known.insert("uuid".into(), record.uuid.to_string().into());
    known.insert("files".into(), files.collect());
    known
}

/// The files and devices of a disk, topmost first, with what each really
/// takes.
fn chain(disk: &Value) -> Value {
    let source = &disk["source"];
    let copied = &disk["copiedTo"];
    // What QEMU opens is the copy where there is one, else the master.
    let master = match copied {
        Value::Null => &disk["format"],
        copied => &copied["masterFormat"],
    };
    let servers = Servers::shown(source);
    // What is at a server has paths, too, which mean nothing here.
    let local = match servers {
        Some(_) => &Value::Null,
        None => source,
    };
    let links = [
        (&copied["file"], &disk["format"]),
        (&local["exposedAt"], master),
        (&local["path"], &Value::Null),
        (&local["file"], master),
    ];
    let links = links.into_iter().filter_map(|(path, format)| {
        let path = path.as_str()?;
        Some(link(path, format))
    });
    // A clone does without its master.
    let servers = servers.filter(|_| disk["copy"] != CopyMode::Clone.name());
    let servers = servers.map(|servers| at_server(&servers, master));
    links.chain(servers).collect()
}

/// Servers, and whether one of them answers now.
fn at_server(servers: &Servers, format: &Value) -> Value {
    let answer = knock(servers, SOON);
    let mut why = answer.missing_in_words();
    if let (Answer::Silent, true, Some(why)) = (&answer, servers.may_be_busy(), &mut why) {
        why.push_str(", as one that serves nobody but the guest");
    }
    json!({
        "server": servers.to_string(),
        "format": format,
        "there": why.is_none(),
        "why": why,
    })
}

/// A file or device, and what it really takes.
fn link(path: &str, format: &Value) -> Value {
    let meta = fs::metadata(path).ok();
    let is_file = meta.as_ref().is_some_and(fs::Metadata::is_file);
    json!({
        "path": path,
        "format": format,
        "there": meta.is_some(),
        "length": meta.as_ref().filter(|_| is_file).map(fs::Metadata::len),
        "allocated": meta.filter(|_| is_file).map(|meta| meta.blocks() * 512),
    })
}

fn for_people(plan: &Map<String, Value>) -> String {
    let word = |key: &str| {
        plan.get(key)
            .and_then(Value::as_str)
            .unwrap_or("-")
            .to_owned()
    };
    let mut text = String::new();
    for (title, value) in [
        ("Name", format!("{}/{}", word("namespace"), word("name"))),
        ("UUID", word("uuid")),
        ("Domain", word("domain")),
        ("State", state_words(&word("state"), plan.get("pausedBy"))),
        ("Libvirt", word("libvirt")),
    ] {
        let _ = writeln!(text, "{title:8} {value}");
    }
    let none = Vec::new();
    if let Some(Value::Array(files)) = plan.get("files") {
        let _ = writeln!(text, "Files");
        for file in files {
            let _ = writeln!(text, "  {}", link_words(file));
        }
        return text;
    }
    let _ = writeln!(text, "Disks");
    for disk in plan.get("disks").and_then(Value::as_array).unwrap_or(&none) {
        let field = |key: &str| disk[key].as_str().unwrap_or("-").to_owned();
        let _ = writeln!(
            text,
            "  {} {} {}, {}, serial {}{}",
            field("target"),
            field("name"),
            size_words(disk),
            field("format"),
            field("serial"),
            since_start(disk),
        );
        for (depth, link) in disk["chain"].as_array().unwrap_or(&none).iter().enumerate() {
            let _ = writeln!(text, "  {}└─ {}", "   ".repeat(depth + 1), link_words(link));
        }
    }
    text
}

fn state_words(state: &str, paused_by: Option<&Value>) -> String {
    match paused_by {
        Some(_) => format!("{state}: a disk could not be read or written"),
        None => state.to_owned(),
    }
}

/// How large a disk is, or who knows.
fn size_words(disk: &Value) -> String {
    let top = &disk["chain"][0];
    let size = disk["size"].as_u64().or(top["length"].as_u64());
    match size.map(ByteSize::from_bytes) {
        Some(size) => size.to_string(),
        None if top["server"].is_string() => "as large as at its server".to_owned(),
        None => "size of its file".to_owned(),
    }
}

/// What has become of a disk while the VM ran.
fn since_start(disk: &Value) -> String {
    let told = [
        ("attached", ", attached while it ran"),
        ("grown", ", grown while it ran"),
        ("detaching", ", the guest was asked to let go of it"),
    ];
    let told = told.into_iter().filter(|(key, _)| disk[*key] == true);
    told.map(|(_, words)| words).collect()
}

fn link_words(link: &Value) -> String {
    if let Some(server) = link["server"].as_str() {
        let format = link["format"].as_str().unwrap_or("-");
        let why = link["why"].as_str();
        let why = why.map_or_else(String::new, |why| format!(", MISSING: {why}"));
        return format!("{server} ({format}{why})");
    }
    let path = link["path"].as_str().unwrap_or("-");
    let size = |key: &str| link[key].as_u64().map(ByteSize::from_bytes);
    let what = match (link["there"].as_bool(), size("allocated")) {
        (Some(true), Some(allocated)) => format!(", {allocated} allocated"),
        (Some(true), None) if Path::new(path).is_absolute() => String::new(),
        _ => ", MISSING".to_owned(),
    };
    match link["format"].as_str() {
        Some(format) => format!("{path} ({format}{what})"),
        None => format!("{path}{what}"),
    }
}
