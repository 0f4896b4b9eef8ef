use super::*;
use crate::diag::Diagnostics;
use crate::yaml::parse::Limits;

fn one(text: &str) -> Node {
    let mut all: Vec<_> = documents(text, Limits::default()).collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).unwrap()
}

fn refusals(text: &str) -> Vec<ParseError> {
    documents(text, Limits::default())
        .filter_map(Result::err)
        .flatten()
        .collect()
}

#[test]
fn values_know_where_they_stand() {
    let node = one("a:\n  b: [1, two]\n");
    let Value::Seq(items) = &node.get("a").unwrap().get("b").unwrap().value else {
        panic!("not a list")
    };
    assert_eq!(items[1].as_str(), Some("two"));
    assert_eq!(
        items[1].pos,
        Pos {
            line: 2,
            column: 10
        }
    );
}

#[test]
fn documents_come_one_by_one_and_empty_ones_are_skipped() {
    let all: Vec<_> = documents(
        "---\n---\na: 1\n---\n# nothing\n---\nb: 2\n...\n",
        Limits::default(),
    )
    .map(Result::unwrap)
    .collect();
    assert_eq!(all.len(), 2);
    assert_eq!(all[1].pos.line, 7);
}

#[test]
fn a_tab_is_refused_with_its_line_and_a_remedy() {
    let errors = refusals("a:\n\tb: 1\n");
    assert_eq!(errors[0].pos.line, 2);
    assert!(errors[0].help.unwrap().contains("spaces"));
}

#[test]
fn json_with_tabs_is_read() {
    let node = one("{\n\t\"a\": 1,\n\t\"b\": [\n\t\ttrue\n\t]\n}\n");
    assert_eq!(node.get("a").unwrap().value, Value::Int(1, "1".into()));
}

#[test]
fn a_key_that_stands_twice_is_refused_at_its_second_place() {
    let errors = refusals("a: 1\nb: 2\na: 3\n");
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].pos, Pos { line: 3, column: 1 });
    assert!(errors[0].message.contains("\"a\" stands twice"));
}

#[test]
fn aliases_and_merge_keys_are_expanded() {
    let node = one("base: &b {x: 1, y: 2}\nuse: {<<: *b, y: 3}\ncopy: *b\n");
    let used = node.get("use").unwrap();
    assert_eq!(used.get("x").unwrap().value, Value::Int(1, "1".into()));
    assert_eq!(used.get("y").unwrap().value, Value::Int(3, "3".into()));
    assert!(node.get("copy").unwrap().get("x").is_some());
}

#[test]
fn an_alias_bomb_is_refused_at_once() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..12 {
        let refs = vec![format!("*a{}", i - 1); 10].join(", ");
        text += &format!("a{i}: &a{i} [{refs}]\n");
    }
    let errors = refusals(&text);
    assert!(
        errors[0].message.contains("more than 1000000 values"),
        "{errors:?}"
    );
}

#[test]
fn unknown_and_recursive_aliases_are_refused() {
    assert!(
        refusals("a: *nowhere\n")[0]
            .help
            .unwrap()
            .contains("anchor")
    );
    assert!(
        refusals("a: &a [*a]\n")[0]
            .message
            .contains("inside the value")
    );
    let earlier = refusals("a: &a x\n---\nb: *a\n");
    assert!(
        earlier[0].message.contains("another document"),
        "{earlier:?}"
    );
    assert!(earlier[0].help.unwrap().contains("same document"));
}

#[test]
fn deep_nesting_is_refused() {
    let errors = refusals(&"[".repeat(100_000));
    assert!(errors[0].message.contains("nested deeper"), "{errors:?}");
    let errors = refusals(&"[".repeat(150));
    assert!(errors[0].message.contains("nested deeper"), "{errors:?}");
    let errors = refusals(&"- ".repeat(100_000));
    assert!(errors[0].message.contains("nested deeper"), "{errors:?}");
}

#[test]
fn tags_are_refused_but_for_the_core_ones() {
    assert_eq!(one("a: !!str 12\n").get("a").unwrap().as_str(), Some("12"));
    assert!(refusals("a: !!binary aGk=\n")[0].message.contains("tag"));
}

#[test]
fn unread_fields_are_reported_with_a_suggestion() {
    let node = one("capacty: 1\n");
    let mut diags = Diagnostics::default();
    let fields = View::root(&node, &"f".into()).fields(&mut diags).unwrap();
    fields.no_others(&["capacity", "path"], &mut diags);
    let text = diags.into_sorted()[0].to_string();
    assert!(text.contains("f:1:10: capacty: unknown field"), "{text}");
    assert!(text.contains("did you mean \"capacity\"?"), "{text}");
}

#[test]
fn an_unquoted_number_is_told_to_be_quoted() {
    let node = one("part: 2\n");
    let mut diags = Diagnostics::default();
    let mut fields = View::root(&node, &"f".into()).fields(&mut diags).unwrap();
    assert_eq!(fields.text("part", &mut diags), None);
    assert!(
        diags.into_sorted()[0]
            .to_string()
            .contains("write it in quotes: \"2\"")
    );
}
