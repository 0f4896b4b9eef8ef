//! How two configurations become one.

use crate::text::Data;

/// Merges `over` into `base`: mappings merge key by key, lists join (`base`'s
/// elements first), and of anything else `over`'s value stays.
pub fn merge(base: &mut Vec<(String, Data)>, over: Vec<(String, Data)>) {
    for (key, value) in over {
        match base.iter_mut().find(|(known, _)| *known == key) {
            Some((_, old)) => merge_value(old, value),
            None => base.push((key, value)),
        }
    }
}

fn merge_value(base: &mut Data, over: Data) {
    match (base, over) {
        (Data::Map(base), Data::Map(over)) => merge(base, over),
        (Data::List(base), Data::List(over)) => base.extend(over),
        // What joins something hidden is hidden as well.
        (Data::Hidden(base), mut over) => {
            match (base.expose_mut().entries_mut(), over.entries_mut()) {
                (Some(base), Some(over)) => merge(base, std::mem::take(over)),
                _ => *base.expose_mut() = over,
            }
        }
        (base, over) => *base = over,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merged(base: Data, over: Data) -> Data {
        let (Data::Map(mut base), Data::Map(over)) = (base, over) else {
            panic!("both sides are mappings");
        };
        merge(&mut base, over);
        Data::Map(base)
    }

    #[test]
    fn mappings_merge_and_keep_the_order_of_the_base() {
        let base = Data::pairs([
            ("a", Data::Int(1)),
            (
                "map",
                Data::pairs([("x", Data::Int(1)), ("y", Data::Int(2))]),
            ),
        ]);
        let over = Data::pairs([
            ("new", Data::Null),
            (
                "map",
                Data::pairs([("y", Data::Int(3)), ("z", Data::Int(4))]),
            ),
        ]);
        let map = [
            ("x", Data::Int(1)),
            ("y", Data::Int(3)),
            ("z", Data::Int(4)),
        ];
        assert_eq!(
            merged(base, over),
            Data::pairs([
                ("a", Data::Int(1)),
                ("map", Data::pairs(map)),
                ("new", Data::Null)
            ])
        );
    }

    #[test]
    fn lists_join_without_dropping_equal_elements() {
        let base = Data::pairs([("packages", Data::texts(["vim", "git"]))]);
        let over = Data::pairs([("packages", Data::texts(["git", "gcc"]))]);
        assert_eq!(
            merged(base, over),
            Data::pairs([("packages", Data::texts(["vim", "git", "git", "gcc"]))])
        );
    }

    #[test]
    fn of_scalars_and_of_different_kinds_the_override_stays() {
        for over in [
            Data::Bool(false),
            Data::texts(["b"]),
            Data::map(),
            Data::Null,
        ] {
            for base in [
                Data::text("a"),
                Data::texts(["a"]),
                Data::pairs([("a", Data::Null)]),
            ] {
                let both_hold_elements = matches!(
                    (&base, &over),
                    (Data::List(_), Data::List(_)) | (Data::Map(_), Data::Map(_))
                );
                if !both_hold_elements {
                    let outcome = merged(
                        Data::pairs([("k", base)]),
                        Data::pairs([("k", over.clone())]),
                    );
                    assert_eq!(outcome, Data::pairs([("k", over.clone())]));
                }
            }
        }
    }

    fn any_data() -> impl Strategy<Value = Data> {
        let leaf = prop_oneof![
            Just(Data::Null),
            any::<bool>().prop_map(Data::Bool),
            any::<i64>().prop_map(Data::Int),
            "[a-z]{0,3}".prop_map(Data::text),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Data::List),
                any_entries(inner).prop_map(Data::Map),
            ]
        })
    }

    fn any_entries(
        value: impl Strategy<Value = Data> + 'static,
    ) -> impl Strategy<Value = Vec<(String, Data)>> {
        prop::collection::btree_map("[a-d]", value, 0..5).prop_map(|map| map.into_iter().collect())
    }

    /// Whether `whole` has every element of both sides, and nothing else.
    fn holds_both(whole: &Data, base: Option<&Data>, over: Option<&Data>) -> bool {
        match (whole, base, over) {
            (
                Data::Map(entries),
                Some(base @ Data::Map(base_entries)),
                Some(over @ Data::Map(over_entries)),
            ) => {
                let kept = |(key, _): &(String, Data)| whole.get(key).is_some();
                base_entries.iter().all(kept)
                    && over_entries.iter().all(kept)
                    && entries
                        .iter()
                        .all(|(key, value)| holds_both(value, base.get(key), over.get(key)))
            }
            (Data::List(whole), Some(Data::List(base)), Some(Data::List(over))) => {
                *whole == [base.as_slice(), over.as_slice()].concat()
            }
            (whole, base, over) => over.or(base) == Some(whole),
        }
    }

    proptest! {
        #[test]
        fn every_element_of_both_sides_survives(
            base in any_entries(any_data()).prop_map(Data::Map),
            over in any_entries(any_data()).prop_map(Data::Map),
        ) {
            let whole = merged(base.clone(), over.clone());
            prop_assert!(holds_both(&whole, Some(&base), Some(&over)));
        }
    }
}
