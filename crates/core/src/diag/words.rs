//! Texts of the input in messages: limited, printable, and compared with what is known.

use disklet_flexvolume::is_unprintable;

/// What input can put into a message is limited: long values would bury it,
/// and control characters could rewrite the terminal.
const LONGEST_VALUE: usize = 120;
pub(super) const LONGEST_SENTENCE: usize = 600;
pub(super) const LONGEST_LIST: usize = 2000;

/// A text of the input as a message shows it.
#[must_use]
pub fn shortened(text: &str) -> String {
    if is_private_key(text) {
        return "a private key".to_owned();
    }
    within(text, LONGEST_VALUE)
}

/// Whether a text has a private key in it, as OpenSSH and OpenSSL write them.
pub(crate) fn is_private_key(text: &str) -> bool {
    text.contains("PRIVATE KEY-----")
}

pub(super) fn within(text: &str, most: usize) -> String {
    let mut out: String = text.chars().take(most).flat_map(printable).collect();
    if text.chars().nth(most).is_some() {
        out.push('…');
    }
    out
}

/// A text in which what would not show is escaped.
pub(crate) fn shown(text: &str) -> String {
    text.chars().flat_map(printable).collect()
}

fn printable(c: char) -> impl Iterator<Item = char> {
    let escaped = is_unprintable(c).then(|| c.escape_default());
    let plain = (!is_unprintable(c)).then_some(c);
    escaped.into_iter().flatten().chain(plain)
}

/// The known word nearest to a written one, if it is near enough to be meant.
#[must_use]
pub fn nearest<'k>(written: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let folded = written.to_ascii_lowercase();
    let allowance = (folded.chars().count() / 3).clamp(1, 3);
    known
        .into_iter()
        .map(|word| {
            (
                strsim::osa_distance(&folded, &word.to_ascii_lowercase()),
                word,
            )
        })
        .filter(|(distance, word)| *distance <= allowance && *word != written)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Whether a written word is nearly, but not quite, a known one: it differs in
/// the case of its letters alone, or in two letters at most.
pub(crate) fn is_slip(written: &str, known: &str) -> bool {
    if written == known {
        return false;
    }
    if written.eq_ignore_ascii_case(known) {
        return true;
    }
    let long_enough = written.len() >= 5 && written.len().abs_diff(known.len()) <= 2;
    long_enough
        && strsim::osa_distance(&written.to_ascii_lowercase(), &known.to_ascii_lowercase()) <= 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_words_are_not_suggested() {
        assert_eq!(nearest("capacty", ["capacity", "path"]), Some("capacity"));
        assert_eq!(nearest("zzz", ["capacity", "path"]), None);
        assert_eq!(nearest("Type", ["type"]), Some("type"));
    }
}
