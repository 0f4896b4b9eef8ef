//! Words of closed sets, and fields that are spelled in two ways.

use crate::diag::{Diagnostic, Diagnostics};
use crate::yaml::{Fields, Spanned, View};

/// A field in kebab-case, as the first documents have it, or in camelCase, as
/// Kubernetes has it.
pub(super) fn either<'n>(
    fields: &mut Fields<'n>,
    kebab: &str,
    camel: &str,
    diags: &mut Diagnostics,
) -> Option<View<'n>> {
    let (one, other) = (fields.get(kebab), fields.get(camel));
    if let (Some(_), Some(other)) = (&one, &other) {
        diags.push(
            Diagnostic::error(&other.place, format!("{kebab} stands there as well"))
                .help("both mean the same; keep one of the two"),
        );
    }
    one.or(other)
}

/// A word of a closed set.
pub(super) fn word<T: Copy>(
    view: &View<'_>,
    what: &str,
    words: &[(&str, T)],
    diags: &mut Diagnostics,
) -> Option<Spanned<T>> {
    let text = view.text(diags)?;
    let found = words.iter().find(|(word, _)| *word == text);
    if found.is_none() {
        let all: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        diags.push(
            Diagnostic::error(&view.place, format!("not {what}"))
                .found(format!("{text:?}"))
                .allowed(all.join(", "))
                .did_you_mean(text, all.iter().copied()),
        );
    }
    found.map(|(_, value)| Spanned {
        value: *value,
        place: view.place.clone(),
    })
}

/// A whole number in a range.
pub(super) fn number(
    view: &View<'_>,
    what: &str,
    range: std::ops::RangeInclusive<i64>,
    diags: &mut Diagnostics,
) -> Option<Spanned<u32>> {
    let number = view.int(diags)?;
    let fits = u32::try_from(number)
        .ok()
        .filter(|_| range.contains(&number));
    if fits.is_none() {
        diags.push(
            Diagnostic::error(&view.place, format!("not {what}"))
                .found(number)
                .allowed(format!("{} to {}", range.start(), range.end())),
        );
    }
    fits.map(|value| Spanned {
        value,
        place: view.place.clone(),
    })
}
