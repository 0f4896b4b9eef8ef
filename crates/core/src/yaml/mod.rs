//! YAML read into a tree that knows where each value stands.
//!
//! ```text
//!   text --parse--> Node (value + position) --View/Fields--> typed structs
//! ```
//!
//! Scalars are resolved as Kubernetes' own reader does (YAML 1.1: `yes` is a
//! truth value and `0640` an octal number), so that a manifest means the same
//! here as on the API server. User data is for a guest, whose reader differs in
//! a few words: see [`Reader`].

mod fields;
mod guest;
mod parse;
mod scalar;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use fields::asked;
pub use fields::{Fields, Spanned, View};
pub use parse::{Limits, ParseError, documents, documents_for};

use crate::diag::Pos;

/// By whose rules plain scalars get their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// kubectl and the API server: YAML 1.1 with Go's number syntax.
    Kubernetes,
    /// cloud-init in a guest: YAML 1.1 by PyYAML.
    Guest,
}

impl Reader {
    fn resolve(self, text: &str) -> Value {
        match self {
            Self::Kubernetes => scalar::resolve(text),
            Self::Guest => guest::resolve(text),
        }
    }
}

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub value: Value,
    /// Where it begins.
    pub pos: Pos,
}

/// A YAML value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// A truth value.
    Bool(bool),
    /// A whole number, with the text it was written as.
    Int(i64, Box<str>),
    /// Any other number, with the text it was written as.
    Float(f64, Box<str>),
    /// Text.
    Str(Box<str>),
    /// A list.
    Seq(Vec<Node>),
    /// A mapping, in order; keys are unique.
    Map(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key as written.
    pub key: Box<str>,
    /// Where the key begins.
    pub key_pos: Pos,
    /// Its value.
    pub node: Node,
}

impl Node {
    /// What kind of value it is, in a reader's words.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a truth value",
            Value::Int(..) | Value::Float(..) => "a number",
            Value::Str(_) => "a text",
            Value::Seq(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The value under `key`, if this is a mapping that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|entry| &*entry.key == key)
                .map(|entry| &entry.node),
            _ => None,
        }
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::Str(text) => Some(text),
            _ => None,
        }
    }
}
