//! Reading a mapping. It is an administrator's, so every field is checked.

use std::collections::BTreeMap;

use regex_lite::Regex;

use super::transport::NodeFiles;
use super::{ImageMapping, Pattern, Rule, Transport, parse_url};
use crate::diag::{Diagnostic, Diagnostics};
use crate::manifest::Input;
use crate::names::Sha256;
use crate::yaml::{self, Fields, Limits, Spanned, View};

/// The kind of objects that are mappings.
pub const KIND: &str = "VirtletImageMapping";
const FIELDS: [&str; 3] = ["prefix", "translations", "transports"];

impl ImageMapping {
    /// Reads a file of the mapping: objects of kind `VirtletImageMapping`, or
    /// what such an object has as its `spec`.
    pub fn read(&mut self, input: &Input, diags: &mut Diagnostics) {
        self.read_with(input, NodeFiles::Allowed, diags);
    }

    /// Reads a mapping object of a cluster. Who may write those need not have a
    /// right to the files of nodes.
    pub fn read_object(&mut self, input: &Input, diags: &mut Diagnostics) {
        self.read_with(input, NodeFiles::Refused, diags);
    }

    fn read_with(&mut self, input: &Input, files: NodeFiles, diags: &mut Diagnostics) {
        diags.begin_file(&input.name);
        for document in yaml::documents(&input.text, Limits::default()) {
            match document {
                Ok(root) => self.take_document(&View::root(&root, &input.name), files, diags),
                Err(errors) => {
                    for error in errors {
                        diags.push(error.in_file(&input.name));
                    }
                }
            }
        }
    }

    fn take_document(&mut self, view: &View<'_>, files: NodeFiles, diags: &mut Diagnostics) {
        let Some(mut fields) = view.fields(diags) else {
            return;
        };
        let Some(kind) = fields.get("kind") else {
            self.take(fields, files, diags);
            return;
        };
        let found = kind.text(diags).unwrap_or_default();
        if found != KIND {
            diags.push(
                Diagnostic::error(&kind.place, "not a mapping of images")
                    .found(format!("{found:?}"))
                    .allowed(KIND)
                    .did_you_mean(found, [KIND]),
            );
            return;
        }
        fields.get("apiVersion");
        fields.get("metadata");
        // A cluster's objects have one, which is not their author's.
        fields.get("status");
        let spec = fields.required("spec", diags);
        fields.no_others(&["apiVersion", "kind", "metadata", "spec", "status"], diags);
        if let Some(fields) = spec.and_then(|spec| spec.fields(diags)) {
            self.take(fields, files, diags);
        }
    }

    fn take(&mut self, mut fields: Fields<'_>, files: NodeFiles, diags: &mut Diagnostics) {
        let prefix = match fields.text("prefix", diags).unwrap_or("") {
            "" => String::new(),
            prefix => format!("{}/", prefix.trim_end_matches('/')),
        };
        let mut transports = BTreeMap::new();
        for (name, view) in fields.entries("transports", diags) {
            // One that is wrong is there all the same: no rule is blamed for it.
            let transport = Transport::read(&view, files, diags).unwrap_or_default();
            transports.insert(name.to_owned(), transport);
        }
        fields.required("translations", diags);
        for item in fields.items("translations", diags) {
            self.take_rule(&item, &prefix, &transports, diags);
        }
        fields.no_others(&FIELDS, diags);
    }

    fn take_rule(
        &mut self,
        view: &View<'_>,
        prefix: &str,
        transports: &BTreeMap<String, Transport>,
        diags: &mut Diagnostics,
    ) {
        let Some(mut fields) = view.fields(diags) else {
            return;
        };
        let name = fields.spanned_text("name", diags);
        let regexp = fields.spanned_text("regexp", diags);
        let rule = read_rule(&mut fields, regexp.is_some(), transports, diags);
        fields.no_others(&["name", "regexp", "url", "digest", "transport"], diags);
        match (name, regexp) {
            (Some(name), None) => {
                let Some(rule) = rule else { return };
                self.take_name(name.map(|name| format!("{prefix}{name}")), rule, diags);
            }
            (None, Some(regexp)) => match (Regex::new(&regexp.value), rule) {
                (Ok(regexp), Some(rule)) => self.patterns.push(Pattern {
                    prefix: prefix.to_owned(),
                    regexp,
                    rule,
                }),
                (Ok(_), None) => {}
                (Err(error), _) => diags.push(
                    Diagnostic::error(&regexp.place, format!("not a regular expression: {error}"))
                        .found(format!("{:?}", regexp.value)),
                ),
            },
            _ => diags.push(Diagnostic::error(
                &view.place,
                "must have a name or a regexp, and not both",
            )),
        }
    }

    fn take_name(&mut self, name: Spanned<String>, rule: Rule, diags: &mut Diagnostics) {
        let before = self.names.get(&name.value).map(|rule| rule.place.clone());
        match before {
            Some(before) => diags.push(
                Diagnostic::error(&name.place, "this name is mapped twice")
                    .found(format!("{:?}", name.value))
                    .help(format!("it is mapped at {before} already")),
            ),
            None => {
                self.names.insert(name.value, rule);
            }
        }
    }
}

fn read_rule(
    fields: &mut Fields<'_>,
    is_pattern: bool,
    transports: &BTreeMap<String, Transport>,
    diags: &mut Diagnostics,
) -> Option<Rule> {
    let url = fields.required_text("url", diags);
    let digest = fields
        .spanned_text("digest", diags)
        .map(|digest| read_digest(&digest, diags));
    let named = fields.spanned_text("transport", diags);
    let transport = match &named {
        Some(named) => transports.get(&named.value).cloned(),
        None => Some(transports.get("").cloned().unwrap_or_default()),
    };
    if let (Some(named), None) = (&named, &transport) {
        let known = transports.keys().map(String::as_str);
        diags.push(
            Diagnostic::error(&named.place, "there is no such transport in this mapping")
                .found(format!("{:?}", named.value))
                .did_you_mean(&named.value, known),
        );
    }
    let url = url?;
    // What a pattern puts in cannot be known yet.
    let tried = match is_pattern {
        true => filled(&url.value),
        false => url.value.clone(),
    };
    if let Err(why) = parse_url(&tried) {
        // What is there may hold a password.
        diags.push(Diagnostic::error(&url.place, format!("the address {why}")));
        return None;
    }
    Some(Rule {
        place: url.place,
        url: url.value,
        digest: match digest {
            Some(digest) => Some(digest?),
            None => None,
        },
        transport: transport?,
    })
}

fn read_digest(digest: &Spanned<String>, diags: &mut Diagnostics) -> Option<Sha256> {
    let hex = digest.value.strip_prefix("sha256:");
    let read = hex.and_then(Sha256::parse_hex);
    if read.is_none() {
        diags.push(
            Diagnostic::error(&digest.place, "not a digest")
                .found(format!("{:?}", digest.value))
                .allowed("sha256: and 64 lower-case hexadecimal digits"),
        );
    }
    read
}

/// An address with a digit where a pattern puts something in.
fn filled(template: &str) -> String {
    let inserted = Regex::new(r"\$(\w+|\{\w+\})");
    inserted.map_or_else(
        |_| template.to_owned(),
        |inserted| inserted.replace_all(template, "0").into_owned(),
    )
}
