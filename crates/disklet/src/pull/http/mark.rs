//! By what a file of a web server is known again.

use ureq::http::{HeaderMap, header};

/// What a server says of a file's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mark {
    etag: Option<Etag>,
    modified: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Etag {
    quoted: String,
    /// Files that differ in bytes may have it in common.
    is_weak: bool,
}

impl Mark {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| Some(headers.get(name)?.to_str().ok()?.trim().to_owned());
        Self {
            etag: text(header::ETAG).map(|text| Etag::of(&text)),
            modified: text(header::LAST_MODIFIED),
        }
    }

    /// Whether it is still the same file. Servers give weak tags to files of the last
    /// second, and strong ones later: what both have in common decides.
    pub(super) fn is_of_same(&self, other: &Self) -> bool {
        let tags = self.etag.as_ref().zip(other.etag.as_ref());
        match tags {
            Some((one, two)) if !one.is_weak && !two.is_weak => one == two,
            Some((one, two)) => one.quoted == two.quoted && self.modified == other.modified,
            None => self.etag == other.etag && self.modified == other.modified,
        }
    }
}

impl Etag {
    fn of(text: &str) -> Self {
        let weak = text.strip_prefix("W/");
        Self {
            quoted: weak.unwrap_or(text).to_owned(),
            is_weak: weak.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(etag: Option<&str>, modified: Option<&str>) -> Mark {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::ETAG, etag), (header::LAST_MODIFIED, modified)] {
            headers.extend(value.map(|value| (name, value.parse().unwrap())));
        }
        Mark::of(&headers)
    }

    #[test]
    fn a_tag_that_becomes_a_strong_one_is_the_same() {
        let (weak, strong) = (Some("W/\"x\""), Some("\"x\""));
        for (one, two, same) in [
            (mark(strong, Some("then")), mark(strong, Some("now")), true),
            (mark(weak, Some("then")), mark(strong, Some("then")), true),
            (mark(weak, Some("then")), mark(strong, Some("now")), false),
            (
                mark(weak, Some("then")),
                mark(Some("\"y\""), Some("then")),
                false,
            ),
            (mark(strong, None), mark(Some("\"y\""), None), false),
            (mark(None, Some("then")), mark(None, Some("now")), false),
            (mark(strong, Some("then")), mark(None, Some("then")), false),
            (mark(None, None), mark(None, None), true),
        ] {
            assert_eq!(one.is_of_same(&two), same, "{one:?} {two:?}");
            assert_eq!(two.is_of_same(&one), same, "{one:?} {two:?}");
        }
    }
}
