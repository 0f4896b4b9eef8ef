//! YAML as the API server reads it.

use disklet_core::yaml::{Limits, Node, Value, documents as read};
use serde_json::Value as Json;

/// Every document of a text.
pub(crate) fn documents(text: &str) -> Vec<Json> {
    let documents = read(text, Limits::default());
    documents.map(|root| json(&root.unwrap())).collect()
}

fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::from(*value),
        Value::Int(value, _) => Json::from(*value),
        Value::Float(value, _) => Json::from(*value),
        Value::Str(text) => Json::from(&**text),
        Value::Seq(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.to_string(), json(&entry.node)))
            .collect(),
    }
}
