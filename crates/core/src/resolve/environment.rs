//! The container's environment variables, for the guest.

use super::Resolver;
use super::files::field_content;
use super::user_data::missing_key;
use crate::diag::Diagnostics;
use crate::manifest::{DataRef, EnvSource, VmPod};
use crate::names::EnvName;
use crate::text::{Content, Secret, Text};
use crate::yaml::Spanned;

impl Resolver<'_> {
    /// Variables of whole objects first, then single ones, which win.
    pub(super) fn environment(&self, pod: &VmPod, diags: &mut Diagnostics) -> Vec<(String, Text)> {
        let mut variables: Vec<(String, Text)> = Vec::new();
        for source in &pod.container.env_from {
            let wanted = DataRef {
                kind: source.value.kind,
                name: source.value.name.clone(),
            };
            let namespace = &pod.meta.namespace;
            let object = if source.value.optional {
                self.find_data(namespace, wanted.kind, &wanted.name)
            } else {
                self.data_object(namespace, &wanted, &source.place, diags)
            };
            for (key, content) in object.iter().flat_map(|object| &object.data) {
                let name = format!("{}{key}", source.value.prefix);
                // As the kubelet does, keys that are no variable are left out.
                if EnvName::parse(&name).is_ok() {
                    set(&mut variables, name, as_text(content));
                }
            }
        }
        for variable in &pod.container.env {
            if let Some(value) = self.variable(pod, &variable.source, &variables, diags) {
                set(&mut variables, variable.name.to_string(), value);
            }
        }
        variables
    }

    fn variable(
        &self,
        pod: &VmPod,
        source: &Spanned<EnvSource>,
        before: &[(String, Text)],
        diags: &mut Diagnostics,
    ) -> Option<Text> {
        match &source.value {
            EnvSource::Value(value) => Some(expand(value, before)),
            EnvSource::Field(field) => Some(as_text(&field_content(pod, field))),
            EnvSource::Key {
                kind,
                name,
                key,
                optional,
            } => {
                let namespace = &pod.meta.namespace;
                let wanted = DataRef {
                    kind: *kind,
                    name: name.clone(),
                };
                let object = if *optional {
                    self.find_data(namespace, *kind, name)
                } else {
                    self.data_object(namespace, &wanted, &source.place, diags)
                }?;
                let found = object.data.get(key);
                if found.is_none() && !optional {
                    diags.push(missing_key(key, object, source));
                }
                found.map(as_text)
            }
        }
    }
}

fn set(variables: &mut Vec<(String, Text)>, name: String, value: Text) {
    match variables.iter_mut().find(|(other, _)| *other == name) {
        Some((_, old)) => *old = value,
        None => variables.push((name, value)),
    }
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
/// what names no variable stays. What has a secret in it is secret.
fn expand(value: &str, before: &[(String, Text)]) -> Text {
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
        let known = named.and_then(|(name, after)| {
            let (_, text) = before.iter().find(|(other, _)| other == name)?;
            Some((text, after))
        });
        match known {
            Some((Text::Later(when), _)) => return Text::Later(when.clone()),
            Some((text, after)) => {
                secret |= matches!(text, Text::Secret(_));
                out.push_str(text.known().unwrap_or_default());
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    if secret {
        Text::Secret(Secret::new(out))
    } else {
        Text::Public(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_expanded_as_kubernetes_does() {
        let before = [
            ("HOST".to_owned(), Text::from("db")),
            ("PASS".to_owned(), Text::Secret(Secret::new("s3cret"))),
        ];
        let public = |text: &str| Text::Public(text.to_owned());
        assert_eq!(expand("tcp://$(HOST):1", &before), public("tcp://db:1"));
        assert_eq!(
            expand("$$(HOST) $(NOPE) $x $", &before),
            public("$(HOST) $(NOPE) $x $")
        );
        assert!(matches!(expand("p=$(PASS)", &before), Text::Secret(_)));
    }
}
