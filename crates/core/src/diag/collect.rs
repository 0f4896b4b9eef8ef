//! Problems on their way to whoever reads them.

use super::{Diagnostic, Origin, Place, Severity};

/// Collects diagnostics.
#[derive(Debug, Default)]
pub struct Diagnostics {
    errors: Vec<Diagnostic>,
    notices: Vec<Diagnostic>,
    asides: Vec<Diagnostic>,
    error_count: usize,
    /// How many notices of both kinds were told.
    notice_count: usize,
    /// The inputs in the order in which they were read.
    files: Vec<Origin>,
}

/// Nobody reads more than this, and hostile input could make millions. Further
/// ones are only counted.
const MOST_ERRORS: usize = 500;
const MOST_NOTICES: usize = 50;

impl Diagnostics {
    /// Says that an input is being read: its problems come after those of the
    /// inputs before it.
    pub fn begin_file(&mut self, name: &Origin) {
        self.files.push(name.clone());
    }

    /// Adds one. The same one twice (two disks that share a broken claim) is
    /// told once.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        let (list, count, most) = match diagnostic.severity {
            Severity::Error => (&mut self.errors, &mut self.error_count, MOST_ERRORS),
            Severity::Notice => (&mut self.notices, &mut self.notice_count, MOST_NOTICES),
            Severity::Aside => (&mut self.asides, &mut self.notice_count, MOST_NOTICES),
        };
        if list.contains(&diagnostic) {
            return;
        }
        *count += 1;
        if list.len() < most {
            list.push(diagnostic);
        }
    }

    /// How many refusals there are.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.error_count
    }

    /// All of them, in the order of the input. If there are too many notices,
    /// those about objects that play no part give way, and the last one says
    /// how many are left out.
    #[must_use]
    pub fn into_sorted(mut self) -> Vec<Diagnostic> {
        self.asides.truncate(MOST_NOTICES - self.notices.len());
        let left_out = self.notice_count - self.notices.len() - self.asides.len();
        let rank = |place: &Place| self.files.iter().position(|file| *file == place.file);
        let notices = self.notices.into_iter().chain(self.asides);
        let mut list: Vec<_> = self.errors.into_iter().chain(notices).collect();
        list.sort_by_key(|diagnostic| {
            diagnostic
                .place
                .as_ref()
                .map(|place| (rank(place), place.pos))
        });
        list.extend(more_notices(left_out));
        list
    }
}

fn more_notices(count: usize) -> Option<Diagnostic> {
    let message = match count {
        0 => return None,
        1 => "and 1 more notice".to_owned(),
        count => format!("and {count} more notices"),
    };
    Some(Diagnostic {
        severity: Severity::Aside,
        place: None,
        message,
        found: None,
        allowed: None,
        help: None,
        remedy: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::place;
    use super::*;

    #[test]
    fn the_same_problem_is_told_once() {
        let mut all = Diagnostics::default();
        all.push(Diagnostic::error(&place(), "x"));
        all.push(Diagnostic::error(&place(), "x"));
        assert_eq!(all.errors(), 1);
        assert_eq!(all.into_sorted().len(), 1);
    }

    #[test]
    fn notices_about_vms_come_before_those_about_bystanders() {
        let mut all = Diagnostics::default();
        for n in 0..70 {
            all.push(Diagnostic::aside(&place(), format!("skipped {n}")));
        }
        for n in 0..3 {
            all.push(Diagnostic::notice(&place(), format!("no effect {n}")));
        }
        let told: Vec<_> = all
            .into_sorted()
            .iter()
            .map(|d| d.message.clone())
            .collect();
        assert_eq!(told.len(), MOST_NOTICES + 1);
        for n in 0..3 {
            assert!(told.contains(&format!("no effect {n}")), "{told:?}");
        }
        assert_eq!(told[MOST_NOTICES], "and 23 more notices");
    }
}
