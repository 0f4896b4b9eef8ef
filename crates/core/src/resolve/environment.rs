//! Environment variables, with what they refer to.

use std::collections::HashMap;

use super::Resolver;
use super::files::field_content;
use super::user_data::missing_key;
use crate::diag::{Diagnostic, Diagnostics, Place};
use crate::manifest::{ContainerSpec, DataRef, EnvFrom, EnvSource, EnvVar, VmPod};
use crate::names::{EnvName, Namespace};
use crate::secrecy::{has_login, names_a_secret};
use crate::text::{Content, Secret, Text};
use crate::yaml::Spanned;

/// Whose variables are wanted.
struct Wanted<'w> {
    namespace: &'w Namespace,
    env_from: &'w [Spanned<EnvFrom>],
    env: &'w [EnvVar],
    /// The pod whose fields variables may name.
    pod: Option<&'w VmPod>,
}

impl Resolver<'_> {
    /// The variables of a VM pod.
    pub(super) fn environment(&self, pod: &VmPod, diags: &mut Diagnostics) -> Vec<(String, Text)> {
        let wanted = Wanted {
            namespace: &pod.meta.namespace,
            env_from: &pod.container.env_from,
            env: &pod.container.env,
            pod: Some(pod),
        };
        self.variables(&wanted, diags)
    }

    /// The variables of a container that makes storage for a VM.
    pub(super) fn container_environment(
        &self,
        namespace: &Namespace,
        container: &ContainerSpec,
        diags: &mut Diagnostics,
    ) -> Vec<(String, Text)> {
        let wanted = Wanted {
            namespace,
            env_from: &container.env_from,
            env: &container.env,
            pod: None,
        };
        self.variables(&wanted, diags)
    }

    /// Variables of whole objects first, then single ones, which win.
    fn variables(&self, wanted: &Wanted<'_>, diags: &mut Diagnostics) -> Vec<(String, Text)> {
        let mut variables = Variables::default();
        for source in wanted.env_from {
            let object = DataRef {
                kind: source.value.kind,
                name: source.value.name.clone(),
            };
            let namespace = wanted.namespace;
            let object = if source.value.optional {
                self.find_data(namespace, object.kind, &object.name)
            } else {
                self.data_object(namespace, &object, &source.place, diags)
            };
            for (key, content) in object.iter().flat_map(|object| &object.data) {
                let name = format!("{}{key}", source.value.prefix);
                // As the kubelet does, keys that are no variable are left out.
                if EnvName::parse(&name).is_ok() {
                    variables.set(name, as_text(content));
                }
            }
            variables.keep_small(&source.place, diags);
        }
        for variable in wanted.env {
            if let Some(value) = self.variable(wanted, &variable.source, &variables, diags) {
                let name = variable.name.to_string();
                let value = veiled(&name, value);
                variables.set(name, value);
            }
            variables.keep_small(&variable.source.place, diags);
        }
        variables.list
    }

    fn variable(
        &self,
        wanted: &Wanted<'_>,
        source: &Spanned<EnvSource>,
        before: &Variables,
        diags: &mut Diagnostics,
    ) -> Option<Text> {
        match &source.value {
            EnvSource::Value(value) => {
                let expanded = expand(value, before);
                if expanded.is_none() {
                    diags.push(too_large(&source.place));
                }
                expanded
            }
            EnvSource::Field(field) => Some(match wanted.pod {
                Some(pod) => as_text(&field_content(pod, field)),
                None => when_started(),
            }),
            EnvSource::WhenStarted => Some(when_started()),
            EnvSource::Key {
                kind,
                name,
                key,
                optional,
            } => {
                let namespace = wanted.namespace;
                let object = DataRef {
                    kind: *kind,
                    name: name.value.clone(),
                };
                if self.hides_data(namespace, &object) {
                    return Some(Text::Later("known at launch".to_owned()));
                }
                let object = if *optional {
                    self.find_data(namespace, *kind, &name.value)
                } else {
                    self.data_object(namespace, &object, &name.place, diags)
                }?;
                let found = object.data.get(&key.value);
                if found.is_none() && !optional {
                    diags.push(missing_key(&key.value, object, key));
                }
                found.map(as_text)
            }
        }
    }
}

/// What an environment may take; Linux gives a program no more either.
const MOST_BYTES: usize = 1 << 20;

fn too_large(place: &Place) -> Diagnostic {
    Diagnostic::error(place, "the environment is too large").allowed("1 MiB altogether")
}

/// Variables in the order in which they were first set.
#[derive(Default)]
struct Variables {
    list: Vec<(String, Text)>,
    index: HashMap<String, usize>,
    bytes: usize,
    /// There were too many bytes, and it was told.
    overflown: bool,
}

impl Variables {
    /// Refuses what has become too large, and forgets it: a few variables that
    /// name each other could fill any memory. The others are still looked at.
    fn keep_small(&mut self, place: &Place, diags: &mut Diagnostics) {
        if self.bytes <= MOST_BYTES {
            return;
        }
        if !self.overflown {
            diags.push(too_large(place));
        }
        *self = Self {
            overflown: true,
            ..Self::default()
        };
    }

    fn get(&self, name: &str) -> Option<&Text> {
        self.index.get(name).map(|index| &self.list[*index].1)
    }

    fn set(&mut self, name: String, value: Text) {
        self.bytes += name.len() + value.known().map_or(0, str::len);
        match self.index.get(&name) {
            Some(index) => self.list[*index].1 = value,
            None => {
                self.index.insert(name.clone(), self.list.len());
                self.list.push((name, value));
            }
        }
    }
}

/// A literal that looks like a password does not show, although it stands in the
/// manifest.
fn veiled(name: &str, value: Text) -> Text {
    match value {
        Text::Public(text) if names_a_secret(name) || has_login(&text) => {
            Text::Secret(Secret::new(text))
        }
        other => other,
    }
}

fn when_started() -> Text {
    Text::Later("known when the container starts".to_owned())
}

fn as_text(content: &Content) -> Text {
    match content {
        Content::Public(bytes) => Text::Public(String::from_utf8_lossy(bytes).into_owned()),
        Content::Secret(secret) => {
            let text = String::from_utf8_lossy(secret.expose()).into_owned();
            Text::Secret(Secret::new(text))
        }
        Content::Later(when) => Text::Later(when.clone()),
    }
}

/// Kubernetes' `$(NAME)`: earlier variables are put in, `$$` is a dollar, and
/// what names no variable stays. What has a secret in it is secret. Nothing if
/// it becomes too large.
fn expand(value: &str, before: &Variables) -> Option<Text> {
    let mut out = String::with_capacity(value.len());
    let mut secret = false;
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let named = rest
            .strip_prefix('(')
            .and_then(|inner| inner.split_once(')'));
        let known = named.and_then(|(name, after)| Some((before.get(name)?, after)));
        match known {
            Some((Text::Later(when), _)) => return Some(Text::Later(when.clone())),
            Some((text, after)) => {
                secret |= matches!(text, Text::Secret(_));
                out.push_str(text.known().unwrap_or_default());
                rest = after;
            }
            None => out.push('$'),
        }
        if out.len() > MOST_BYTES {
            return None;
        }
    }
    out.push_str(rest);
    Some(if secret {
        Text::Secret(Secret::new(out))
    } else {
        Text::Public(out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_expanded_as_kubernetes_does() {
        let mut before = Variables::default();
        before.set("HOST".to_owned(), Text::from("db"));
        before.set("PASS".to_owned(), Text::Secret(Secret::new("s3cret")));
        let public = |text: &str| Some(Text::Public(text.to_owned()));
        assert_eq!(expand("tcp://$(HOST):1", &before), public("tcp://db:1"));
        assert_eq!(
            expand("$$(HOST) $(NOPE) $x $", &before),
            public("$(HOST) $(NOPE) $x $")
        );
        assert!(matches!(
            expand("p=$(PASS)", &before),
            Some(Text::Secret(_))
        ));
    }
}
