//! Manifests with gaps, and what is put into them.

/// What a gap `{{name}}` is filled with.
#[derive(Debug, Clone)]
pub(super) enum Fill {
    /// A text, quoted if YAML would read something else in it.
    Text(String),
    /// YAML as it is.
    Yaml(String),
    /// Lines, in place of the line that the gap is alone on.
    Lines(Vec<String>),
}

/// Fills every gap.
pub(super) fn fill(template: &str, gaps: &[(&str, Fill)]) -> String {
    let mut text = String::new();
    for line in template.lines() {
        fill_line(line, gaps, &mut text);
    }
    text
}

/// What is filled in is not looked at again: it may well have braces of its own.
fn fill_line(line: &str, gaps: &[(&str, Fill)], text: &mut String) {
    let (mut filled, mut rest) = (String::new(), line);
    while let Some(begin) = rest.find("{{") {
        let Some((fill, behind)) = gap_at(&rest[begin..], gaps) else {
            filled.push_str(&rest[..=begin]);
            rest = &rest[begin + 1..];
            continue;
        };
        filled.push_str(&rest[..begin]);
        rest = behind;
        match fill {
            Fill::Text(value) => filled.push_str(&scalar(value)),
            Fill::Yaml(yaml) => filled.push_str(yaml),
            Fill::Lines(lines) => {
                let indent = &line[..line.len() - line.trim_start().len()];
                for line in lines {
                    text.push_str(indent);
                    text.push_str(line);
                    text.push('\n');
                }
                return;
            }
        }
    }
    text.push_str(&filled);
    text.push_str(rest);
    text.push('\n');
}

/// The gap that a text begins with, and what comes behind it.
fn gap_at<'f, 't>(text: &'t str, gaps: &'f [(&str, Fill)]) -> Option<(&'f Fill, &'t str)> {
    let inner = text.strip_prefix("{{")?;
    gaps.iter().find_map(|(name, fill)| {
        let behind = inner.strip_prefix(name)?.strip_prefix("}}")?;
        Some((fill, behind))
    })
}

/// A text as YAML, in any place: quoted unless it is plainly a name or a path.
pub(super) fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    let lower = text.to_ascii_lowercase();
    let is_word_of_yaml = matches!(
        lower.as_str(),
        "true" | "false" | "yes" | "no" | "on" | "off" | "null" | "y" | "n"
    );
    if starts && text.chars().all(plain) && !is_word_of_yaml {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

/// A longer text as YAML, below a key that is indented so deep: as it is, where
/// YAML can show it so.
pub(super) fn block(text: &str, indent: usize) -> String {
    let printable = |c: char| c == '\n' || !disklet_core::diag::is_unprintable(c);
    let shows = text.chars().all(printable) && text.ends_with('\n') && !text.ends_with("\n\n");
    if !shows || text.starts_with([' ', '\n']) {
        return serde_json::Value::from(text).to_string();
    }
    let margin = " ".repeat(indent + 2);
    let mut yaml = "|".to_owned();
    for line in text.lines() {
        yaml.push('\n');
        if !line.is_empty() {
            yaml.push_str(&margin);
            yaml.push_str(line);
        }
    }
    yaml
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_would_read_otherwise_is_quoted() {
        for (text, yaml) in [
            ("/var/lib/disklet", "/var/lib/disklet"),
            ("disklet", "disklet"),
            (
                "registry.example.com/disklet:1",
                "\"registry.example.com/disklet:1\"",
            ),
            ("", "\"\""),
            ("no", "\"no\""),
            ("1e3", "\"1e3\""),
            ("a: b", "\"a: b\""),
            ("a\"b\nc", "\"a\\\"b\\nc\""),
            ("loop*,mapper/vm-*", "\"loop*,mapper/vm-*\""),
        ] {
            assert_eq!(scalar(text), yaml);
        }
    }

    #[test]
    fn a_block_shows_a_file_as_it_is_or_is_quoted() {
        assert_eq!(block("a: 1\n\nb: 2\n", 2), "|\n    a: 1\n\n    b: 2");
        for odd in ["", "a", " a\n", "\na\n", "a\n\n", "a\u{7}\n", "a\r\n"] {
            assert!(block(odd, 2).starts_with('"'), "{odd:?}");
        }
    }

    #[test]
    fn gaps_are_filled_and_lines_keep_their_margin() {
        let template = "a: {{one}}\nb:\n  {{many}}\n  {{none}}\nc: {x: {{one}}}\n";
        let gaps = [
            ("one", Fill::Text("x:y".to_owned())),
            (
                "many",
                Fill::Lines(vec!["- 1".to_owned(), "- 2".to_owned()]),
            ),
            ("none", Fill::Lines(Vec::new())),
        ];
        let wanted = "a: \"x:y\"\nb:\n  - 1\n  - 2\nc: {x: \"x:y\"}\n";
        assert_eq!(fill(template, &gaps), wanted);
    }

    #[test]
    fn what_is_filled_in_has_no_gaps() {
        let gaps = [
            ("a", Fill::Yaml("{{b}} {{c}}".to_owned())),
            ("b", Fill::Text("/x{{a}}".to_owned())),
            ("c", Fill::Lines(vec!["{{a}}".to_owned()])),
        ];
        let template = "x: {{a}} {{b}}\ny: {{{b}}}\n  {{c}}\nz: {{d}}\n";
        let wanted = "x: {{b}} {{c}} \"/x{{a}}\"\ny: {\"/x{{a}}\"}\n  {{a}}\nz: {{d}}\n";
        assert_eq!(fill(template, &gaps), wanted);
    }
}
