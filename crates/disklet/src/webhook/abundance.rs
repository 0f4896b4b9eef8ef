//! How much an object may hold. To read it takes a hundred times what it took to write,
//! and whoever may write objects may write many at once.

use disklet_core::diag::{Diagnostic, FieldPath, Origin, Place, Pos};
use serde_json::Value;

/// A VM has some hundreds, and thousands if a whole configuration is written into it.
const MOST_VALUES: usize = 50_000;

/// Why an object is not even read, if it is not.
pub(super) fn refusal(object: &Value) -> Option<Diagnostic> {
    let count = values(object);
    if count <= MOST_VALUES {
        return None;
    }
    let (path, entries) = most_crowded(object);
    let place = Place {
        file: Origin::object(""),
        pos: Pos { line: 0, column: 0 },
        path,
    };
    let refusal = Diagnostic::error(&place, "too much for one object")
        .found(format!("{entries} entries, {count} values in the object"))
        .allowed(format!("{MOST_VALUES} values in an object"))
        .help("remove what is not needed, and put much data as one text into a ConfigMap");
    Some(refusal)
}

/// So many there are, lists and mappings among them.
fn values(value: &Value) -> usize {
    1 + parts(value).map(|(_, part)| values(part)).sum::<usize>()
}

/// The list or mapping that has most of it, and how many entries it has.
fn most_crowded(object: &Value) -> (FieldPath, usize) {
    let (mut value, mut path) = (object, FieldPath::default());
    loop {
        let all = values(value);
        match parts(value).find(|(_, part)| values(part) * 2 > all) {
            Some((Step::Key(key), part)) => (value, path) = (part, path.key(key)),
            Some((Step::Index(index), part)) => (value, path) = (part, path.index(index)),
            None => return (path, parts(value).count()),
        }
    }
}

enum Step<'v> {
    Key(&'v str),
    Index(usize),
}

fn parts(value: &Value) -> impl Iterator<Item = (Step<'_>, &Value)> {
    let listed = value.as_array().into_iter().flatten().enumerate();
    let listed = listed.map(|(index, part)| (Step::Index(index), part));
    let mapped = value.as_object().into_iter().flatten();
    listed.chain(mapped.map(|(key, part)| (Step::Key(key), part)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_too_much_is_named() {
        let disks = |count: usize| {
            let disk = json!({"name": "a", "source": {"image": {"name": "b"}}});
            json!({"spec": {"domain": {"devices": {"disks": vec![disk; count]}}}})
        };
        assert_eq!(refusal(&disks(9_000)).map(|told| told.to_string()), None);
        let told = refusal(&disks(10_001)).unwrap().to_string();
        assert!(
            told.contains("spec.domain.devices.disks: too much for one object"),
            "{told}"
        );
        assert!(told.contains("10001 entries, 50010 values"), "{told}");
        let keys = (0..60_000).map(|nth| (nth.to_string(), json!(1)));
        let told = refusal(&json!({"spec": keys.collect::<serde_json::Map<_, _>>()}));
        assert!(told.unwrap().to_string().contains("60000 entries"));
    }
}
