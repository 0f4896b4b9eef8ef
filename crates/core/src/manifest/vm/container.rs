//! A container that makes the storage of a disk, as Kubernetes writes one.

use crate::diag::{Diagnostic, Diagnostics};
use crate::manifest::container::{EnvFrom, EnvSource, EnvVar, read_env_from};
use crate::manifest::meta::required_name;
use crate::names::{EnvName, ImageName};
use crate::secrecy::conceal_literals;
use crate::text::Data;
use crate::yaml::{Fields, Spanned, View};

/// What is started to have storage made.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// Its image.
    pub image: Spanned<String>,
    /// All its fields, as they are written; what looks like a password does not show.
    pub fields: Data,
    /// Variables from whole ConfigMaps and Secrets.
    pub env_from: Vec<Spanned<EnvFrom>>,
    /// Its variables.
    pub env: Vec<EnvVar>,
}

/// Fields that are handed on as they are.
const OTHERS: [&str; 17] = [
    "name",
    "workingDir",
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
];

impl ContainerSpec {
    /// Kubernetes' own, so that fields which nobody knows pass.
    pub(super) fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let image = read_image(&mut fields, diags);
        for field in ["command", "args"] {
            for item in fields.items(field, diags) {
                item.text(diags);
            }
        }
        refuse_volumes(&mut fields, diags);
        let env_from = read_env_from(&mut fields, diags);
        let env = fields.items("env", diags);
        let env = env.iter().filter_map(|item| read_variable(item, diags));
        let env = env.collect();
        for other in OTHERS {
            fields.get(other);
        }
        fields.tell_slips(diags);
        let mut all = view.finite_data(diags)?;
        conceal_literals(&mut all);
        Some(Self {
            image: image?,
            fields: all,
            env_from,
            env,
        })
    }
}

fn read_image(fields: &mut Fields<'_>, diags: &mut Diagnostics) -> Option<Spanned<String>> {
    let image = fields.required_text("image", diags)?;
    if let Err(error) = ImageName::parse(&image.value) {
        diags.push(
            Diagnostic::error(&image.place, format!("the container image's name {error}"))
                .allowed("such as registry.example.com/volumes:1"),
        );
        return None;
    }
    Some(image)
}

/// They would be the pod's, and the pod is not the user's to write.
fn refuse_volumes(fields: &mut Fields<'_>, diags: &mut Diagnostics) {
    for field in ["volumeMounts", "volumeDevices"] {
        if let Some(first) = fields.items(field, diags).first() {
            diags.push(
                Diagnostic::error(
                    &first.place,
                    "a container that makes storage has no volumes",
                )
                .help("give it what it needs by its image, env and envFrom"),
            );
        }
    }
}

/// What a variable says of the container's own pod is known when that exists.
fn read_variable(item: &View<'_>, diags: &mut Diagnostics) -> Option<EnvVar> {
    let from = item.node.get("valueFrom");
    let of_pod = ["fieldRef", "resourceFieldRef"];
    if !of_pod
        .iter()
        .any(|kind| from.is_some_and(|from| from.get(kind).is_some()))
    {
        return EnvVar::read(item, diags);
    }
    let mut fields = item.fields(diags)?;
    let name = required_name(&mut fields, "name", EnvName::parse, diags)?;
    Some(EnvVar {
        name: name.value,
        source: Spanned {
            value: EnvSource::WhenStarted,
            place: item.place.clone(),
        },
    })
}
