//! Reading typed values out of a tree, with every problem reported at its
//! place instead of ending the reading.

use super::{Entry, Node, Value};
use crate::diag::{Diagnostic, Diagnostics, FieldPath, Origin, Place, Pos, is_slip, nearest};
use crate::text::{Data, Text};
use crate::units::{ByteSize, parse_quantity};

/// A value with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub place: Place,
}

impl<T> Spanned<T> {
    /// The same place with another value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Spanned<U> {
        Spanned {
            value: f(self.value),
            place: self.place,
        }
    }
}

/// A node on its way to becoming a typed value.
#[derive(Debug, Clone)]
pub struct View<'n> {
    /// The node.
    pub node: &'n Node,
    /// Where it stands.
    pub place: Place,
}

impl<'n> View<'n> {
    /// The root of a document.
    #[must_use]
    pub fn root(node: &'n Node, file: &Origin) -> Self {
        Self {
            node,
            place: Place {
                file: file.clone(),
                pos: node.pos,
                path: FieldPath::default(),
            },
        }
    }

    fn below(&self, node: &'n Node, pos: Pos, path: FieldPath) -> View<'n> {
        View {
            node,
            place: Place {
                file: self.place.file.clone(),
                pos,
                path,
            },
        }
    }

    /// Reports that the value is of the wrong kind.
    pub fn wrong_kind(&self, wanted: &str, diags: &mut Diagnostics) {
        let mut problem = Diagnostic::error(&self.place, format!("must be {wanted}"))
            .found(self.node.kind())
            .allowed(wanted);
        if wanted == "a text" {
            if let Value::Int(_, text) | Value::Float(_, text) = &self.node.value {
                problem = problem
                    .found(format!("{text}, which YAML reads as a number"))
                    .help(format!("write it in quotes: \"{text}\""));
            } else if let Value::Bool(value) = self.node.value {
                problem = problem
                    .found("a word that YAML reads as a truth value")
                    .help(format!("write it in quotes, such as \"{value}\""));
            }
        }
        diags.push(problem);
    }

    /// The text.
    pub fn text(&self, diags: &mut Diagnostics) -> Option<&'n str> {
        match &self.node.value {
            Value::Str(text) => Some(text),
            _ => {
                self.wrong_kind("a text", diags);
                None
            }
        }
    }

    /// The text with its place.
    pub fn spanned_text(&self, diags: &mut Diagnostics) -> Option<Spanned<String>> {
        let value = self.text(diags)?.to_owned();
        let place = self.place.clone();
        Some(Spanned { value, place })
    }

    /// A text or a number as it was written: Kubernetes takes both for sizes.
    pub fn scalar_text(&self, diags: &mut Diagnostics) -> Option<&'n str> {
        match &self.node.value {
            Value::Str(text) | Value::Int(_, text) | Value::Float(_, text) => Some(text),
            _ => {
                self.wrong_kind("a text or a number", diags);
                None
            }
        }
    }

    /// A size, written as a Kubernetes quantity.
    pub fn size(&self, diags: &mut Diagnostics) -> Option<ByteSize> {
        let text = self.scalar_text(diags)?;
        match parse_quantity(text) {
            Ok(size) => Some(size),
            Err(error) => {
                diags.push(
                    Diagnostic::error(&self.place, format!("not a size: {error}"))
                        .found(format!("{text:?}"))
                        .allowed("a Kubernetes quantity such as 10Gi or 500M"),
                );
                None
            }
        }
    }

    /// The truth value.
    pub fn bool(&self, diags: &mut Diagnostics) -> Option<bool> {
        match self.node.value {
            Value::Bool(value) => Some(value),
            _ => {
                self.wrong_kind("true or false", diags);
                None
            }
        }
    }

    /// The whole number.
    pub fn int(&self, diags: &mut Diagnostics) -> Option<i64> {
        match self.node.value {
            Value::Int(value, _) => Some(value),
            _ => {
                self.wrong_kind("a whole number", diags);
                None
            }
        }
    }

    /// The items of a list.
    pub fn items(&self, diags: &mut Diagnostics) -> Vec<View<'n>> {
        match &self.node.value {
            Value::Seq(items) => items
                .iter()
                .enumerate()
                .map(|(i, item)| self.below(item, item.pos, self.place.path.index(i)))
                .collect(),
            _ => {
                self.wrong_kind("a list", diags);
                Vec::new()
            }
        }
    }

    /// The fields of a mapping.
    pub fn fields(&self, diags: &mut Diagnostics) -> Option<Fields<'n>> {
        match &self.node.value {
            Value::Map(entries) => Some(Fields {
                view: self.clone(),
                entries,
                used: vec![false; entries.len()],
                missed: Vec::new(),
            }),
            _ => {
                self.wrong_kind("a mapping", diags);
                None
            }
        }
    }

    /// The entries of a mapping whose keys are free, such as labels.
    pub fn entries(&self, diags: &mut Diagnostics) -> Vec<(&'n str, View<'n>)> {
        match &self.node.value {
            Value::Map(entries) => entries
                .iter()
                .map(|entry| (&*entry.key, self.entry_view(entry)))
                .collect(),
            _ => {
                self.wrong_kind("a mapping", diags);
                Vec::new()
            }
        }
    }

    fn entry_view(&self, entry: &'n Entry) -> View<'n> {
        // A value on the key's line is pointed at; a block below it would
        // point one line too far, so there the key is.
        let pos = if entry.node.pos.line == entry.key_pos.line {
            entry.node.pos
        } else {
            entry.key_pos
        };
        self.below(&entry.node, pos, self.place.path.key(&entry.key))
    }

    /// The tree as plain data; all text in it is public.
    #[must_use]
    pub fn data(&self) -> Data {
        to_data(self.node)
    }

    /// The same, unless it has numbers that no JSON can say: they would be lost
    /// where it is handed on.
    pub fn finite_data(&self, diags: &mut Diagnostics) -> Option<Data> {
        let errors_before = diags.errors();
        self.refuse_infinite(diags);
        (diags.errors() == errors_before).then(|| self.data())
    }

    fn refuse_infinite(&self, diags: &mut Diagnostics) {
        match &self.node.value {
            Value::Float(number, text) if !number.is_finite() => diags.push(
                Diagnostic::error(&self.place, "not a number that can be handed on")
                    .found(text)
                    .allowed("finite numbers")
                    .help(format!("write it in quotes if a text is meant: \"{text}\"")),
            ),
            Value::Seq(_) => {
                let items = self.items(diags);
                items.iter().for_each(|item| item.refuse_infinite(diags));
            }
            Value::Map(_) => {
                let entries = self.entries(diags);
                let values = entries.iter().map(|(_, value)| value);
                values.for_each(|value| value.refuse_infinite(diags));
            }
            _ => {}
        }
    }
}

fn to_data(node: &Node) -> Data {
    match &node.value {
        Value::Null => Data::Null,
        Value::Bool(value) => Data::Bool(*value),
        Value::Int(value, _) => Data::Int(*value),
        Value::Float(value, _) => Data::Float(*value),
        Value::Str(text) => Data::Text(Text::Public(text.to_string())),
        Value::Seq(items) => Data::List(items.iter().map(to_data).collect()),
        Value::Map(entries) => Data::Map(
            entries
                .iter()
                .map(|entry| (entry.key.to_string(), to_data(&entry.node)))
                .collect(),
        ),
    }
}

/// The fields of a mapping, and which of them were read.
#[derive(Debug)]
pub struct Fields<'n> {
    view: View<'n>,
    entries: &'n [Entry],
    used: Vec<bool>,
    /// What was looked for and is not there.
    missed: Vec<Box<str>>,
}

impl<'n> Fields<'n> {
    /// Where the mapping stands.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.view.place
    }

    /// The field, unless it is absent or null.
    pub fn get(&mut self, key: &str) -> Option<View<'n>> {
        #[cfg(test)]
        asked::note(&self.view.place, key);
        let Some(index) = self.entries.iter().position(|entry| &*entry.key == key) else {
            self.missed.push(key.into());
            return None;
        };
        self.used[index] = true;
        let entry = &self.entries[index];
        (entry.node.value != Value::Null).then(|| self.view.entry_view(entry))
    }

    /// The field, reported as missing if it is.
    pub fn required(&mut self, key: &str, diags: &mut Diagnostics) -> Option<View<'n>> {
        let found = self.get(key);
        if found.is_none() {
            let mut place = self.view.place.clone();
            place.path = place.path.key(key);
            let mut problem = Diagnostic::error(&place, "is required but missing");
            let unread = self.unread();
            if let Some(near) = nearest(key, unread.iter().map(|(key, _)| *key)) {
                problem = problem.help(format!("is {near:?} a slip for it?"));
            }
            self.missed.retain(|missed| &**missed != key);
            diags.push(problem);
        }
        found
    }

    /// An optional text.
    pub fn text(&mut self, key: &str, diags: &mut Diagnostics) -> Option<&'n str> {
        self.get(key)?.text(diags)
    }

    /// An optional text with its place.
    pub fn spanned_text(&mut self, key: &str, diags: &mut Diagnostics) -> Option<Spanned<String>> {
        self.get(key)?.spanned_text(diags)
    }

    /// A text that must be there.
    pub fn required_text(&mut self, key: &str, diags: &mut Diagnostics) -> Option<Spanned<String>> {
        self.required(key, diags)?.spanned_text(diags)
    }

    /// A truth value, false if absent.
    pub fn flag(&mut self, key: &str, diags: &mut Diagnostics) -> bool {
        self.get(key)
            .and_then(|view| view.bool(diags))
            .unwrap_or(false)
    }

    /// The items of a list, none if absent.
    pub fn items(&mut self, key: &str, diags: &mut Diagnostics) -> Vec<View<'n>> {
        self.get(key)
            .map(|view| view.items(diags))
            .unwrap_or_default()
    }

    /// The entries of a mapping with free keys, none if absent.
    pub fn entries(&mut self, key: &str, diags: &mut Diagnostics) -> Vec<(&'n str, View<'n>)> {
        self.get(key)
            .map(|view| view.entries(diags))
            .unwrap_or_default()
    }

    /// The fields of a mapping.
    pub fn fields(&mut self, key: &str, diags: &mut Diagnostics) -> Option<Fields<'n>> {
        self.get(key)?.fields(diags)
    }

    /// Fields that nobody has read, for mappings whose keys are a closed set
    /// of alternatives (such as the sources of a volume).
    #[must_use]
    pub fn unread(&self) -> Vec<(&'n str, View<'n>)> {
        self.entries
            .iter()
            .zip(&self.used)
            .filter(|(_, used)| !**used)
            .map(|(entry, _)| (&*entry.key, self.view.entry_view(entry)))
            .collect()
    }

    /// Ends a tolerant reading: fields that nobody reads are no concern of
    /// ours, unless one is nearly what was looked for.
    pub fn tell_slips(&self, diags: &mut Diagnostics) {
        let entries = || self.entries.iter().zip(&self.used);
        for (entry, _) in entries().filter(|(_, used)| !**used) {
            let is_meant = |key: &&str| is_slip(&entry.key, key);
            let mut read = entries()
                .filter(|(_, used)| **used)
                .map(|(entry, _)| &*entry.key);
            let mut missed = self.missed.iter().map(|key| &**key);
            let help = match (missed.find(is_meant), read.find(is_meant)) {
                (Some(meant), _) => format!("did you mean {meant:?}?"),
                (None, Some(meant)) => {
                    format!("did you mean {meant:?}? it is there as well; keep one of the two")
                }
                (None, None) => continue,
            };
            let place = self.view.entry_view(entry).place;
            let message = format!("unknown field {:?} has no effect", entry.key);
            diags.push(Diagnostic::notice(&place, message).help(help));
        }
    }

    /// Ends a strict reading: whatever was not read is unknown.
    pub fn no_others(&self, known: &[&str], diags: &mut Diagnostics) {
        for (key, view) in self.unread() {
            diags.push(
                Diagnostic::error(&view.place, format!("unknown field {key:?}"))
                    .allowed(known.join(", "))
                    .did_you_mean(key, known.iter().copied()),
            );
        }
    }
}

/// Which fields a reader looks for, so that tests can compare them with what is
/// written about them elsewhere.
#[cfg(test)]
pub(crate) mod asked {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use crate::diag::Place;

    thread_local! {
        static ASKED: RefCell<BTreeSet<(String, String)>> = RefCell::default();
    }

    pub(super) fn note(at: &Place, key: &str) {
        let entry = (at.path.to_string(), key.to_owned());
        ASKED.with_borrow_mut(|asked| asked.insert(entry));
    }

    /// What was looked for in the mapping at a path since it was asked last.
    pub(crate) fn take(at: &str) -> BTreeSet<String> {
        let asked = ASKED.take();
        let here = asked.into_iter().filter(|(path, _)| path == at);
        here.map(|(_, key)| key).collect()
    }
}
