//! The user's own user-data and SSH keys, from annotations and from the
//! objects that they name.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Resolver;
use crate::cloudinit::{
    MOUNT_SCRIPT_TOKEN, ShapeProblem, TokenProblem, UserDataSpec, merge, shape_problems,
    token_problem,
};
use crate::diag::{Diagnostic, Diagnostics, is_private_key};
use crate::manifest::{
    DataObject, DataRef, KeyedDataRef, TextEncoding, VmPod, parse_data, private_key,
};
use crate::names::DataKey;
use crate::text::{Content, Data, Secret, Text};
use crate::yaml::{Limits, Spanned};

impl Resolver<'_> {
    pub(super) fn user_data(&self, pod: &VmPod, diags: &mut Diagnostics) -> UserDataSpec {
        let annotations = &pod.annotations;
        if let Some(script) = &annotations.script {
            let text = Text::Public(script.value.clone());
            check_tokens(&text, script, diags);
            return UserDataSpec::Script(text);
        }
        let source = annotations.user_data_source.as_ref().and_then(|source| {
            let object =
                self.data_object(&pod.meta.namespace, &source.value, &source.place, diags)?;
            Some((source, object))
        });
        if let Some(key) = &annotations.source_key {
            let script = source.and_then(|(_, object)| {
                script_under(key, object, annotations.source_encoding, diags)
            });
            if let Some(script) = &script {
                check_tokens(script, key, diags);
            }
            return UserDataSpec::Script(script.unwrap_or_else(|| Text::from("")));
        }
        let mut config = match source {
            Some((source, object))
                if !annotations.overwrite || annotations.user_data.is_empty() =>
            {
                config_of(source, object, diags)
            }
            _ => Vec::new(),
        };
        merge(&mut config, annotations.user_data.clone());
        let place = annotations
            .user_data_place
            .as_ref()
            .or(annotations
                .user_data_source
                .as_ref()
                .map(|source| &source.place))
            .unwrap_or(&pod.meta.place);
        for ShapeProblem { key, found } in shape_problems(&config) {
            diags.push(
                Diagnostic::error(place, format!("user-data: {key:?} must be a list"))
                    .found(found)
                    .help("our own entries are added to it; see the cloud-init documentation"),
            );
        }
        UserDataSpec::Config(config)
    }

    /// Keys of the source, then those of the annotation; or only the latter.
    pub(super) fn ssh_keys(&self, pod: &VmPod, diags: &mut Diagnostics) -> Vec<Text> {
        let annotations = &pod.annotations;
        let mut keys = Vec::new();
        if let Some(source) = &annotations.ssh_key_source
            && (!annotations.overwrite || annotations.ssh_keys.is_empty())
        {
            let namespace = &pod.meta.namespace;
            let found = self.data_object(namespace, &source.value.object, &source.place, diags);
            keys.extend(found.map_or(Vec::new(), |object| keys_under(source, object, diags)));
        }
        keys.extend(annotations.ssh_keys.iter().cloned().map(Text::Public));
        keys
    }
}

/// The scripts stand once for each token; a script that mounts its disks ten
/// times over is a mistake. Where the token is no command of a shell's script,
/// the scripts in its place would be none either.
fn check_tokens<T>(script: &Text, at: &Spanned<T>, diags: &mut Diagnostics) {
    const MOST: usize = 10;
    let text = script.known().unwrap_or_default();
    if text.matches(MOUNT_SCRIPT_TOKEN).nth(MOST).is_some() {
        diags.push(
            Diagnostic::error(
                &at.place,
                format!("{MOUNT_SCRIPT_TOKEN} stands too often in the script"),
            )
            .allowed(format!("at most {MOST} times; once is enough")),
        );
        return;
    }
    let Some(problem) = token_problem(text) else {
        return;
    };
    diags.push(match problem {
        TokenProblem::AmidLine(line) => Diagnostic::error(
            &at.place,
            format!("{MOUNT_SCRIPT_TOKEN} is not alone on its line"),
        )
        .found(format!("line {line} of the script"))
        .help("put it on a line of its own: many lines of shell code take its place"),
        TokenProblem::NoShell(first) => {
            let problem = Diagnostic::error(
                &at.place,
                format!("{MOUNT_SCRIPT_TOKEN} stands in a script that is not a shell's"),
            )
            .allowed("a script whose first line names a shell, such as #!/bin/sh")
            .help("shell code takes its place; remove it and mount the disks in the script, by their names in /dev/disk/by-id");
            match script {
                Text::Public(_) => problem.found(format!("{first:?}")),
                Text::Secret(_) | Text::Later(_) => problem,
            }
        }
    });
}

/// How many values all of a source's keys may have together.
const MOST_VALUES: usize = 200_000;

fn values_in(data: &Data) -> usize {
    match data {
        Data::List(items) => 1 + items.iter().map(values_in).sum::<usize>(),
        Data::Map(entries) => {
            1 + entries
                .iter()
                .map(|(_, value)| values_in(value))
                .sum::<usize>()
        }
        _ => 1,
    }
}

/// The object's keys as a cloud-config: each value is YAML.
fn config_of(
    source: &Spanned<DataRef>,
    object: &DataObject,
    diags: &mut Diagnostics,
) -> Vec<(String, Data)> {
    let mut config = Vec::new();
    let mut left = MOST_VALUES;
    for (key, content) in &object.data {
        let limits = Limits {
            nodes: left,
            ..Limits::default()
        };
        let parsed = content
            .bytes()
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .map(|text| parse_data(text, limits));
        match parsed {
            Some(Ok(data)) => {
                left = left.saturating_sub(values_in(&data));
                config.push((key.to_string(), with_secrecy(data, content)));
            }
            Some(Err(_)) | None => diags.push(
                Diagnostic::error(&source.place, format!("the value under {key:?} is not YAML", key = key.as_str()))
                    .found(format!("{} {}", source.value.kind.name(), source.value.name))
                    .help("every key of a user-data source is one of cloud-config; for a script use VirtletCloudInitUserDataSourceKey"),
            ),
        }
    }
    config
}

/// What is read out of a Secret stays secret.
fn with_secrecy(data: Data, content: &Content) -> Data {
    if content.is_secret() {
        data.hidden()
    } else {
        data
    }
}

fn script_under(
    key: &Spanned<DataKey>,
    object: &DataObject,
    encoding: TextEncoding,
    diags: &mut Diagnostics,
) -> Option<Text> {
    let Some(content) = object.data.get(&key.value) else {
        diags.push(missing_key(&key.value, object, key));
        return None;
    };
    let decoded = match encoding {
        TextEncoding::Plain => content.bytes().map(<[u8]>::to_vec),
        TextEncoding::Base64 => content.bytes().and_then(|bytes| {
            let packed: Vec<u8> = bytes
                .iter()
                .copied()
                .filter(|b| !b.is_ascii_whitespace())
                .collect();
            BASE64.decode(packed).ok()
        }),
    };
    let script = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
    if script.is_none() {
        diags.push(
            Diagnostic::error(&key.place, "the script cannot be read")
                .found(format!(
                    "what stands under {:?} is not {}",
                    key.value.as_str(),
                    match encoding {
                        TextEncoding::Plain => "text in UTF-8",
                        TextEncoding::Base64 => "base64 of text in UTF-8",
                    }
                ))
                .help("see VirtletCloudInitUserDataSourceEncoding: plain or base64"),
        );
    }
    script.map(|script| {
        if content.is_secret() {
            Text::Secret(Secret::new(script))
        } else {
            Text::Public(script)
        }
    })
}

fn keys_under(
    source: &Spanned<KeyedDataRef>,
    object: &DataObject,
    diags: &mut Diagnostics,
) -> Vec<Text> {
    let KeyedDataRef {
        object: wanted,
        key,
    } = &source.value;
    let Some(content) = object.data.get(key) else {
        diags.push(missing_key(key, object, source));
        return Vec::new();
    };
    let text = content
        .bytes()
        .and_then(|bytes| std::str::from_utf8(bytes).ok());
    let Some(text) = text else {
        let place = format!(
            "key {:?} of {} {}",
            key.as_str(),
            wanted.kind.name(),
            wanted.name
        );
        diags.push(Diagnostic::error(&source.place, "is not text in UTF-8").found(place));
        return Vec::new();
    };
    if is_private_key(text) {
        diags.push(private_key(&source.place).found(format!(
            "key {:?} of {} {}",
            key.as_str(),
            wanted.kind.name(),
            wanted.name
        )));
        return Vec::new();
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| match content {
            Content::Secret(_) => Text::Secret(Secret::new(line)),
            Content::Public(_) | Content::Later(_) => Text::from(line),
        })
        .collect()
}

pub(super) fn missing_key<T>(key: &DataKey, object: &DataObject, at: &Spanned<T>) -> Diagnostic {
    let known: Vec<_> = object.data.keys().map(DataKey::as_str).collect();
    Diagnostic::error(
        &at.place,
        format!("{} has no key {:?}", object.meta.name, key.as_str()),
    )
    .allowed(match known.is_empty() {
        true => "it has no keys".to_owned(),
        false => known.join(", "),
    })
    .did_you_mean(key.as_str(), known)
}
