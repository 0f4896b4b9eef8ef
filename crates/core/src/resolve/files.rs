//! Files for the guest: from Secret, ConfigMap, projected and downward API
//! volumes, from `VirtletFilesFromDataSource`, and the service account's token.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::user_data::missing_key;
use super::{Reference, Resolver};
use crate::cloudinit::GuestFile;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::facts::TokenFile;
use crate::guest::GuestPath;
use crate::manifest::{
    DataObject, DataRef, DataSource, FieldRef, FileSource, ObjectKind, SourceFiles, VmPod,
    VolumeMount, VolumeSource,
};
use crate::names::{DataKey, ObjectName, VolumeName};
use crate::text::{Content, Secret};
use crate::yaml::Spanned;

/// Where Kubernetes' clients look for their token.
const TOKEN_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// All files of a VM travel in its cloud-init image, several times over.
const MOST_BYTES: usize = 16 << 20;

fn size_of(file: &GuestFile) -> usize {
    file.content.bytes().map_or(0, <[u8]>::len)
}

/// A file of a volume, at its path within the volume.
struct VolumeFile {
    path: String,
    mode: u32,
    content: Content,
}

impl Resolver<'_> {
    pub(super) fn files(&self, pod: &VmPod, diags: &mut Diagnostics) -> Vec<GuestFile> {
        let mut files = Vec::new();
        let mut bytes = 0;
        for mount in &pod.container.mounts {
            let volume = pod
                .volumes
                .iter()
                .find(|volume| volume.name.value == mount.volume.value);
            let Some(volume) = volume else { continue };
            if let VolumeSource::Files(source) = &volume.source.value {
                let contents = self.volume_files(pod, &volume.name.value, source, diags);
                let shown = mounted(mount, contents, diags);
                bytes += shown.iter().map(size_of).sum::<usize>();
                if bytes > MOST_BYTES {
                    diags.push(
                        Diagnostic::error(&mount.volume.place, "too much for a cloud-init image")
                            .found(format!("more than {} MiB of files", MOST_BYTES >> 20))
                            .help("mount fewer or smaller Secrets and ConfigMaps"),
                    );
                    return Vec::new();
                }
                files.extend(shown);
            }
        }
        files.extend(self.account_token(pod));
        files.extend(self.injected_files(pod, diags));
        let files = last_of_each_path(files);
        refuse_files_as_directories(&files, pod, diags);
        files
    }

    fn volume_files(
        &self,
        pod: &VmPod,
        name: &VolumeName,
        volume: &SourceFiles,
        diags: &mut Diagnostics,
    ) -> Vec<VolumeFile> {
        let mut files = Vec::new();
        let default = volume.default_mode;
        for source in &volume.sources {
            match &source.value {
                FileSource::Secret(data) => {
                    files.extend(self.data_files(pod, ObjectKind::Secret, data, default, diags));
                }
                FileSource::ConfigMap(data) => {
                    files.extend(self.data_files(pod, ObjectKind::ConfigMap, data, default, diags));
                }
                FileSource::Downward(items) => files.extend(items.iter().map(|item| VolumeFile {
                    path: item.path.clone(),
                    mode: item.mode.unwrap_or(default),
                    content: field_content(pod, &item.field),
                })),
                FileSource::Token { path } => files.push(VolumeFile {
                    path: path.clone(),
                    mode: default,
                    content: self.token(pod, name, path),
                }),
            }
        }
        files
    }

    /// A token that the kubelet has requested, if somebody has looked.
    fn token(&self, pod: &VmPod, volume: &VolumeName, path: &str) -> Content {
        let file = pod.meta.uid.as_ref().map(|uid| TokenFile {
            pod: uid.clone(),
            volume: volume.clone(),
            path: path.to_owned(),
        });
        let token = file.and_then(|file| self.facts.tokens.get(&file));
        match token {
            Some(token) => Content::Secret(token.clone()),
            None => Content::Later("token issued when the pod starts".to_owned()),
        }
    }

    fn data_files(
        &self,
        pod: &VmPod,
        kind: ObjectKind,
        source: &DataSource,
        default_mode: u32,
        diags: &mut Diagnostics,
    ) -> Vec<VolumeFile> {
        let name = &source.name;
        let found = if source.optional {
            self.find_data(&pod.meta.namespace, kind, &name.value)
        } else {
            let wanted = DataRef {
                kind,
                name: name.value.clone(),
            };
            self.data_object(&pod.meta.namespace, &wanted, &name.place, diags)
        };
        let Some(object) = found else {
            return Vec::new();
        };
        let Some(items) = &source.items else {
            return all_keys(object, default_mode);
        };
        let mut files = Vec::new();
        for item in items {
            match object.data.get(&item.key.value) {
                Some(content) => files.push(VolumeFile {
                    path: item.path.clone(),
                    mode: item.mode.unwrap_or(default_mode),
                    content: content.clone(),
                }),
                None if source.optional => {}
                None => diags.push(missing_key(&item.key.value, object, &item.key)),
            }
        }
        files
    }

    /// The token that a cluster would mount by itself. A pod that came from
    /// the API server has it among its volumes; for one from a file, a Secret
    /// of the input may hold it.
    fn account_token(&self, pod: &VmPod) -> Vec<GuestFile> {
        let explicit = pod
            .container
            .mounts
            .iter()
            .any(|mount| mount.path.value.as_str() == TOKEN_DIRECTORY);
        if explicit || !self.mounts_token(pod) {
            return Vec::new();
        }
        let secret = self.objects.secrets.values().find(|secret| {
            secret.meta.namespace == pod.meta.namespace
                && secret.token_of.as_deref() == Some(&pod.service_account)
        });
        let Some(secret) = secret else {
            return Vec::new();
        };
        let in_directory = |file: VolumeFile| {
            let path = GuestPath::parse(TOKEN_DIRECTORY)
                .ok()?
                .join(&file.path)
                .ok()?;
            Some(GuestFile {
                path,
                mode: file.mode,
                content: file.content,
            })
        };
        all_keys(secret, 0o644)
            .into_iter()
            .filter_map(in_directory)
            .collect()
    }

    /// The pod's word, else its account's; without either there is a token.
    fn mounts_token(&self, pod: &VmPod) -> bool {
        let of_account = || {
            let name = ObjectName::parse(&pod.service_account).ok()?;
            let key = (pod.meta.namespace.clone(), name);
            let account = self.objects.accounts.get(&key);
            let account = self
                .missing
                .note(account, || Reference::ServiceAccount(key))?;
            account.mounts_token
        };
        pod.mounts_token.or_else(of_account).unwrap_or(true)
    }

    /// `VirtletFilesFromDataSource`: key X has the content, X_path the path,
    /// X_encoding says `plain` or `base64` (the default).
    fn injected_files(&self, pod: &VmPod, diags: &mut Diagnostics) -> Vec<GuestFile> {
        let Some(source) = &pod.annotations.files_source else {
            return Vec::new();
        };
        let object = self.data_object(&pod.meta.namespace, &source.value, &source.place, diags);
        let Some(object) = object else {
            return Vec::new();
        };
        object
            .data
            .keys()
            .filter(|key| !is_attribute(key, object))
            .filter_map(|key| injected_file(key, object, source, diags))
            .collect()
    }
}

fn all_keys(object: &DataObject, mode: u32) -> Vec<VolumeFile> {
    object
        .data
        .iter()
        .map(|(key, content)| VolumeFile {
            path: key.to_string(),
            mode,
            content: content.clone(),
        })
        .collect()
}

/// The files that a mount shows, at their paths in the guest.
fn mounted(mount: &VolumeMount, files: Vec<VolumeFile>, diags: &mut Diagnostics) -> Vec<GuestFile> {
    let mut shown = Vec::new();
    let all: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    let sub_path = mount
        .sub_path
        .as_ref()
        .map(|path| path.value.trim_matches('/'));
    for file in files {
        let path = match sub_path {
            None => mount.path.value.join(&file.path),
            // One file is mounted as the path itself, a directory's files
            // below it.
            Some(sub) if file.path == sub => Ok(mount.path.value.clone()),
            Some(sub) => match file
                .path
                .strip_prefix(sub)
                .and_then(|rest| rest.strip_prefix('/'))
            {
                Some(rest) => mount.path.value.join(rest),
                None => continue,
            },
        };
        match path {
            Ok(path) => shown.push(GuestFile {
                path,
                mode: file.mode,
                content: file.content,
            }),
            Err(error) => diags.push(Diagnostic::error(
                &mount.path.place,
                format!("the path of file {:?} {error}", file.path),
            )),
        }
    }
    if let Some(sub) = &mount.sub_path
        && shown.is_empty()
        // An optional object that is missing has nothing to show.
        && !all.is_empty()
    {
        diags.push(
            Diagnostic::error(&sub.place, "the volume has nothing under this path")
                .found(format!("{:?}", sub.value))
                .allowed(all.join(", "))
                .did_you_mean(&sub.value, all.iter().map(String::as_str)),
        );
    }
    shown
}

/// A path cannot be a file and the directory of another.
fn refuse_files_as_directories(files: &[GuestFile], pod: &VmPod, diags: &mut Diagnostics) {
    let paths: BTreeSet<_> = files.iter().map(|file| &file.path).collect();
    for path in &paths {
        if let Some(file) = paths.iter().find(|other| path.is_below(other)) {
            let message = "a path cannot be a file and a directory at once";
            diags.push(
                Diagnostic::error(source_of(path, pod), message)
                    .found(format!("{file} and {path}"))
                    .help(format!("the file comes from {}", source_of(file, pod))),
            );
            return;
        }
    }
}

/// What puts a file at its path: the innermost mount above it, else the
/// annotation that injects files.
fn source_of<'p>(path: &GuestPath, pod: &'p VmPod) -> &'p Place {
    let mounts = pod.container.mounts.iter().map(|mount| &mount.path);
    let above = mounts.filter(|mount| *path == mount.value || path.is_below(&mount.value));
    let mount = above.max_by_key(|mount| mount.value.depth());
    let injected = pod.annotations.files_source.as_ref();
    mount
        .map(|mount| &mount.place)
        .or(injected.map(|source| &source.place))
        .unwrap_or(&pod.meta.place)
}

/// Later sources win, as they do in a projected volume; each path is written
/// once.
fn last_of_each_path(files: Vec<GuestFile>) -> Vec<GuestFile> {
    let mut last = std::collections::BTreeMap::new();
    for (index, file) in files.iter().enumerate() {
        last.insert(file.path.clone(), index);
    }
    files
        .into_iter()
        .enumerate()
        .filter(|(index, file)| last.get(&file.path) == Some(index))
        .map(|(_, file)| file)
        .collect()
}

pub(super) fn field_content(pod: &VmPod, field: &FieldRef) -> Content {
    let find = |pairs: &[(String, String)], key: &str| {
        let found = pairs.iter().find(|(k, _)| k == key);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    };
    // The form that the kubelet writes: sorted, one a line, values quoted.
    let listed = |pairs: &[(String, String)]| {
        let sorted: std::collections::BTreeMap<_, _> = pairs.iter().cloned().collect();
        let lines: Vec<_> = sorted.iter().map(|(k, v)| format!("{k}={v:?}")).collect();
        lines.join("\n")
    };
    let hides = match field {
        FieldRef::Annotations => pod
            .raw_annotations
            .iter()
            .any(|(key, _)| holds_user_data(key)),
        FieldRef::Annotation(key) => holds_user_data(key),
        _ => false,
    };
    let hidden = |text: String| match hides {
        true => Content::Secret(Secret::new(text)),
        false => Content::public(text),
    };
    hidden(match field {
        FieldRef::Name => pod.meta.name.to_string(),
        FieldRef::Namespace => pod.meta.namespace.to_string(),
        FieldRef::Uid => match &pod.meta.uid {
            Some(uid) => uid.clone(),
            None => return Content::Later("known when the pod exists".to_owned()),
        },
        FieldRef::Labels => listed(&pod.meta.labels),
        FieldRef::Annotations => listed(&pod.raw_annotations),
        FieldRef::Label(key) => find(&pod.meta.labels, key),
        FieldRef::Annotation(key) => find(&pod.raw_annotations, key),
        FieldRef::ServiceAccount => pod.service_account.clone(),
        FieldRef::WhenRunning("spec.nodeName") if pod.node.is_some() => {
            pod.node.clone().unwrap_or_default()
        }
        FieldRef::WhenRunning(field) => {
            return Content::Later(format!("{field}, known when the pod runs"));
        }
    })
}

/// Whether an annotation holds user data, in which passwords may stand.
fn holds_user_data(annotation: &str) -> bool {
    annotation.starts_with("VirtletCloudInit") || annotation.starts_with("kubectl.kubernetes.io/")
}

const PATH_SUFFIX: &str = "_path";
const ENCODING_SUFFIX: &str = "_encoding";

/// Whether a key says something about another key.
fn is_attribute(key: &DataKey, object: &DataObject) -> bool {
    [PATH_SUFFIX, ENCODING_SUFFIX].iter().any(|suffix| {
        let stem = key.as_str().strip_suffix(suffix);
        stem.and_then(|stem| DataKey::parse(stem).ok())
            .is_some_and(|stem| object.data.contains_key(&stem))
    })
}

fn injected_file(
    key: &DataKey,
    object: &DataObject,
    source: &Spanned<DataRef>,
    diags: &mut Diagnostics,
) -> Option<GuestFile> {
    let attribute = |suffix: &str| {
        let name = DataKey::parse(&format!("{key}{suffix}")).ok()?;
        let bytes = object.data.get(&name)?.bytes()?;
        std::str::from_utf8(bytes).ok().map(str::trim)
    };
    let refuse = |message: String, allowed: &str| {
        Diagnostic::error(&source.place, message)
            .found(format!(
                "key {:?} of {} {}",
                key.as_str(),
                source.value.kind.name(),
                object.meta.name
            ))
            .allowed(allowed)
    };
    let Some(path) = attribute(PATH_SUFFIX) else {
        let wanted = format!("the path in the guest under the key {key}{PATH_SUFFIX}");
        diags.push(refuse("a file without a path".to_owned(), &wanted));
        return None;
    };
    let path = match GuestPath::parse(path) {
        Ok(path) => path,
        Err(error) => {
            diags.push(refuse(
                format!("the path of a file {error}"),
                "an absolute path in the guest",
            ));
            return None;
        }
    };
    let content = object.data.get(key)?;
    let content = match attribute(ENCODING_SUFFIX).unwrap_or("base64") {
        "plain" => content.clone(),
        "base64" => match decoded(content) {
            Some(content) => content,
            None => {
                diags.push(refuse(
                    "the content is not base64".to_owned(),
                    "base64, or plain text with X_encoding: plain",
                ));
                return None;
            }
        },
        _ => {
            diags.push(refuse("an unknown encoding".to_owned(), "plain, base64"));
            return None;
        }
    };
    Some(GuestFile {
        path,
        mode: 0o644,
        content,
    })
}

fn decoded(content: &Content) -> Option<Content> {
    let packed: Vec<u8> = content
        .bytes()?
        .iter()
        .copied()
        .filter(|b| !b.is_ascii_whitespace())
        .collect();
    let bytes = BASE64.decode(packed).ok()?;
    Some(match content {
        Content::Secret(_) => Content::Secret(Secret::new(bytes)),
        Content::Public(_) | Content::Later(_) => Content::Public(bytes),
    })
}
