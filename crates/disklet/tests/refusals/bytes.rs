//! Files that are no text, or text of another kind.

use super::program::{POD, plan};

/// The input, and how what is said about it begins.
fn refused(name: &str, bytes: &[u8], wanted: &str) {
    let outcome = plan(&["-f", "-"], bytes);
    outcome.assert_refused();
    assert!(
        outcome
            .stderr
            .starts_with(&format!("error: <stdin>:{wanted}")),
        "{name}: {}",
        outcome.stderr
    );
}

fn utf16(text: &str, bytes_of: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes_of).collect()
}

#[test]
fn what_is_no_text_is_refused_at_its_line() {
    // The beginning of a qcow2 image and of an archive.
    refused(
        "image",
        b"QFI\xfb\0\0\0\x03\0\0\0\0",
        "1:1: not text in UTF-8",
    );
    refused(
        "archive",
        b"\x1f\x8b\x08\0\0\0\0\0\0\x03",
        "1:1: not text in UTF-8",
    );
    refused(
        "latin-1",
        b"kind: Pod\nname: caf\xe9\n",
        "2:1: not text in UTF-8",
    );
    refused("overlong", b"a: \xc0\xaf\n", "1:1: not text in UTF-8");
    refused(
        "surrogate",
        b"a: b\na: \xed\xa0\x80\n",
        "2:1: not text in UTF-8",
    );
    refused(
        "cut short",
        b"a: b\n\nc: \xe2\x82",
        "3:1: not text in UTF-8",
    );
}

#[test]
fn text_of_another_encoding_is_refused() {
    let little = utf16(&format!("\u{feff}{POD}"), u16::to_le_bytes);
    let big = utf16(&format!("\u{feff}{POD}"), u16::to_be_bytes);
    refused("UTF-16, little", &little, "1:1: not text in UTF-8");
    refused("UTF-16, big", &big, "1:1: not text in UTF-8");
    // Without a mark these are valid UTF-8 with zeros in it.
    refused(
        "no mark, little",
        &utf16(POD, u16::to_le_bytes),
        "1:2: not valid YAML",
    );
    refused(
        "no mark, big",
        &utf16(POD, u16::to_be_bytes),
        "1:1: not valid YAML",
    );
}

#[test]
fn control_characters_end_nothing_silently() {
    let second = POD.replace("name: vm", "name: other");
    for odd in ["\0", "\x01", "\x1b", "\x7f", "\u{fffe}", "\u{ffff}"] {
        let text = format!("{POD}---\n{odd}\n---\n{second}");
        let outcome = plan(&["-f", "-", "-o", "json"], text.as_bytes());
        // Planning the first VM and forgetting the second would be worst.
        assert_ne!(outcome.code, Some(0), "{odd:?}: {}", outcome.stdout);
        outcome.assert_refused();
        let place = format!("error: <stdin>:{}:", POD.lines().count() + 2);
        assert!(
            outcome.stderr.starts_with(&place),
            "{odd:?}: {}",
            outcome.stderr
        );
    }
}

#[test]
fn marks_and_line_ends_of_other_systems_are_read() {
    let carriage = POD.replace('\n', "\r\n");
    for text in [
        format!("\u{feff}{POD}"),
        carriage,
        POD.trim_end().to_owned(),
        format!("%YAML 1.1\n---\n{POD}...\n"),
    ] {
        let outcome = plan(&["--offline", "-f", "-", "-o", "json"], text.as_bytes());
        assert_eq!(outcome.code, Some(0), "{text:?}: {}", outcome.stderr);
    }
}

#[test]
fn lines_are_counted_alike_whatever_ends_them() {
    let text = POD.replace("image: cirros", "image: a b");
    let line = text.lines().count();
    refused(
        "LF",
        text.as_bytes(),
        &format!("{line}:12: spec.containers[0].image"),
    );
    let text = text.replace('\n', "\r\n");
    refused(
        "CRLF",
        text.as_bytes(),
        &format!("{line}:12: spec.containers[0].image"),
    );
}

#[test]
fn annotations_in_any_script_are_passed_over() {
    for key in [
        "ééééé",
        "日本語のキー",
        "virtleß",
        "🦀🦀",
        "Virtle\u{301}t-x",
    ] {
        let text = POD.replace(
            "{name: vm}",
            &format!("{{name: vm, annotations: {{\"{key}\": x}}}}"),
        );
        let outcome = plan(&["--offline", "-f", "-", "-o", "json"], text.as_bytes());
        assert_eq!(outcome.code, Some(0), "{key}: {}", outcome.stderr);
    }
}

#[test]
fn a_text_that_breaks_off_is_refused_at_one_of_its_lines() {
    for text in [
        "{",
        "a: [1, 2",
        "a: {b: c",
        "%YAML",
        "a: b\nc: {",
        "a: 'b",
        "- a\n- [b",
    ] {
        let outcome = plan(&["-f", "-"], text.as_bytes());
        outcome.assert_refused();
        let line = outcome.stderr.split(':').nth(2).unwrap();
        assert!(
            line.parse::<usize>().unwrap() <= text.lines().count(),
            "{text:?}: {}",
            outcome.stderr
        );
    }
}
