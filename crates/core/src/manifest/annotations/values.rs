//! The values of annotations.

use uuid::Uuid;

use super::{CpuModel, DataRef, DiskDriver, KeyedDataRef, ObjectKind, TextEncoding};
use crate::cloudinit::{ImageType, is_template_header};
use crate::diag::{Diagnostic, Diagnostics, Place, is_private_key};
use crate::names::{DataKey, ObjectName};
use crate::text::Data;
use crate::units::{ByteSize, parse_quantity};
use crate::yaml::{self, Limits, Reader, Spanned, View};

pub(super) const DRIVERS: [(&str, DiskDriver); 2] =
    [("scsi", DiskDriver::Scsi), ("virtio", DiskDriver::Virtio)];
pub(super) const ENCODINGS: [(&str, TextEncoding); 2] = [
    ("plain", TextEncoding::Plain),
    ("base64", TextEncoding::Base64),
];
pub(super) const CPU_MODELS: [(&str, CpuModel); 2] =
    [("", CpuModel::Default), ("host-model", CpuModel::HostModel)];
const IMAGE_TYPES: [(&str, ImageType); 2] = [
    ("nocloud", ImageType::NoCloud),
    ("configdrive", ImageType::ConfigDrive),
];

/// A word of a closed set; the first of the set stands in for a wrong one.
pub(super) fn one_of<T: Copy>(
    text: &Spanned<String>,
    what: &str,
    words: &[(&str, T)],
    diags: &mut Diagnostics,
) -> T {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text.value) {
        return *value;
    }
    let allowed: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    diags.push(
        Diagnostic::error(&text.place, format!("not {what}"))
            .found(format!("{:?}", text.value))
            .allowed(allowed.join(", "))
            .did_you_mean(&text.value, words.iter().map(|(word, _)| *word)),
    );
    words[0].1
}

pub(in crate::manifest) fn image_type(
    text: &Spanned<String>,
    diags: &mut Diagnostics,
) -> ImageType {
    let lower = text.clone().map(|text| text.to_ascii_lowercase());
    one_of(&lower, "a type of cloud-init image", &IMAGE_TYPES, diags)
}

pub(super) fn flag(text: &Spanned<String>, diags: &mut Diagnostics) -> bool {
    one_of(
        text,
        "a truth value",
        &[("false", false), ("true", true)],
        diags,
    )
}

pub(super) fn refuse_unless_false(text: &Spanned<String>, why: &str, diags: &mut Diagnostics) {
    if flag(text, diags) {
        diags.push(Diagnostic::error(&text.place, why).help("remove the annotation"));
    }
}

pub(super) fn vcpus(text: &Spanned<String>, diags: &mut Diagnostics) -> Option<u32> {
    const MOST: u32 = 255;
    let count = text
        .value
        .trim()
        .parse()
        .ok()
        .filter(|n| (1..=MOST).contains(n));
    if count.is_none() {
        diags.push(
            Diagnostic::error(&text.place, "not a number of virtual CPUs")
                .found(format!("{:?}", text.value))
                .allowed("1 to 255"),
        );
    }
    count
}

pub(super) fn root_size(
    text: &Spanned<String>,
    diags: &mut Diagnostics,
) -> Option<Spanned<ByteSize>> {
    let problem = match parse_quantity(text.value.trim()) {
        Ok(size) if size.as_bytes() == 0 => "the root disk cannot be empty".to_owned(),
        Ok(size) if size.as_bytes() > MAX_DISK_BYTES => "no disk can be that large".to_owned(),
        Ok(size) => return Some(text.clone().map(|_| size)),
        Err(error) => format!("not a size: {error}"),
    };
    diags.push(
        Diagnostic::error(&text.place, problem)
            .found(format!("{:?}", text.value))
            .allowed("a Kubernetes quantity such as 4Gi or 1.5Gi, at most 2Pi"),
    );
    None
}

/// What qcow2 can address with clusters of 64 KiB and the largest first-level
/// table that QEMU opens.
const MAX_DISK_BYTES: u64 = 2 << 50;

pub(in crate::manifest) fn system_uuid(
    text: &Spanned<String>,
    diags: &mut Diagnostics,
) -> Option<Spanned<Uuid>> {
    let uuid = Uuid::try_parse(text.value.trim())
        .ok()
        .filter(|uuid| !uuid.is_nil());
    if uuid.is_none() {
        diags.push(
            Diagnostic::error(&text.place, "not a UUID")
                .found(format!("{:?}", text.value))
                .allowed("32 hexadecimal digits, such as 1b4d298f-6151-40b0-a1d4-269fc41d48f0"),
        );
    }
    let place = text.place.clone();
    uuid.map(|value| Spanned { value, place })
}

/// Public keys, one a line.
pub(super) fn ssh_keys(text: &Spanned<String>, diags: &mut Diagnostics) -> Vec<String> {
    if is_private_key(&text.value) {
        diags.push(private_key(&text.place));
        return Vec::new();
    }
    text.value
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A private key among public ones, told without it.
pub(crate) fn private_key(place: &Place) -> Diagnostic {
    Diagnostic::error(place, "a private key has no place among public keys")
        .allowed(
            "public keys as in authorized_keys, one a line, such as from a file that ends in .pub",
        )
        .help("put the public key there; a private one that stood in a manifest should be replaced")
}

pub(super) fn data_key(
    text: &Spanned<String>,
    diags: &mut Diagnostics,
) -> Option<Spanned<DataKey>> {
    crate::manifest::meta::parse_name(text.clone(), DataKey::parse, diags)
}

pub(super) fn data_ref(
    text: &Spanned<String>,
    diags: &mut Diagnostics,
) -> Option<Spanned<DataRef>> {
    match split_ref(&text.value) {
        Some((object, None)) => Some(text.clone().map(|_| object)),
        _ => {
            refuse_ref(text, "configmap/NAME or secret/NAME", diags);
            None
        }
    }
}

/// Where SSH keys stand if the annotation does not say.
const DEFAULT_SSH_KEY: &str = "authorized_keys";

pub(super) fn keyed_data_ref(
    text: &Spanned<String>,
    diags: &mut Diagnostics,
) -> Option<Spanned<KeyedDataRef>> {
    let found = split_ref(&text.value).and_then(|(object, key)| {
        let key = DataKey::parse(key.unwrap_or(DEFAULT_SSH_KEY)).ok()?;
        Some(KeyedDataRef { object, key })
    });
    if found.is_none() {
        refuse_ref(text, "configmap/NAME[/KEY] or secret/NAME[/KEY]", diags);
    }
    found.map(|found| text.clone().map(|_| found))
}

fn refuse_ref(text: &Spanned<String>, allowed: &str, diags: &mut Diagnostics) {
    diags.push(
        Diagnostic::error(&text.place, "does not name a ConfigMap or Secret")
            .found(format!("{:?}", text.value))
            .allowed(allowed),
    );
}

fn split_ref(text: &str) -> Option<(DataRef, Option<&str>)> {
    let (kind, rest) = text.split_once('/')?;
    let kind = match kind.to_ascii_lowercase().as_str() {
        "configmap" => ObjectKind::ConfigMap,
        "secret" => ObjectKind::Secret,
        _ => return None,
    };
    let (name, key) = match rest.split_once('/') {
        None => (rest, None),
        Some((name, key)) => (name, Some(key)),
    };
    let name = ObjectName::parse(name).ok()?;
    Some((DataRef { kind, name }, key))
}

/// A YAML or JSON mapping inside an annotation.
pub(in crate::manifest) fn embedded_map(
    text: &Spanned<String>,
    diags: &mut Diagnostics,
) -> Vec<(String, Data)> {
    match parse_map(&text.value) {
        Ok(map) => map,
        Err(problem) => {
            let mut problem =
                Diagnostic::error(&text.place, problem).allowed("a mapping in YAML or JSON");
            if text.value.lines().next().is_some_and(is_template_header) {
                problem = problem.help("give the template as VirtletCloudInitUserDataScript, which reaches the guest as it is");
            }
            diags.push(problem);
            Vec::new()
        }
    }
}

/// The guest gets meta-data as JSON, which knows finite numbers only.
pub(in crate::manifest) fn refuse_infinite(
    entries: &[(String, Data)],
    text: &Spanned<String>,
    diags: &mut Diagnostics,
) {
    for (key, _) in entries.iter().filter(|(_, value)| !value.is_finite()) {
        diags.push(
            Diagnostic::error(&text.place, "a number in it cannot be handed on")
                .found(format!("key {key:?}"))
                .allowed("finite numbers")
                .help("write it in quotes if a text is meant"),
        );
    }
}

/// Reads a YAML or JSON mapping out of a text of its own.
pub(crate) fn parse_map(text: &str) -> Result<Vec<(String, Data)>, String> {
    match parse_data(text, Limits::default())? {
        Data::Map(entries) => Ok(entries),
        Data::Null => Ok(Vec::new()),
        _ => Err("is YAML, but not a mapping".to_owned()),
    }
}

/// Reads one YAML or JSON document for a guest out of a text of its own.
pub(crate) fn parse_data(text: &str, limits: Limits) -> Result<Data, String> {
    if text.lines().next().is_some_and(is_template_header) {
        return Err("is a template, which cannot be merged before it is rendered".to_owned());
    }
    let mut documents = yaml::documents_for(Reader::Guest, text, limits);
    let root = match documents.next() {
        None => return Ok(Data::Null),
        Some(Ok(root)) => root,
        Some(Err(errors)) => {
            let told: Vec<_> = errors
                .iter()
                .map(|error| format!("line {} of the text: {}", error.pos.line, error.message))
                .collect();
            return Err(told.join("; "));
        }
    };
    if documents.next().is_some() {
        return Err("has more than one YAML document".to_owned());
    }
    let file = "".into();
    Ok(View::root(&root, &file).data())
}
