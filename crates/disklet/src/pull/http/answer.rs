//! What a server answers when it is asked for a file, or for the rest of one.

use ureq::http::{HeaderMap, Response, header};
use ureq::{Body, BodyReader};

use crate::pull::{PullError, PullErrorKind};
use crate::store::Validator;

/// A file on its way.
pub(super) struct Answer {
    pub(super) body: BodyReader<'static>,
    /// The offset of the body's first byte.
    pub(super) from: u64,
    /// How long the whole file is, if that is known.
    pub(super) total: Option<u64>,
    pub(super) validator: Option<Validator>,
    /// Whether it can be told from a lost connection where the file ends.
    pub(super) has_end: bool,
    /// Whether the server says that it is a page for people.
    pub(super) is_page: bool,
}

impl Answer {
    /// Of status 200 or 206.
    pub(super) fn of(response: Response<Body>, where_: &str) -> Result<Self, PullError> {
        let headers = response.headers();
        let is_part = response.status().as_u16() == 206;
        refuse_encoded(headers, where_)?;
        let length = number(headers, header::CONTENT_LENGTH);
        let (from, total) = match is_part {
            false => (0, length),
            true => content_range(headers).ok_or_else(|| {
                wrong_part(where_, "the server sends a part and does not say which")
            })?,
        };
        let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
        Ok(Self {
            from,
            total,
            validator: validator(headers),
            is_page: is_page(headers),
            has_end: is_chunked || total.is_some(),
            body: response
                .into_body()
                .into_with_config()
                .limit(u64::MAX)
                .reader(),
        })
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("from", &self.from)
            .field("total", &self.total)
            .field("validator", &self.validator)
            .finish_non_exhaustive()
    }
}

/// Encoded on the way although we asked for the file as it is. What is inside
/// of gzip or zstd, as images often are, is seen when it comes.
pub(super) fn refuse_encoded(headers: &HeaderMap, where_: &str) -> Result<(), PullError> {
    const KNOWN: [&str; 5] = ["", "identity", "gzip", "x-gzip", "zstd"];
    let codings = headers.get_all(header::CONTENT_ENCODING).iter();
    for coding in codings.map(|coding| coding.to_str().unwrap_or("?").trim()) {
        if !KNOWN.iter().any(|known| coding.eq_ignore_ascii_case(known)) {
            return Err(PullError::new(
                PullErrorKind::Protocol,
                format!("{where_}: the server sends the file encoded as {coding:.40?}, which is not known here"),
            )
            .help("have the server send the file as it is, or fetch it by other means and use --from FILE"));
        }
    }
    Ok(())
}

fn is_page(headers: &HeaderMap) -> bool {
    let text = headers
        .get(header::CONTENT_TYPE)
        .and_then(|it| it.to_str().ok());
    let kind = text.and_then(|text| text.split(';').next());
    kind.is_some_and(|kind| {
        let kind = kind.trim();
        kind.eq_ignore_ascii_case("text/html") || kind.eq_ignore_ascii_case("application/xhtml+xml")
    })
}

fn number(headers: &HeaderMap, name: header::HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// Parts of this server are of no use.
pub(super) fn wrong_part(where_: &str, why: &str) -> PullError {
    PullError::new(PullErrorKind::WrongPart, format!("{where_}: {why}")).help(
        "what was lost on the way cannot be had from this server alone: fetch the file by other means and use --from FILE",
    )
}

/// `bytes */10`: how long the file is, of which there is no such part.
pub(super) fn length_without_part(headers: &HeaderMap) -> Option<u64> {
    let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let length = text
        .trim()
        .strip_prefix("bytes ")?
        .trim()
        .strip_prefix("*/")?;
    length.trim().parse().ok()
}

/// `bytes 5-9/10`: from where to the end, and of how many.
fn content_range(headers: &HeaderMap) -> Option<(u64, Option<u64>)> {
    let Part { first, last, total } = Part::of(headers)?;
    // A part that ends before the file does would look like a lost connection.
    total
        .is_none_or(|total| last.checked_add(1) == Some(total))
        .then_some((first, total))
}

/// Which bytes are sent, both ends included, and of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) total: Option<u64>,
}

impl Part {
    /// `bytes 5-9/10`.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let text = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
        let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.trim().split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        let total = match total.trim() {
            "*" => None,
            total => Some(total.parse().ok()?),
        };
        (first <= last).then_some(Self { first, last, total })
    }
}

/// A weak tag is equal for files that differ in bytes.
fn validator(headers: &HeaderMap) -> Option<Validator> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.trim().to_owned());
    let etag = text(header::ETAG).filter(|tag: &String| tag.starts_with('"'));
    let modified = || text(header::LAST_MODIFIED).map(Validator::LastModified);
    etag.map(Validator::Etag).or_else(modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn parts_must_reach_to_the_end() {
        let range = |text| content_range(&headers(header::CONTENT_RANGE, text));
        assert_eq!(range("bytes 5-9/10"), Some((5, Some(10))));
        assert_eq!(range("bytes 5-9/*"), Some((5, None)));
        for text in [
            "bytes 5-8/10",
            "bytes 9-5/10",
            "bytes */10",
            "lines 1-2/3",
            "",
        ] {
            assert_eq!(range(text), None, "{text}");
        }
    }

    #[test]
    fn weak_tags_do_not_count() {
        let mut both = headers(header::ETAG, "W/\"x\"");
        assert_eq!(validator(&both), None);
        both.insert(header::LAST_MODIFIED, "then".parse().unwrap());
        assert_eq!(
            validator(&both),
            Some(Validator::LastModified("then".to_owned()))
        );
    }
}
