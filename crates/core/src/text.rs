//! Text that may be secret, and data made of such text.
//!
//! Whatever comes out of a Secret, a key or a token is wrapped here on entry
//! and stays wrapped until it is rendered. Rendering asks for a [`Reveal`]:
//! there is no way to print a value without saying whether secrets may show.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

/// Whether secret values may show in what is being rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reveal {
    /// Secrets appear as [`REDACTED`].
    Redact,
    /// Secrets appear as they are: for the executor, and for `--show-secrets`.
    Show,
}

/// What stands in place of a secret.
pub const REDACTED: &str = "<redacted>";

/// A secret value. It has no `Display`, and its `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Wraps secret bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// The value itself. Callers render it under [`Reveal::Show`] only, or
    /// hand it to the component that needs it.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

/// The bytes of a file or a value, and how far they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Known, and anybody may see it.
    Public(Vec<u8>),
    /// Known, and only shown on request.
    Secret(Secret),
    /// Not known when planning; the words say when it will be, such as
    /// `issued when the pod starts`.
    Later(String),
}

impl Content {
    /// Public text.
    pub fn public(text: impl Into<String>) -> Self {
        Self::Public(text.into().into_bytes())
    }

    /// The bytes if known, secret or not.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Public(bytes) => Some(bytes),
            Self::Secret(secret) => Some(secret.expose()),
            Self::Later(_) => None,
        }
    }

    /// Whether the value must not show.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Secret(_))
    }

    /// The same kind of content with other bytes: what is derived from a
    /// secret is secret.
    #[must_use]
    pub fn map(&self, f: impl FnOnce(&[u8]) -> Vec<u8>) -> Self {
        match self {
            Self::Public(bytes) => Self::Public(f(bytes)),
            Self::Secret(secret) => Self::Secret(Secret(f(secret.expose()))),
            Self::Later(when) => Self::Later(when.clone()),
        }
    }

    /// As text in a document: base64 of the bytes.
    #[must_use]
    pub fn to_base64(&self) -> Text {
        match self {
            Self::Public(bytes) => Text::Public(BASE64.encode(bytes)),
            Self::Secret(secret) => Text::Secret(Secret::new(BASE64.encode(secret.expose()))),
            Self::Later(when) => Text::Later(when.clone()),
        }
    }
}

/// A string in a document, and how far it is known. The secret variant holds
/// UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// Known, and anybody may see it.
    Public(String),
    /// Known, and only shown on request.
    Secret(Secret),
    /// Not known when planning; see [`Content::Later`].
    Later(String),
}

impl Text {
    /// What to write for it.
    #[must_use]
    pub fn render(&self, reveal: Reveal) -> String {
        match (self, reveal) {
            (Self::Public(text), _) => text.clone(),
            (Self::Secret(_), Reveal::Redact) => REDACTED.to_owned(),
            (Self::Secret(secret), Reveal::Show) => {
                String::from_utf8_lossy(secret.expose()).into_owned()
            }
            (Self::Later(when), _) => format!("<{when}>"),
        }
    }

    /// The text if known, secret or not.
    #[must_use]
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Public(text) => Some(text),
            Self::Secret(secret) => std::str::from_utf8(secret.expose()).ok(),
            Self::Later(_) => None,
        }
    }

    /// The same kind of text with other words.
    #[must_use]
    pub fn map(&self, f: impl FnOnce(&str) -> String) -> Self {
        match self {
            Self::Public(text) => Self::Public(f(text)),
            Self::Secret(secret) => {
                Self::Secret(Secret::new(f(&String::from_utf8_lossy(secret.expose()))))
            }
            Self::Later(when) => Self::Later(when.clone()),
        }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Public(text.to_owned())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Public(text)
    }
}

/// A document of YAML or JSON, in the order it was written.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// A string.
    Text(Text),
    /// A list.
    List(Vec<Data>),
    /// A mapping; keys are unique.
    Map(Vec<(String, Data)>),
    /// Something that must not show as a whole: a number, or a mapping whose
    /// very keys came out of a Secret.
    Hidden(Veiled),
}

/// Data behind a veil. Its `Debug` shows nothing.
#[derive(Clone, PartialEq)]
pub struct Veiled(Box<Data>);

impl Veiled {
    /// What is behind it; see [`Secret::expose`].
    #[must_use]
    pub fn expose(&self) -> &Data {
        &self.0
    }

    /// What is behind it, to be changed there.
    pub fn expose_mut(&mut self) -> &mut Data {
        &mut self.0
    }
}

impl fmt::Debug for Veiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl Data {
    /// An empty mapping.
    #[must_use]
    pub fn map() -> Self {
        Self::Map(Vec::new())
    }

    /// Public text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text::Public(text.into()))
    }

    /// A list of public strings.
    pub fn texts<S: Into<String>>(items: impl IntoIterator<Item = S>) -> Self {
        Self::List(items.into_iter().map(Self::text).collect())
    }

    /// A mapping from pairs.
    pub fn pairs<'k>(pairs: impl IntoIterator<Item = (&'k str, Data)>) -> Self {
        Self::Map(
            pairs
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        )
    }

    /// The value under `key`, if this is a mapping that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Data> {
        match self {
            Self::Map(entries) => entries.iter().find(|(k, _)| k == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// Whether all numbers in it are.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        match self {
            Self::Float(number) => number.is_finite(),
            Self::List(items) => items.iter().all(Self::is_finite),
            Self::Map(entries) => entries.iter().all(|(_, value)| value.is_finite()),
            Self::Hidden(veiled) => veiled.expose().is_finite(),
            Self::Null | Self::Bool(_) | Self::Int(_) | Self::Text(_) => true,
        }
    }

    /// The same with everything in it secret.
    #[must_use]
    pub fn hidden(self) -> Self {
        match self {
            // A truth value gives nothing away that its key does not.
            Self::Null | Self::Bool(_) | Self::Hidden(_) => self,
            Self::Text(Text::Public(text)) => Self::Text(Text::Secret(Secret::new(text))),
            Self::Text(text) => Self::Text(text),
            Self::List(items) => Self::List(items.into_iter().map(Self::hidden).collect()),
            whole @ (Self::Int(_) | Self::Float(_) | Self::Map(_)) => {
                Self::Hidden(Veiled(Box::new(whole)))
            }
        }
    }

    /// The entries, if this is a mapping, hidden or not.
    pub fn entries_mut(&mut self) -> Option<&mut Vec<(String, Data)>> {
        match self {
            Self::Map(entries) => Some(entries),
            Self::Hidden(veiled) => veiled.expose_mut().entries_mut(),
            _ => None,
        }
    }

    /// Renders for a serializer under `reveal`.
    #[must_use]
    pub fn under(&self, reveal: Reveal) -> Revealed<'_> {
        Revealed { data: self, reveal }
    }
}

/// [`Data`] with the decision whether secrets show; what serializers take.
#[derive(Debug, Clone, Copy)]
pub struct Revealed<'d> {
    data: &'d Data,
    reveal: Reveal,
}

impl Serialize for Revealed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.data {
            Data::Null => serializer.serialize_unit(),
            Data::Bool(value) => serializer.serialize_bool(*value),
            Data::Int(value) => serializer.serialize_i64(*value),
            Data::Float(value) => serializer.serialize_f64(*value),
            Data::Text(text) => serializer.serialize_str(&text.render(self.reveal)),
            Data::Hidden(veiled) => match self.reveal {
                Reveal::Redact => serializer.serialize_str(REDACTED),
                Reveal::Show => veiled.expose().under(Reveal::Show).serialize(serializer),
            },
            Data::List(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(&item.under(self.reveal))?;
                }
                seq.end()
            }
            Data::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, &value.under(self.reveal))?;
                }
                map.end()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Data {
        Data::pairs([
            ("open", Data::text("yes")),
            ("key", Data::Text(Text::Secret(Secret::new("hunter2")))),
            (
                "token",
                Data::Text(Text::Later("issued at start".to_owned())),
            ),
        ])
    }

    #[test]
    fn secrets_show_only_on_request() {
        let data = sample();
        let redacted = serde_json::to_string(&data.under(Reveal::Redact)).unwrap();
        assert_eq!(
            redacted,
            r#"{"open":"yes","key":"<redacted>","token":"<issued at start>"}"#
        );
        let shown = serde_json::to_string(&data.under(Reveal::Show)).unwrap();
        assert!(shown.contains("hunter2"));
    }

    #[test]
    fn debug_output_hides_secrets() {
        assert!(!format!("{:?}", sample()).contains("hunter2"));
    }

    #[test]
    fn what_is_hidden_keeps_its_kind() {
        let user = Data::pairs([("uid", Data::Int(1500)), ("sudo", Data::Bool(true))]);
        let data = Data::List(vec![user, Data::Int(7)]).hidden();
        let json = |reveal| serde_json::to_string(&data.under(reveal)).unwrap();
        assert_eq!(json(Reveal::Show), r#"[{"uid":1500,"sudo":true},7]"#);
        assert_eq!(json(Reveal::Redact), r#"["<redacted>","<redacted>"]"#);
        assert!(!format!("{data:?}").contains("1500"));
    }

    #[test]
    fn what_is_derived_from_a_secret_is_secret() {
        let secret = Content::Secret(Secret::new("hunter2"));
        assert!(matches!(secret.to_base64(), Text::Secret(_)));
        assert!(secret.map(<[u8]>::to_vec).is_secret());
    }
}
