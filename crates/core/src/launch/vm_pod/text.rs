//! Launchers in what users write: `kubectl get` shows a launcher where a VM pod was applied.

use serde_json::{Map, Number, Value};

use super::{is_launcher, original};
use crate::diag::Origin;
use crate::manifest::Input;
use crate::yaml::{self, Limits, Node};

/// The input with VM pods in the places of their launchers, those in lists included. Nobody
/// knows such pods by their lines.
#[must_use]
pub fn with_originals(input: Input) -> Input {
    if !input.text.contains(super::SAVED) {
        return input;
    }
    let documents = yaml::documents(&input.text, Limits::default());
    // What cannot be read is told by whoever reads it next.
    let Ok(documents) = documents.collect::<Result<Vec<_>, _>>() else {
        return input;
    };
    let mut objects: Vec<_> = documents.iter().map(value).collect();
    // Each of them, whatever is before it.
    let replaced = objects.iter_mut().map(replace).filter(|is| *is).count();
    if replaced == 0 {
        return input;
    }
    let texts: Vec<_> = objects.iter().map(Value::to_string).collect();
    Input {
        name: Origin::object(&*input.name),
        text: texts.join("\n---\n"),
    }
}

/// Whether there was a launcher.
fn replace(object: &mut Value) -> bool {
    if object["kind"] == "Pod" && is_launcher(object) {
        let Some(pod) = original(object) else {
            return false;
        };
        *object = pod;
        return true;
    }
    match object.get_mut("items") {
        Some(Value::Array(items)) => items.iter_mut().map(replace).filter(|is| *is).count() > 0,
        _ => false,
    }
}

fn value(node: &Node) -> Value {
    match &node.value {
        yaml::Value::Null => Value::Null,
        yaml::Value::Bool(is) => Value::Bool(*is),
        yaml::Value::Int(number, _) => Value::from(*number),
        yaml::Value::Float(number, text) => {
            Number::from_f64(*number).map_or_else(|| Value::from(&**text), Value::Number)
        }
        yaml::Value::Str(text) => Value::from(&**text),
        yaml::Value::Seq(items) => items.iter().map(value).collect(),
        yaml::Value::Map(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|entry| (entry.key.to_string(), value(&entry.node)));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}
