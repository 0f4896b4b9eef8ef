//! Changing a manifest at random, so that it stays almost one.

use proptest::prelude::*;

/// One change. The numbers say where; they are taken modulo what is there.
#[derive(Debug, Clone)]
pub(crate) enum Mutation {
    DeleteLine(usize),
    DuplicateLine(usize),
    SwapLines(usize, usize),
    Indent(usize, i8),
    SwapSubtrees(usize, usize),
    DeleteSubtree(usize),
    ReplaceToken(usize, &'static str),
    RepeatToken(usize, usize),
    SwapTokens(usize, usize),
    FlipByte(usize, u8),
    Insert(usize, &'static str),
    Truncate(usize),
}

/// What should not stand where it is put.
const EVIL: &[&str] = &[
    "",
    "\"\"",
    "~",
    "null",
    "yes",
    "{}",
    "[]",
    "[[[]]]",
    "{a: {b: c}}",
    "0",
    "-1",
    "0x",
    "0777",
    "1e999",
    ".nan",
    "-.inf",
    "18446744073709551616",
    "9223372036854775807Ei",
    "1Gi",
    "../..",
    "../../etc/passwd",
    "/",
    "/dev/../etc",
    "/dev/loop0",
    ".",
    "..",
    "..data",
    "\"\\0\"",
    "\"\\e[2J\"",
    "\"a\\nb\"",
    "\"\\u0085\"",
    "\"\\u2028\"",
    "\"\\uFFFE\"",
    "\"\\U0010FFFF\"",
    "ééééééé",
    "\u{202e}desrever",
    "日本語",
    "👩‍👩‍👧",
    "&a x",
    "*a",
    "&a [*a]",
    "<<",
    "!!binary aGk=",
    "!x y",
    "!",
    "%",
    "[",
    "@",
    "|",
    ">-",
    "# c",
    "---",
    "...",
    "%YAML 9.9",
    "'",
    "\"",
    "$(A)",
    "$(PASSWORD)$(PASSWORD)",
    "@virtlet-mount-script@",
    "<a&b>'\"",
    "]]>",
    "Virtlet",
    "VirtletDiskDriver",
    "virtio",
    "raw",
    "ceph",
    "Block",
    "root",
    "cloud-init",
    "default",
    "status.podIP",
    "metadata.annotations",
    "a-name-that-is-longer-than-sixty-three-characters-and-therefore-no-label",
    "a-volume-whose-name-is-long-1",
    "a-volume-whose-name-is-long-2",
];

pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<usize>;
    let evil = || prop::sample::select(EVIL);
    prop_oneof![
        1 => at().prop_map(Mutation::DeleteLine),
        1 => at().prop_map(Mutation::DuplicateLine),
        1 => (at(), at()).prop_map(|(a, b)| Mutation::SwapLines(a, b)),
        1 => (at(), -4_i8..5).prop_map(|(a, by)| Mutation::Indent(a, by)),
        1 => (at(), at()).prop_map(|(a, b)| Mutation::SwapSubtrees(a, b)),
        1 => at().prop_map(Mutation::DeleteSubtree),
        8 => (at(), evil()).prop_map(|(a, word)| Mutation::ReplaceToken(a, word)),
        1 => (at(), 2_usize..3000).prop_map(|(a, times)| Mutation::RepeatToken(a, times)),
        3 => (at(), at()).prop_map(|(a, b)| Mutation::SwapTokens(a, b)),
        1 => (at(), 1_u8..).prop_map(|(a, bits)| Mutation::FlipByte(a, bits)),
        1 => (at(), evil()).prop_map(|(a, word)| Mutation::Insert(a, word)),
        1 => at().prop_map(Mutation::Truncate),
    ]
}

impl Mutation {
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        if lines.is_empty() {
            return text.to_owned();
        }
        let count = lines.len();
        match *self {
            Self::DeleteLine(at) => {
                lines.remove(at % count);
                lines.concat()
            }
            Self::DuplicateLine(at) => {
                lines.insert(at % count, lines[at % count]);
                lines.concat()
            }
            Self::SwapLines(a, b) => {
                lines.swap(a % count, b % count);
                lines.concat()
            }
            Self::Indent(at, by) => {
                let line = lines[at % count];
                let blanks = line.len() - line.trim_start_matches(' ').len();
                let indent = " ".repeat(blanks.saturating_add_signed(by.into()));
                let moved = indent + line.trim_start_matches(' ');
                lines[at % count] = &moved;
                lines.concat()
            }
            Self::SwapSubtrees(a, b) => swap(text, subtree(&lines, a), subtree(&lines, b)),
            Self::DeleteSubtree(at) => replace(text, subtree(&lines, at), ""),
            Self::ReplaceToken(at, word) => replace(text, token(text, at), word),
            Self::RepeatToken(at, times) => {
                let (from, to) = token(text, at);
                replace(text, (from, to), &text[from..to].repeat(times))
            }
            Self::SwapTokens(a, b) => swap(text, token(text, a), token(text, b)),
            Self::FlipByte(at, bits) => {
                let mut bytes = text.as_bytes().to_vec();
                let at = at % bytes.len();
                bytes[at] ^= bits;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Self::Insert(at, word) => {
                let at = text.floor_char_boundary(at % text.len());
                replace(text, (at, at), word)
            }
            Self::Truncate(at) => text[..text.floor_char_boundary(at % text.len())].to_owned(),
        }
    }
}

fn replace(text: &str, (from, to): (usize, usize), with: &str) -> String {
    [&text[..from], with, &text[to..]].concat()
}

fn swap(text: &str, a: (usize, usize), b: (usize, usize)) -> String {
    let (first, second) = if a <= b { (a, b) } else { (b, a) };
    if first.1 > second.0 {
        return text.to_owned();
    }
    let parts = [
        &text[..first.0],
        &text[second.0..second.1],
        &text[first.1..second.0],
        &text[first.0..first.1],
        &text[second.1..],
    ];
    parts.concat()
}

/// A line and the lines below it that are indented deeper.
fn subtree(lines: &[&str], at: usize) -> (usize, usize) {
    let at = at % lines.len();
    let depth = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let below = lines[at + 1..]
        .iter()
        .take_while(|line| depth(line) > depth(lines[at]))
        .count();
    let from = lines[..at].concat().len();
    (from, from + lines[at..=at + below].concat().len())
}

/// A key or a scalar, roughly: what stands between the characters that
/// structure YAML.
fn token(text: &str, at: usize) -> (usize, usize) {
    let mut tokens = Vec::new();
    let mut from = 0;
    for (index, c) in text.char_indices() {
        if matches!(c, '\n' | ',' | '{' | '}' | '[' | ']' | '"' | '\'')
            || (c == ':' && text[index + 1..].starts_with([' ', '\n']))
            || (c == ' ' && text[from..index].chars().all(|c| matches!(c, ' ' | '-')))
        {
            if text[from..index].trim() != "" {
                tokens.push((from, index));
            }
            from = index + c.len_utf8();
        }
    }
    match tokens.len() {
        0 => (0, 0),
        count => tokens[at % count],
    }
}
