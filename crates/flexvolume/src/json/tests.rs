use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Vec<(String, String)>, JsonError> {
    read_texts(text.as_bytes())
}

fn one(text: &str) -> Result<String, JsonError> {
    Ok(read(text)?.remove(0).1)
}

#[test]
fn an_object_of_texts_is_read_in_its_order() {
    let entries = read(" {\"b\" :\t\"1\" ,\r\n\"a\":\"\"} \n").unwrap();
    let entries: Vec<_> = entries.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(entries, [("b", "1"), ("a", "")]);
    assert_eq!(read("{ }"), Ok(Vec::new()));
}

#[test]
fn escapes_mean_what_they_mean_elsewhere() {
    assert_eq!(
        one(r#"{"a":"\"\\\/\b\f\n\r\t\u0041\u00e9\ud83e\udd80\u003C"}"#),
        Ok("\"\\/\u{8}\u{c}\n\r\tAé🦀<".to_owned())
    );
    assert_eq!(one(r#"{"a":"é🦀"}"#), Ok("é🦀".to_owned()));
    for text in [
        r#"{"a":"\ud83e"}"#,
        r#"{"a":"\udd80"}"#,
        r#"{"a":"\ud83e\u0041"}"#,
        r#"{"a":"\ud83e\n"}"#,
        r#"{"a":"\u12"}"#,
        r#"{"a":"\u+123"}"#,
        r#"{"a":"\x"}"#,
        "{\"a\":\"\\é\"}",
        "{\"a\":\"\\",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\0\"}",
    ] {
        assert!(matches!(one(text), Err(JsonError::Syntax { .. })), "{text}");
    }
}

#[test]
fn what_is_no_object_of_texts_is_refused() {
    for text in [
        "",
        " ",
        "null",
        "[]",
        "\"a\"",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":\"b\"",
        "{\"a\":\"b\",}",
        "{,}",
        "{a:\"b\"}",
        "{'a':'b'}",
        "{\"a\":\"b\"}x",
        "{\"a\":\"b\"}{}",
        "{\"a\" \"b\"}",
        "{\"a\":\"b\" \"c\":\"d\"}",
        "\u{feff}{}",
    ] {
        assert!(read(text).is_err(), "{text}");
    }
    for value in ["1", "true", "null", "{}", "[\"b\"]", ""] {
        let text = format!("{{\"a\":{value}}}");
        assert_eq!(read(&text), Err(JsonError::NotAText("a".to_owned())));
    }
}

#[test]
fn a_key_is_there_once_however_it_is_written() {
    let twice = Err(JsonError::Repeated("a".to_owned()));
    assert_eq!(read(r#"{"a":"1","b":"2","a":"1"}"#), twice);
    assert_eq!(read(r#"{"a":"1","\u0061":"2"}"#), twice);
}

#[test]
fn what_is_huge_deep_or_not_utf8_is_refused() {
    let huge = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_BYTES));
    assert_eq!(read(&huge), Err(JsonError::TooLong));
    let deep = format!("{{\"a\":{}", "{\"a\":".repeat(100_000));
    assert_eq!(read(&deep), Err(JsonError::NotAText("a".to_owned())));
    let error = read_texts(b"{\"a\":\"\xff\"}").unwrap_err();
    assert_eq!(error.to_string(), "no UTF-8 at byte 6");
    read_texts(b"{\"a\":\"\xed\xa0\x80\"}").unwrap_err();
}

#[test]
fn what_follows_the_object_is_told() {
    let error = read(r#"{"a":"b"} {}"#).unwrap_err();
    assert_eq!(
        error.to_string(),
        "something follows the object, at byte 10"
    );
}

#[test]
fn no_error_shows_a_value() {
    for text in [
        r#"{"secret":"hunter2" x"#,
        r#"{"secret":"hunter2\q"}"#,
        r#"{"secret":"hunter2","secret":"hunter2"}"#,
        r#"{"secret":"hunter2"#,
    ] {
        let error = read(text).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_upset_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read_texts(&bytes);
    }

    #[test]
    fn no_text_upsets_the_reader(text in r#"\{("[a\\u0-9"\pC]{0,6}"?[:,{}\[ ]?){0,8}\}?"#) {
        let _ = read(&text);
    }

    #[test]
    fn what_is_written_reads_back(
        entries in prop::collection::btree_map(any::<String>(), any::<String>(), 0..6),
    ) {
        let pairs = entries.iter().map(|(key, value)| (key.as_str(), value.clone()));
        let back = read(&write_texts(pairs.collect()));
        prop_assert_eq!(back, Ok(entries.into_iter().collect()));
    }
}
