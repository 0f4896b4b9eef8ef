//! Problems of objects in a cluster, for people: lines and columns mean nothing
//! to them, fields do.

use disklet_core::diag::Diagnostic;

/// Field, reason and remedy of a problem, in one line.
#[must_use]
pub fn sentence(problem: &Diagnostic) -> String {
    let path = problem.place.as_ref().map(|place| place.path.to_string());
    let mut out = match path.filter(|path| !path.is_empty()) {
        Some(path) => format!("{path}: {}", problem.message),
        None => problem.message.clone(),
    };
    let details = [
        ("found", &problem.found),
        ("allowed", &problem.allowed),
        ("help", &problem.help),
    ];
    let details: Vec<_> = details
        .into_iter()
        .filter_map(|(label, text)| Some(format!("{label}: {}", text.as_ref()?)))
        .collect();
    if !details.is_empty() {
        out.push_str(&format!(" ({})", details.join("; ")));
    }
    out
}

/// A text of at most so many bytes, cut between letters.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most.saturating_sub('…'.len_utf8()));
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_letters() {
        let cut = shortened(&"ä".repeat(600), 1024);
        assert!(cut.len() <= 1024 && cut.ends_with("ä…"), "{}", cut.len());
        assert_eq!(shortened("short", 5), "short");
    }
}
