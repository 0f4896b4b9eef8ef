//! Facts with the field names of qemu-img, as lines for people.

use std::fmt::Write as _;

use disklet_core::units::ByteSize;
use serde_json::{Map, Value};

/// A line for each fact, nested ones further in.
pub(super) fn shown(facts: &Map<String, Value>) -> String {
    let mut out = String::new();
    for (key, value) in facts {
        match (key.as_str(), &value["data"]) {
            // It says nothing of an image that is not said above.
            ("children", _) => {}
            ("format-specific", data) => show(&mut out, 0, "format specific", data),
            _ => show(&mut out, 0, key, value),
        }
    }
    out
}

fn show(out: &mut String, depth: usize, key: &str, value: &Value) {
    let indent = "  ".repeat(depth);
    let label = key.replace('-', " ");
    match value {
        Value::Object(facts) => {
            let _ = writeln!(out, "{indent}{label}:");
            for (key, value) in facts {
                show(out, depth + 1, key, value);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for value in values {
                show(out, depth, key, value);
            }
        }
        value => {
            let _ = writeln!(out, "{indent}{label}: {}", in_line(key, value));
        }
    }
}

fn in_line(key: &str, value: &Value) -> String {
    match value {
        // Names come out of the image; they are shown, not obeyed.
        Value::String(text) => text.escape_debug().to_string(),
        Value::Array(values) if values.is_empty() => "none".to_owned(),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(|value| in_line(key, value)).collect();
            values.join(", ")
        }
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.to_owned(),
        value => match value.as_u64() {
            Some(bytes) if key.ends_with("-size") || key == "granularity" => {
                ByteSize::from_bytes(bytes).to_string()
            }
            _ => value.to_string(),
        },
    }
}
