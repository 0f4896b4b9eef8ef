//! What is wrong with the input, told so that its author can mend it: where it
//! stands, what was found, what is allowed, and what was probably meant.
//!
//! Problems are collected, never thrown: one run reports all of them.

use std::fmt;
use std::sync::Arc;

pub use disklet_flexvolume::is_unprintable;
use serde::Serialize;

/// A line and a column, both counted from 1; 0 if there are none, as on a
/// command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pos {
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// The way from the root of a document to a field, shared between neighbours.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct FieldPath(Option<Arc<PathNode>>);

#[derive(PartialEq, Eq)]
struct PathNode {
    parent: FieldPath,
    segment: Segment,
}

#[derive(PartialEq, Eq)]
enum Segment {
    Key(Box<str>),
    Index(usize),
}

impl FieldPath {
    /// The path of the entry `key` below this one.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.below(Segment::Key(key.into()))
    }

    /// The path of the n-th item below this one.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.below(Segment::Index(index))
    }

    fn below(&self, segment: Segment) -> Self {
        Self(Some(Arc::new(PathNode {
            parent: self.clone(),
            segment,
        })))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(node) = &self.0 else { return Ok(()) };
        write!(f, "{}", node.parent)?;
        match &node.segment {
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => {
                let shown = shortened(key);
                // A key with dots or slashes would read as several.
                if key.contains(['.', '/', '[', ']']) {
                    write!(f, "[{shown}]")
                } else if node.parent.0.is_none() {
                    f.write_str(&shown)
                } else {
                    write!(f, ".{shown}")
                }
            }
        }
    }
}

impl fmt::Debug for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Where something stands in the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file's name as the user gave it, or `<stdin>`.
    pub file: Arc<str>,
    /// Line and column.
    pub pos: Pos,
    /// The field.
    pub path: FieldPath,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.file))?;
        match self.pos.line {
            0 => Ok(()),
            line => write!(f, ":{line}:{}", self.pos.column),
        }
    }
}

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

/// What input can put into a message is limited: long values would bury it,
/// and control characters could rewrite the terminal.
const LONGEST_VALUE: usize = 120;
const LONGEST_SENTENCE: usize = 600;
const LONGEST_LIST: usize = 2000;

/// A text of the input as a message shows it.
#[must_use]
pub fn shortened(text: &str) -> String {
    if is_private_key(text) {
        return "a private key".to_owned();
    }
    within(text, LONGEST_VALUE)
}

/// Whether a text has a private key in it, as OpenSSH and OpenSSL write them.
pub(crate) fn is_private_key(text: &str) -> bool {
    text.contains("PRIVATE KEY-----")
}

fn within(text: &str, most: usize) -> String {
    let mut out: String = text.chars().take(most).flat_map(printable).collect();
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

/// A text in which what would not show is escaped.
pub(crate) fn shown(text: &str) -> String {
    text.chars().flat_map(printable).collect()
}

fn printable(c: char) -> impl Iterator<Item = char> {
    let escaped = is_unprintable(c).then(|| c.escape_default());
    let plain = (!is_unprintable(c)).then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

/// The known word nearest to a written one, if it is near enough to be meant.
#[must_use]
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let folded = written.to_ascii_lowercase();
    let allowance = (folded.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|word| {
            (
                strsim::osa_distance(&folded, &word.to_ascii_lowercase()),
                word,
            )
        })
        .filter(|(distance, word)| *distance <= allowance && *word != written)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Whether a written word is nearly, but not quite, a known one: it differs in
/// the case of its letters alone, or in two letters at most.
pub(crate) fn is_slip(written: &str, known: &str) -> bool {
    if written == known {
        return false;
    }
    if written.eq_ignore_ascii_case(known) {
        return true;
    }
    let long_enough = written.len() >= 5 && written.len().abs_diff(known.len()) <= 2;
    long_enough
        && strsim::osa_distance(&written.to_ascii_lowercase(), &known.to_ascii_lowercase()) <= 2
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
            let path = place.path.to_string();
            if !path.is_empty() {
                write!(f, "{path}: ")?;
            }
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
            file: place.map(|place| &*place.file),
            line: place.map(|place| place.pos.line).filter(|line| *line > 0),
            column: place
                .map(|place| place.pos.column)
                .filter(|column| *column > 0),
            field: place.map(|place| place.path.to_string()),
            message: &self.message,
            found: self.found.as_deref(),
            allowed: self.allowed.as_deref(),
            help: self.help.as_deref(),
        }
        .serialize(serializer)
    }
}

/// Collects diagnostics.
#[derive(Debug, Default)]
pub struct Diagnostics {
    errors: Vec<Diagnostic>,
    notices: Vec<Diagnostic>,
    asides: Vec<Diagnostic>,
    error_count: usize,
    /// How many notices of both kinds were told.
    notice_count: usize,
    /// The inputs in the order in which they were read.
    files: Vec<Arc<str>>,
}

/// Nobody reads more than this, and hostile input could make millions. Further
/// ones are only counted.
const MOST_ERRORS: usize = 500;
const MOST_NOTICES: usize = 50;

impl Diagnostics {
    /// Says that an input is being read: its problems come after those of the
    /// inputs before it.
    pub fn begin_file(&mut self, name: &Arc<str>) {
        self.files.push(name.clone());
    }

    /// Adds one. The same one twice (two disks that share a broken claim) is
    /// told once.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let (list, count, most) = match diagnostic.severity {
            Severity::Error => (&mut self.errors, &mut self.error_count, MOST_ERRORS),
            Severity::Notice => (&mut self.notices, &mut self.notice_count, MOST_NOTICES),
            Severity::Aside => (&mut self.asides, &mut self.notice_count, MOST_NOTICES),
        };
        if list.contains(&diagnostic) {
            return;
        }
        *count += 1;
        if list.len() < most {
            list.push(diagnostic);
        }
    }

    /// How many refusals there are.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.error_count
    }

    /// All of them, in the order of the input. If there are too many notices,
    /// those about objects that play no part give way, and the last one says
    /// how many are left out.
    #[must_use]
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.asides.truncate(MOST_NOTICES - self.notices.len());
        let left_out = self.notice_count - self.notices.len() - self.asides.len();
        let rank = |place: &Place| self.files.iter().position(|file| *file == place.file);
        let notices = self.notices.into_iter().chain(self.asides);
        let mut list: Vec<_> = self.errors.into_iter().chain(notices).collect();
        list.sort_by_key(|diagnostic| {
            diagnostic
                .place
                .as_ref()
                .map(|place| (rank(place), place.pos))
        });
        list.extend(more_notices(left_out));
        list
    }
}

fn more_notices(count: usize) -> Option<Diagnostic> {
    let message = match count {
        0 => return None,
        1 => "and 1 more notice".to_owned(),
        count => format!("and {count} more notices"),
    };
    Some(Diagnostic {
        severity: Severity::Aside,
        place: None,
        message,
        found: None,
        allowed: None,
        help: None,
        remedy: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
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

    #[test]
    fn far_words_are_not_suggested() {
        assert_eq!(nearest("capacty", ["capacity", "path"]), Some("capacity"));
        assert_eq!(nearest("zzz", ["capacity", "path"]), None);
        assert_eq!(nearest("Type", ["type"]), Some("type"));
    }

    #[test]
    fn the_same_problem_is_told_once() {
        let mut all = Diagnostics::default();
        all.push(Diagnostic::error(&place(), "x"));
        all.push(Diagnostic::error(&place(), "x"));
        assert_eq!(all.errors(), 1);
        assert_eq!(all.into_sorted().len(), 1);
    }

    #[test]
    fn notices_about_vms_come_before_those_about_bystanders() {
        let mut all = Diagnostics::default();
        for n in 0..70 {
            all.push(Diagnostic::aside(&place(), format!("skipped {n}")));
        }
        for n in 0..3 {
            all.push(Diagnostic::notice(&place(), format!("no effect {n}")));
        }
        let told: Vec<_> = all
            .into_sorted()
            .iter()
            .map(|d| d.message.clone())
            .collect();
        assert_eq!(told.len(), MOST_NOTICES + 1);
        for n in 0..3 {
            assert!(told.contains(&format!("no effect {n}")), "{told:?}");
        }
        assert_eq!(told[MOST_NOTICES], "and 23 more notices");
    }
}
