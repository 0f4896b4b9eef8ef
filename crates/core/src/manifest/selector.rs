//! Label selectors, as claims use them to choose their volume.

use crate::diag::{Diagnostic, Diagnostics};
use crate::yaml::{Fields, View};

use super::meta::texts;

/// A label selector.
#[derive(Debug, Clone, Default)]
pub struct Selector {
    labels: Vec<(String, String)>,
    expressions: Vec<Expression>,
}

/// One condition of a selector.
#[derive(Debug, Clone)]
struct Expression {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn selects(&self, labels: &[(String, String)]) -> bool {
        let value = |key: &str| labels.iter().find(|(k, _)| k == key).map(|(_, v)| v);
        let equal = self
            .labels
            .iter()
            .all(|(key, wanted)| value(key) == Some(wanted));
        equal
            && self.expressions.iter().all(|expression| {
                let found = value(&expression.key);
                let listed = found.is_some_and(|v| expression.values.contains(v));
                match expression.operator {
                    Operator::In => listed,
                    Operator::NotIn => !listed,
                    Operator::Exists => found.is_some(),
                    Operator::DoesNotExist => found.is_none(),
                }
            })
    }

    pub(super) fn read(mut fields: Fields<'_>, diags: &mut Diagnostics) -> Self {
        let labels = texts(fields.entries("matchLabels", diags), diags);
        let expressions = fields
            .items("matchExpressions", diags)
            .iter()
            .filter_map(|item| Expression::read(item, diags))
            .collect();
        fields.tell_slips(diags);
        Self {
            labels,
            expressions,
        }
    }
}

impl Expression {
    fn read(view: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let mut fields = view.fields(diags)?;
        let key = fields.required_text("key", diags)?.value;
        let operator = fields.required_text("operator", diags)?;
        let values = fields
            .items("values", diags)
            .iter()
            .filter_map(|value| value.text(diags).map(str::to_owned))
            .collect();
        let operator = match operator.value.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                diags.push(
                    Diagnostic::error(&operator.place, "not an operator of a selector")
                        .found(format!("{other:?}"))
                        .allowed("In, NotIn, Exists, DoesNotExist"),
                );
                return None;
            }
        };
        Some(Self {
            key,
            operator,
            values,
        })
    }
}
