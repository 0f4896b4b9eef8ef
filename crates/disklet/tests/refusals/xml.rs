//! Whether a text is well-formed XML, as far as our documents go: elements,
//! attributes, text and the five entities.

/// What is wrong, if anything.
pub(crate) fn problem(text: &str) -> Option<String> {
    if let Some(c) = text.chars().find(|c| !is_allowed(*c)) {
        return Some(format!("the character {c:?}"));
    }
    let mut open: Vec<&str> = Vec::new();
    let mut roots = 0;
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        let (before, tag) = rest.split_at(start);
        if (open.is_empty() && !before.trim().is_empty()) || !is_text(before) {
            return Some(format!("the text {before:?}"));
        }
        let Some(end) = end_of_tag(tag) else {
            return Some(format!("an unfinished tag: {tag:.60?}"));
        };
        let (inside, after) = (&tag[1..end], &tag[end + 1..]);
        rest = after;
        if let Some(name) = inside.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Some(format!("</{name}> out of place"));
            }
            continue;
        }
        if open.is_empty() {
            roots += 1;
        }
        let (inside, closed) = match inside.strip_suffix('/') {
            Some(inside) => (inside, true),
            None => (inside, false),
        };
        let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
        if !is_name(name) {
            return Some(format!("the element name {name:?}"));
        }
        if let Some(wrong) = wrong_attribute(attributes) {
            return Some(format!("the attributes {wrong:?} of {name}"));
        }
        if !closed {
            open.push(name);
        }
    }
    if !open.is_empty() || roots != 1 || !rest.trim().is_empty() {
        return Some(format!("{roots} roots, open: {open:?}, rest: {rest:?}"));
    }
    None
}

/// The characters of XML 1.0.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-.:".contains(c))
}

/// Every ampersand begins an entity that XML itself has.
fn is_text(text: &str) -> bool {
    text.split('&').skip(1).all(|after| {
        ["lt;", "gt;", "amp;", "apos;", "quot;"]
            .iter()
            .any(|entity| after.starts_with(entity))
            || after
                .strip_prefix('#')
                .and_then(|number| number.split_once(';'))
                .is_some_and(|(digits, _)| !digits.is_empty())
    })
}

/// Where a tag ends; a `>` within quotes does not end it.
fn end_of_tag(tag: &str) -> Option<usize> {
    let mut quoted = false;
    tag.bytes().position(|byte| {
        quoted ^= byte == b'"';
        byte == b'>' && !quoted
    })
}

fn wrong_attribute(mut rest: &str) -> Option<&str> {
    let mut names = Vec::new();
    while !rest.is_empty() {
        let Some((name, (value, after))) = rest
            .split_once("=\"")
            .and_then(|(name, value)| Some((name, value.split_once('"')?)))
        else {
            return Some(rest);
        };
        if !is_name(name) || names.contains(&name) || value.contains('<') || !is_text(value) {
            return Some(rest);
        }
        names.push(name);
        rest = after.strip_prefix(' ').unwrap_or(after);
    }
    None
}

#[test]
fn the_checker_knows_good_from_bad() {
    for good in [
        "<a/>",
        "<a b=\"1\" c=\"&lt;>\">x &amp; y<d/></a>\n",
        "<x:a y:b=\"\"/>",
    ] {
        assert_eq!(problem(good), None, "{good}");
    }
    for bad in [
        "",
        "x",
        "<a>",
        "<a></b>",
        "<a/><b/>",
        "<a b=1/>",
        "<a b=\"&\"/>",
        "<a b=\"1\" b=\"2\"/>",
        "<a b=\"<\"/>",
        "<a>\u{ffff}</a>",
        "<a>\u{1}</a>",
        "<a>&nbsp;</a>",
        "<1/>",
    ] {
        assert!(problem(bad).is_some(), "{bad}");
    }
}
