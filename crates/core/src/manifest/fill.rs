//! Claims that somebody fills before a VM may have them.

use std::fmt;

use crate::diag::{Diagnostic, Diagnostics};
use crate::yaml::{Spanned, View};

/// How far the filling of a claim is. A claim without a word of it is as full as it will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// Whoever made the claim wants it filled first.
    Wanted,
    /// Somebody has begun, and what is there means nothing.
    Begun,
    /// It is full, and durable.
    Done,
}

impl Fill {
    /// The annotation of a claim that says so.
    pub const ANNOTATION: &str = "disklet.io/fill";
    const ALL: [Self; 3] = [Self::Wanted, Self::Begun, Self::Done];

    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Begun => "begun",
            Self::Done => "done",
        }
    }

    /// Whether a VM may have the claim.
    #[must_use]
    pub fn is_done(self) -> bool {
        self == Self::Done
    }

    /// What keeps a VM from having the claim.
    #[must_use]
    pub fn why_not(self) -> &'static str {
        match self {
            Self::Wanted => "is not filled yet",
            Self::Begun => "is being filled, or its filling was broken off",
            Self::Done => "is filled",
        }
    }

    /// What a claim says of itself. One that says what nobody understands is not to be had.
    pub(super) fn read(claim: &View<'_>, diags: &mut Diagnostics) -> Option<Self> {
        let text = annotation(claim)?;
        let known = Self::ALL.into_iter().find(|it| it.as_str() == text.value);
        if known.is_none() {
            let words = Self::ALL.map(Self::as_str);
            diags.push(
                Diagnostic::error(&text.place, "not a state of filling a claim")
                    .found(format!("{:?}", text.value))
                    .allowed(words.join(", "))
                    .did_you_mean(&text.value, words),
            );
        }
        Some(known.unwrap_or(Self::Wanted))
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

fn annotation(claim: &View<'_>) -> Option<Spanned<String>> {
    // Whether they are what they should be is looked at elsewhere.
    let mut elsewhere = Diagnostics::default();
    let mut object = claim.fields(&mut elsewhere)?;
    let mut meta = object.fields("metadata", &mut elsewhere)?;
    let mut annotations = meta.fields("annotations", &mut elsewhere)?;
    annotations.spanned_text(Fill::ANNOTATION, &mut elsewhere)
}
