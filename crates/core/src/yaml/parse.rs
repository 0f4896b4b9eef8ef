//! From text to trees, one document at a time, within limits.
//!
//! Anchors and aliases work as kubectl's reader has them, but an alias counts
//! as all the nodes it stands for: a small file cannot become a huge tree.

use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput, Tag};

use super::{Entry, Node, Reader, Value};
use crate::diag::{Diagnostic, FieldPath, Origin, Place, Pos};

/// What a document may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Nesting; deeper than any Kubernetes object.
    pub depth: usize,
    /// Nodes of one document, aliases expanded.
    pub nodes: usize,
    /// Bytes of text in one document, aliases expanded.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 100,
            nodes: 1_000_000,
            bytes: 64 << 20,
        }
    }
}

/// Something wrong with the text as YAML.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Where.
    pub pos: Pos,
    /// What, in one sentence.
    pub message: String,
    /// What to do about it.
    pub help: Option<&'static str>,
}

impl ParseError {
    /// To be told as a problem of a file.
    #[must_use]
    pub fn in_file(self, file: &Origin) -> Diagnostic {
        let place = Place {
            file: file.clone(),
            pos: self.pos,
            path: FieldPath::default(),
        };
        let problem = Diagnostic::error(&place, self.message);
        match self.help {
            Some(help) => problem.help(help),
            None => problem,
        }
    }
}

/// The documents of a YAML text, in order, each with what is wrong in it.
/// A document without errors is complete; after a syntax error it goes on with
/// the next document. Empty ones are passed over.
pub fn documents(
    text: &str,
    limits: Limits,
) -> impl Iterator<Item = Result<Node, Vec<ParseError>>> {
    documents_for(Reader::Kubernetes, text, limits)
}

/// The documents of a YAML text as `reader` understands them.
pub fn documents_for(
    reader: Reader,
    text: &str,
    limits: Limits,
) -> impl Iterator<Item = Result<Node, Vec<ParseError>>> {
    Documents {
        reader,
        parser: Parser::new_from_str(text),
        text,
        limits,
        finished: false,
        lines_before: 0,
    }
}

struct Documents<'t> {
    reader: Reader,
    parser: Parser<'t, StrInput<'t>>,
    text: &'t str,
    limits: Limits,
    finished: bool,
    /// Lines of the input before `text`.
    lines_before: u32,
}

impl Iterator for Documents<'_> {
    type Item = Result<Node, Vec<ParseError>>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.finished {
            let mut builder = Builder::new(self.reader, self.limits);
            match self.read_document(&mut builder) {
                Err(mut fatal) => {
                    fatal.pos = self.on_a_line(fatal.pos);
                    self.go_on_after(fatal.pos.line);
                    builder.errors.push(fatal);
                    return Some(Err(builder.errors));
                }
                Ok(()) if !builder.errors.is_empty() => return Some(Err(builder.errors)),
                Ok(()) => {}
            }
            match builder.root {
                None
                | Some(Node {
                    value: Value::Null, ..
                }) => {}
                Some(root) => return Some(Ok(root)),
            }
        }
        None
    }
}

impl Documents<'_> {
    /// Reads on at the next document: what is wrong there shall be told too.
    fn go_on_after(&mut self, line: u32) {
        let known = usize::try_from(line - self.lines_before).unwrap_or(usize::MAX);
        let mut offset = 0;
        for (number, text) in self.text.split_inclusive('\n').enumerate() {
            // The mark of the next document may be what was stumbled over; the
            // first line of what is being read would lead around in circles.
            if number > 0 && number + 1 >= known && text.starts_with("---") {
                self.text = &self.text[offset..];
                self.parser = Parser::new_from_str(self.text);
                self.lines_before += u32::try_from(number).unwrap_or(u32::MAX);
                return;
            }
            offset += text.len();
        }
        self.finished = true;
    }

    /// What is missing at the end is missed on the last line.
    fn on_a_line(&self, pos: Pos) -> Pos {
        let last = u32::try_from(self.text.lines().count().max(1)).unwrap_or(u32::MAX);
        Pos {
            line: pos.line.min(self.lines_before.saturating_add(last)),
            ..pos
        }
    }

    fn read_document(&mut self, builder: &mut Builder) -> Result<(), ParseError> {
        loop {
            let Some(event) = self.parser.next_event() else {
                self.finished = true;
                return Ok(());
            };
            let before = self.lines_before;
            let (event, span) = event.map_err(|error| syntax_error(&error, before))?;
            match event {
                Event::StreamEnd => {
                    self.finished = true;
                    return Ok(());
                }
                Event::DocumentEnd => return Ok(()),
                event => builder.take(event, position(&span.start, before))?,
            }
        }
    }
}

fn position(marker: &Marker, lines_before: u32) -> Pos {
    let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Pos {
        line: small(marker.line()).saturating_add(lines_before),
        column: small(marker.col() + 1),
    }
}

fn syntax_error(error: &ScanError, lines_before: u32) -> ParseError {
    let info = match error.info() {
        "recursion limit exceeded" => "nested deeper than any manifest",
        info => info,
    };
    let help = if info.contains("tabs disallowed") {
        Some("indent with spaces: YAML does not allow tabs there")
    } else if info.contains("mapping values are not allowed") {
        Some("quote the value if it has a colon followed by a blank")
    } else if info.contains("invalid Unicode character escape") {
        Some("write the character itself instead of a \\u escape")
    } else if info.contains("unknown anchor") {
        Some(ANCHOR_HELP)
    } else if info.contains("unprintable character") {
        Some("remove the character, or write it as an escape such as \"\\x1b\" in double quotes")
    } else if info.contains("nested deeper") {
        Some(DEPTH_HELP)
    } else {
        None
    };
    ParseError {
        pos: position(error.marker(), lines_before),
        message: format!("not valid YAML: {info}"),
        help,
    }
}

const ANCHOR_HELP: &str = "an alias (*name) needs an anchor (&name) earlier in the same document";
const DEPTH_HELP: &str = "check that the input is a manifest, and that no bracket is left open";

/// Builds one document from events.
struct Builder {
    reader: Reader,
    limits: Limits,
    open: Vec<Open>,
    root: Option<Node>,
    anchors: HashMap<usize, (Node, Cost)>,
    cost: Cost,
    errors: Vec<ParseError>,
}

/// What a tree takes.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    nodes: usize,
    bytes: usize,
}

impl Cost {
    fn plus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes.saturating_add(other.nodes),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            nodes: self.nodes - other.nodes,
            bytes: self.bytes - other.bytes,
        }
    }
}

/// A collection whose end has not come yet.
struct Open {
    pos: Pos,
    anchor: usize,
    before: Cost,
    items: Items,
}

enum Items {
    Seq(Vec<Node>),
    Map {
        entries: Vec<Entry>,
        key: Option<(Box<str>, Pos)>,
        /// What `<<` named; it yields to the mapping's own keys.
        merged: Vec<Node>,
    },
}

impl Builder {
    fn new(reader: Reader, limits: Limits) -> Self {
        Self {
            reader,
            limits,
            open: Vec::new(),
            root: None,
            anchors: HashMap::new(),
            cost: Cost::default(),
            errors: Vec::new(),
        }
    }

    fn take(&mut self, event: Event<'_>, pos: Pos) -> Result<(), ParseError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let cost = Cost {
                    nodes: 1,
                    bytes: text.len(),
                };
                self.count(cost, pos)?;
                let value = if self.awaits_key() {
                    Value::Str(text.into())
                } else {
                    self.scalar(&text, style, tag.as_deref(), pos)
                };
                self.place(Node { value, pos }, anchor, cost)?;
            }
            Event::SequenceStart(anchor, _) => self.begin(pos, anchor, Items::Seq(Vec::new()))?,
            Event::MappingStart(anchor, _) => {
                let items = Items::Map {
                    entries: Vec::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.begin(pos, anchor, items)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(anchor) => {
                let Some((node, cost)) = self.anchors.get(&anchor) else {
                    return Err(self.no_anchor(anchor, pos));
                };
                let cost = *cost;
                let mut node = node.clone();
                self.count(cost, pos)?;
                node.pos = pos;
                self.place(node, 0, cost)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The parser has seen the anchor, but there is no value of it here: it is
    /// still open, or stood in a document before this one.
    fn no_anchor(&self, anchor: usize, pos: Pos) -> ParseError {
        if self.open.iter().any(|open| open.anchor == anchor) {
            return fatal(
                pos,
                "not valid YAML: an alias inside the value that it names",
            );
        }
        ParseError {
            help: Some(ANCHOR_HELP),
            ..fatal(
                pos,
                "not valid YAML: the alias names an anchor of another document",
            )
        }
    }

    /// A key is a word as it stands: a bare `on` is no truth value there.
    fn awaits_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Open {
                items: Items::Map { key: None, .. },
                ..
            })
        )
    }

    fn count(&mut self, cost: Cost, pos: Pos) -> Result<(), ParseError> {
        self.cost = self.cost.plus(cost);
        if self.cost.nodes > self.limits.nodes {
            return Err(fatal(
                pos,
                &format!(
                    "the document has more than {} values, aliases expanded",
                    self.limits.nodes
                ),
            ));
        }
        if self.cost.bytes > self.limits.bytes {
            return Err(fatal(
                pos,
                &format!(
                    "the document has more than {} MiB of text, aliases expanded",
                    self.limits.bytes >> 20
                ),
            ));
        }
        Ok(())
    }

    fn begin(&mut self, pos: Pos, anchor: usize, items: Items) -> Result<(), ParseError> {
        if self.open.len() >= self.limits.depth {
            let message = format!(
                "the document is nested deeper than {} levels",
                self.limits.depth
            );
            return Err(ParseError {
                help: Some(DEPTH_HELP),
                ..fatal(pos, &message)
            });
        }
        let before = self.cost;
        self.count(Cost { nodes: 1, bytes: 0 }, pos)?;
        self.open.push(Open {
            pos,
            anchor,
            before,
            items,
        });
        Ok(())
    }

    fn end(&mut self) -> Result<(), ParseError> {
        let Some(open) = self.open.pop() else {
            return Ok(());
        };
        let value = match open.items {
            Items::Seq(items) => Value::Seq(items),
            Items::Map {
                entries, merged, ..
            } => Value::Map(self.finish_map(entries, merged)),
        };
        let cost = self.cost.minus(open.before);
        let pos = open.pos;
        self.place(Node { value, pos }, open.anchor, cost)
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, pos: Pos) -> Value {
        match tag {
            None if style == ScalarStyle::Plain => self.reader.resolve(text),
            None => Value::Str(text.into()),
            Some(tag) if tag.is_yaml_core_schema() => match tag.suffix.as_str() {
                "str" => Value::Str(text.into()),
                "int" | "float" | "bool" | "null" => self.reader.resolve(text),
                _ => self.refuse_tag(pos),
            },
            Some(_) => self.refuse_tag(pos),
        }
    }

    /// The tag does not show: a password that begins with `!` is one.
    fn refuse_tag(&mut self, pos: Pos) -> Value {
        self.errors.push(ParseError {
            pos,
            message: "a YAML tag (!word) has no meaning here".to_owned(),
            help: Some("quote the value if it begins with !, else write it without the tag; for bytes in write_files use encoding: b64"),
        });
        Value::Null
    }

    /// Puts a finished value where it belongs: into the innermost open
    /// collection, as a key or as a value, or at the root.
    fn place(&mut self, node: Node, anchor: usize, cost: Cost) -> Result<(), ParseError> {
        if anchor != 0 {
            // What an anchor keeps is a copy, which costs as much again.
            self.count(cost, node.pos)?;
            self.anchors.insert(anchor, (node.clone(), cost));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.items {
            Items::Seq(items) => items.push(node),
            Items::Map {
                entries,
                key,
                merged,
            } => match key.take() {
                None => *key = Some((key_text(&node, &mut self.errors), node.pos)),
                Some((name, _)) if &*name == MERGE_KEY => merged.push(node),
                Some((name, key_pos)) => entries.push(Entry {
                    key: name,
                    key_pos,
                    node,
                }),
            },
        }
        Ok(())
    }

    fn finish_map(&mut self, mut entries: Vec<Entry>, merged: Vec<Node>) -> Vec<Entry> {
        let mut seen: HashSet<&str> = HashSet::with_capacity(entries.len());
        for entry in &entries {
            if !seen.insert(&entry.key) {
                self.errors.push(ParseError {
                    pos: entry.key_pos,
                    message: format!("the key {:?} stands twice in one mapping", entry.key),
                    help: Some("keep one of the two: which one wins depends on the reader"),
                });
            }
        }
        if !merged.is_empty() {
            let mut keys: HashSet<Box<str>> = entries.iter().map(|own| own.key.clone()).collect();
            for node in merged {
                self.merge(&mut entries, &mut keys, node);
            }
        }
        entries
    }

    fn merge(&mut self, entries: &mut Vec<Entry>, keys: &mut HashSet<Box<str>>, node: Node) {
        match node.value {
            Value::Map(more) => {
                for entry in more {
                    if keys.insert(entry.key.clone()) {
                        entries.push(entry);
                    }
                }
            }
            Value::Seq(maps) => {
                for map in maps {
                    self.merge(entries, keys, map);
                }
            }
            _ => self.errors.push(ParseError {
                pos: node.pos,
                message: "a merge key (<<) needs a mapping or a list of mappings".to_owned(),
                help: None,
            }),
        }
    }
}

/// Quoted, it would be an ordinary key; Kubernetes has no field of that name.
const MERGE_KEY: &str = "<<";

fn key_text(node: &Node, errors: &mut Vec<ParseError>) -> Box<str> {
    if let Value::Str(text) = &node.value {
        return text.clone();
    }
    errors.push(ParseError {
        pos: node.pos,
        message: "a key must be a text".to_owned(),
        help: None,
    });
    "".into()
}

fn fatal(pos: Pos, message: &str) -> ParseError {
    ParseError {
        pos,
        message: message.to_owned(),
        help: None,
    }
}
