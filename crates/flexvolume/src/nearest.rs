//! Which of the known words a misspelt one was probably meant to be.

/// The known word nearest to `word`, if one is near enough to be worth
/// suggesting. The first of several equally near ones.
pub(crate) fn nearest(
    word: &str,
    known: impl IntoIterator<Item = &'static str>,
) -> Option<&'static str> {
    let word: Vec<char> = word.chars().map(|c| c.to_ascii_lowercase()).collect();
    known
        .into_iter()
        .filter_map(|candidate| Some((edits(&word, candidate)?, candidate)))
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Two slips of the finger are a misspelling; more make another word.
const MOST_EDITS: usize = 2;

/// How many letters to insert, remove, replace or swap with their neighbour,
/// or nothing if that is too many. In a short word, half of the letters have
/// to be right, or every word of two letters would resemble `raw`.
fn edits(word: &[char], candidate: &str) -> Option<usize> {
    let candidate: Vec<char> = candidate.chars().collect();
    if word.len().abs_diff(candidate.len()) > MOST_EDITS {
        return None;
    }
    let edits = distance(word, &candidate);
    (edits <= MOST_EDITS && edits * 2 <= candidate.len()).then_some(edits)
}

/// The optimal-string-alignment distance, row by row; swaps look back to the
/// row before the last.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before_last = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut row = vec![i + 1; to.len() + 1];
        for (j, b) in to.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            row[j + 1] = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == to[j - 1] && from[i - 1] == *b {
                row[j + 1] = row[j + 1].min(before_last[j - 1] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(from: &str, to: &str) -> usize {
        let letters = |word: &str| word.chars().collect::<Vec<_>>();
        distance(&letters(from), &letters(to))
    }

    #[test]
    fn each_kind_of_slip_counts_once() {
        assert_eq!(steps("path", "path"), 0);
        assert_eq!(steps("pat", "path"), 1);
        assert_eq!(steps("paath", "path"), 1);
        assert_eq!(steps("pith", "path"), 1);
        assert_eq!(steps("apth", "path"), 1);
        assert_eq!(steps("", "path"), 4);
        assert_eq!(steps("kitten", "sitting"), 3);
    }

    #[test]
    fn suggests_only_what_is_near() {
        let kinds = ["qcow2", "raw", "ceph"];
        assert_eq!(nearest("qcow", kinds), Some("qcow2"));
        assert_eq!(nearest("QCOW2", kinds), Some("qcow2"));
        assert_eq!(nearest("rwa", kinds), Some("raw"));
        assert_eq!(nearest("rbd", kinds), None);
        assert_eq!(nearest("ab", kinds), None);
        assert_eq!(nearest("", kinds), None);
        assert_eq!(nearest(&"qcow2".repeat(1000), kinds), None);
    }

    proptest! {
        #[test]
        fn distance_is_symmetric_and_bounded(a in "[abc]{0,8}", b in "[abc]{0,8}") {
            prop_assert_eq!(steps(&a, &b), steps(&b, &a));
            prop_assert!(steps(&a, &b) <= a.len().max(b.len()));
            prop_assert_eq!(steps(&a, &b) == 0, a == b);
        }
    }
}
