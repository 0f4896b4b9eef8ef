//! What may be changed of a launcher that stands for a VM pod.
//!
//! Whoever applies a VM pod's manifest a second time asks, without knowing, that
//! the launcher gives way to what the manifest has in its place. That is no change.

use serde_json::{Map, Value};

use super::intact::label_to_keep;
use super::{REPLACED, SAVED};
use crate::launch::pod::VM_LABEL;

/// A field of a VM pod that cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed(pub String);

/// The launcher after an update that asks for nothing but what the VM pod says
/// anyway; else the first field that would be changed.
pub fn kept(old: &Value, new: &Value) -> Result<Value, Changed> {
    let saved = old["metadata"]["annotations"][SAVED].as_str();
    let saved = saved.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    let saved = Value::Object(saved.unwrap_or_default());
    let mut kept = new.clone();
    kept["metadata"]["annotations"][SAVED] = old["metadata"]["annotations"][SAVED].clone();
    if let label @ Value::String(_) = label_to_keep(old, new) {
        kept["metadata"]["labels"][VM_LABEL] = label;
    }
    for key in REPLACED {
        let (now, then) = (&new["spec"][key], &old["spec"][key]);
        asks_for_nothing(now, then, &saved[key], &format!("spec.{key}"))?;
        match old["spec"].get(key) {
            Some(value) => kept["spec"][key] = value.clone(),
            None => {
                if let Some(spec) = kept["spec"].as_object_mut() {
                    spec.remove(key);
                }
            }
        }
    }
    Ok(kept)
}

/// Whether every value is the launcher's or the VM pod's, in any mixture: who
/// patches merges the two.
fn asks_for_nothing(now: &Value, then: &Value, saved: &Value, path: &str) -> Result<(), Changed> {
    match now {
        Value::Null => Ok(()),
        _ if now == then || now == saved => Ok(()),
        Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
            asks_for_nothing(value, &then[key], &saved[key], &format!("{path}.{key}"))
        }),
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            let path = format!("{path}[{index}]");
            asks_for_nothing(item, alike(then, item), alike(saved, item), &path)
        }),
        _ => Err(Changed(path.to_owned())),
    }
}

/// The item of a list that an item of another version of it is.
fn alike<'v>(list: &'v Value, item: &Value) -> &'v Value {
    const KEYS: [&str; 5] = [
        "mountPath",
        "devicePath",
        "containerPort",
        "conditionType",
        "name",
    ];
    static NONE: Value = Value::Null;
    let key = KEYS.into_iter().find(|key| item.get(key).is_some());
    let is_it = |other: &&Value| match key {
        Some(key) => other.get(key) == item.get(key),
        None => *other == item,
    };
    let mut all = list.as_array().into_iter().flatten();
    all.find(is_it).unwrap_or(&NONE)
}
