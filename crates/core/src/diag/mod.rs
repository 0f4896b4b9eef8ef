//! What is wrong with the input, told so that its author can mend it: where it
//! stands, what was found, what is allowed, and what was probably meant.
//!
//! Problems are collected, never thrown: one run reports all of them.

mod collect;
mod place;
mod words;

use std::fmt;

pub use disklet_flexvolume::is_unprintable;
use serde::Serialize;

pub use collect::Diagnostics;
pub use place::{FieldPath, Origin, Place, Pos};
use words::{LONGEST_LIST, LONGEST_SENTENCE, within};
pub(crate) use words::{is_private_key, is_slip, shown};
pub use words::{nearest, shortened};

/// How grave a diagnostic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The input is refused.
    Error,
    /// The input is accepted; its author may want to know something.
    Notice,
    /// The same, about an object that plays no part in any plan.
    #[serde(rename = "notice")]
    Aside,
}

/// What can be done by another flag or another file on the command line. Which,
/// the command knows: not all have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// To plan for another node than this machine, or without looking at any.
    OtherNode,
    /// To give the file as facts of a node.
    AsFacts,
    /// To give the file as a manifest.
    AsManifest,
}

/// One thing to tell the author of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How grave.
    pub severity: Severity,
    /// Where; absent if it concerns no particular place.
    pub place: Option<Place>,
    /// What is wrong, in one sentence without a full stop. It never holds a
    /// secret's value.
    pub message: String,
    /// What was found there.
    pub found: Option<String>,
    /// What is allowed there.
    pub allowed: Option<String>,
    /// What was probably meant, or what to do.
    pub help: Option<String>,
    /// What the command may have a flag for.
    pub remedy: Option<Remedy>,
}

impl Diagnostic {
    /// A refusal at a place.
    pub fn error(place: &Place, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            place: Some(place.clone()),
            message: within(&message.into(), LONGEST_SENTENCE),
            found: None,
            allowed: None,
            help: None,
            remedy: None,
        }
    }

    /// Something to know about a place.
    pub fn notice(place: &Place, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Notice,
            ..Self::error(place, message)
        }
    }

    /// Something to know about an object that plays no part.
    pub fn aside(place: &Place, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Aside,
            ..Self::error(place, message)
        }
    }

    /// Adds what was found.
    #[must_use]
    pub fn found(mut self, found: impl fmt::Display) -> Self {
        self.found = Some(shortened(&found.to_string()));
        self
    }

    /// Adds what is allowed.
    #[must_use]
    pub fn allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = Some(within(&allowed.into(), LONGEST_LIST));
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(within(&help.into(), LONGEST_SENTENCE));
        self
    }

    /// Adds what the command may have a flag for.
    #[must_use]
    pub fn remedy(mut self, remedy: Remedy) -> Self {
        self.remedy = Some(remedy);
        self
    }

    /// Puts the remedy into the words of a command; without any, it has no flag
    /// for it.
    #[must_use]
    pub fn in_words_of(mut self, command: impl FnOnce(Remedy) -> Option<&'static str>) -> Self {
        if let Some(words) = self.remedy.take().and_then(command) {
            self.help = Some(match self.help {
                Some(help) => format!("{help}; {words}"),
                None => words.to_owned(),
            });
        }
        self
    }

    /// Adds "did you mean" if one of `known` is near what was written.
    #[must_use]
    pub fn did_you_mean<'k>(
        mut self,
        written: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Self {
        if let Some(near) = nearest(written, known) {
            self.help = Some(format!("did you mean {near:?}?"));
        }
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            place.leads(f)?;
        }
        f.write_str(&self.message)?;
        for (label, text) in [
            ("found", &self.found),
            ("allowed", &self.allowed),
            ("help", &self.help),
        ] {
            if let Some(text) = text {
                write!(f, "\n  {label}: {text}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Flat<'d> {
            severity: Severity,
            #[serde(skip_serializing_if = "Option::is_none")]
            file: Option<&'d str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<u32>,
            #[serde(skip_serializing_if = "Option::is_none")]
            column: Option<u32>,
            #[serde(skip_serializing_if = "Option::is_none")]
            field: Option<String>,
            message: &'d str,
            #[serde(skip_serializing_if = "Option::is_none")]
            found: Option<&'d str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            allowed: Option<&'d str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            help: Option<&'d str>,
        }
        let place = self.place.as_ref();
        Flat {
            severity: self.severity,
            file: place
                .map(|place| &*place.file)
                .filter(|file| !file.is_empty()),
            line: place.and_then(Place::line),
            column: place.and_then(Place::column),
            field: place.map(|place| place.path.to_string()),
            message: &self.message,
            found: self.found.as_deref(),
            allowed: self.allowed.as_deref(),
            help: self.help.as_deref(),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn place() -> Place {
        Place {
            file: "pod.yaml".into(),
            pos: Pos { line: 3, column: 7 },
            path: FieldPath::default()
                .key("metadata")
                .key("annotations")
                .key("kubernetes.io/x"),
        }
    }

    #[test]
    fn a_diagnostic_names_place_field_and_remedy() {
        let text = Diagnostic::error(&place(), "not a disk driver")
            .found("\"viritio\"")
            .allowed("scsi, virtio")
            .did_you_mean("viritio", ["scsi", "virtio"])
            .to_string();
        assert_eq!(
            text,
            "pod.yaml:3:7: metadata.annotations[kubernetes.io/x]: not a disk driver\n  \
             found: \"viritio\"\n  allowed: scsi, virtio\n  help: did you mean \"virtio\"?"
        );
    }

    #[test]
    fn what_was_found_is_shortened_and_cannot_write_to_the_terminal() {
        let d = Diagnostic::error(&place(), "x").found(format!("\u{1b}[2J{}", "y".repeat(500)));
        let found = d.found.unwrap();
        assert!(found.starts_with("\\u{1b}[2J") && found.ends_with('…'));
        assert!(found.chars().count() < 140);
    }

    #[test]
    fn a_private_key_never_shows() {
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----";
        let told = Diagnostic::error(&place(), "x").found(format!("{key:?}"));
        assert_eq!(told.found.as_deref(), Some("a private key"));
    }

    #[test]
    fn a_remedy_is_told_by_commands_that_have_it() {
        let told = || {
            Diagnostic::error(&place(), "x")
                .help("correct it")
                .remedy(Remedy::OtherNode)
        };
        let with_flag = told().in_words_of(|_| Some("use --that"));
        assert_eq!(with_flag.help.as_deref(), Some("correct it; use --that"));
        let without = told().in_words_of(|_| None);
        assert_eq!(without.help.as_deref(), Some("correct it"));
        let alone = Diagnostic::error(&place(), "x").remedy(Remedy::AsFacts);
        let alone = alone.in_words_of(|_| Some("use --that"));
        assert_eq!(alone.help.as_deref(), Some("use --that"));
    }
}
