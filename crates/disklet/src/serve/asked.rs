//! What a request asks for, and whether it may.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use disklet::fill::Coming;
use disklet_core::names::Sha256;
use hyper::StatusCode;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, TRANSFER_ENCODING,
};
use sha2::Digest;

use super::answer::Refusal;

/// The token that requests must bear. Kept as its hash, so that comparing takes the same
/// time whatever comes, and nobody finds it here.
pub(super) struct Token([u8; 32]);

impl Token {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        const LONGEST: u64 = 4096;
        let unread = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let length = fs::metadata(path).map_err(|error| unread(&error))?.len();
        if length > LONGEST {
            return Err(unread(&"is too long for a token"));
        }
        let text = fs::read_to_string(path).map_err(|error| unread(&error))?;
        let token = text.trim();
        let is_one = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match is_one {
            true => Ok(Self::of(token.as_bytes())),
            false => Err(unread(&"does not have one word, the token")),
        }
    }

    fn of(token: &[u8]) -> Self {
        Self(sha2::Sha256::digest(token).into())
    }

    /// Refuses whoever does not bear it.
    pub(super) fn demand(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(words) = headers.get(AUTHORIZATION) else {
            return Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "the request bears no token",
                "send the header Authorization: Bearer TOKEN",
            ));
        };
        let words = words.as_bytes();
        let (scheme, token) = words.split_at(words.len().min(7));
        let other = Self::of(token.trim_ascii());
        let differ = self
            .0
            .iter()
            .zip(other.0)
            .fold(0, |sum, (a, b)| sum | (a ^ b));
        match differ == 0 && scheme.eq_ignore_ascii_case(b"Bearer ") {
            true => Ok(()),
            false => Err(Refusal::new(
                StatusCode::FORBIDDEN,
                "the token is another one",
                "use the token of this upload",
            )),
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

/// What the headers of a PUT say.
pub(super) fn coming(headers: &HeaderMap) -> Result<Coming, Refusal> {
    let length = match text(headers, CONTENT_LENGTH.as_str())? {
        Some(length) => Some(number(length, "Content-Length")?),
        None => None,
    };
    if length.is_none() && !headers.contains_key(TRANSFER_ENCODING) {
        return Err(Refusal::new(
            StatusCode::LENGTH_REQUIRED,
            "nothing says where the upload ends",
            "send Content-Length, or Transfer-Encoding: chunked",
        ));
    }
    let range = match text(headers, CONTENT_RANGE.as_str())? {
        Some(range) => Some(parse_range(range).ok_or_else(|| {
            wrong(
                "Content-Range",
                "send bytes FROM-TO/TOTAL, up to the end of the file",
            )
        })?),
        None => None,
    };
    let offset = match text(headers, "upload-offset")? {
        Some(offset) => Some(number(offset, "Upload-Offset")?),
        None => None,
    };
    let from = match (range, offset) {
        (Some((from, total)), _) => {
            let is_rest = length.is_none_or(|length| length == total - from);
            let agree = offset.is_none_or(|offset| offset == from);
            if !is_rest || !agree {
                return Err(wrong(
                    "Content-Range",
                    "let it agree with the other headers",
                ));
            }
            from
        }
        (None, Some(offset)) => offset,
        (None, None) => 0,
    };
    let total = range
        .map(|(_, total)| total)
        .or(length.and_then(|length| length.checked_add(from)));
    let disk = match text(headers, "upload-disk-size")? {
        Some(size) => Some(number(size, "Upload-Disk-Size")?),
        None => None,
    };
    Ok(Coming {
        from,
        total,
        disk,
        digest: digest(headers)?,
        tag: tag(headers)?,
    })
}

/// `bytes 5-9/10`: from where, and of how many. It must reach to the end.
fn parse_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (from, last) = range.trim().split_once('-')?;
    let (from, last): (u64, u64) = (from.parse().ok()?, last.parse().ok()?);
    let total: u64 = total.trim().parse().ok()?;
    (from <= last && last.checked_add(1) == Some(total)).then_some((from, total))
}

/// Of the whole upload, in one of the headers that are in use for that.
fn digest(headers: &HeaderMap) -> Result<Option<Sha256>, Refusal> {
    if let Some(hex) = text(headers, "x-checksum-sha256")? {
        let help = "send 64 hexadecimal digits";
        return match Sha256::parse_hex(&hex.to_ascii_lowercase()) {
            Some(digest) => Ok(Some(digest)),
            None => Err(wrong("X-Checksum-Sha256", help)),
        };
    }
    for name in ["content-digest", "repr-digest", "digest"] {
        for part in text(headers, name)?.unwrap_or_default().split(',') {
            let Some((kind, value)) = part.trim().split_once('=') else {
                continue;
            };
            if !kind.eq_ignore_ascii_case("sha-256") {
                continue;
            }
            let bytes = STANDARD.decode(value.trim_matches(':'));
            let bytes: Option<[u8; 32]> = bytes.ok().and_then(|bytes| bytes.try_into().ok());
            return match bytes {
                Some(bytes) => Ok(Some(Sha256::from_bytes(bytes))),
                None => Err(wrong(name, "send sha-256=:BASE64:")),
            };
        }
    }
    Ok(None)
}

fn tag(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    const LONGEST: usize = 128;
    match text(headers, "upload-tag")? {
        Some(tag) if tag.len() > LONGEST => Err(wrong("Upload-Tag", "send a shorter one")),
        tag => Ok(tag.map(str::to_owned)),
    }
}

/// Whether whoever asks reads JSON rather than text.
pub(super) fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains("application/json"))
}

/// A header that is there at most once.
fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, Refusal> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => match value.to_str() {
            Ok(text) => Ok(Some(text.trim())),
            Err(_) => Err(wrong(name, "send plain text")),
        },
        (Some(_), Some(_)) => Err(wrong(name, "send it once")),
    }
}

fn number(text: &str, name: &str) -> Result<u64, Refusal> {
    text.parse()
        .map_err(|_| wrong(name, "send a number of bytes"))
}

fn wrong(name: &str, help: &str) -> Refusal {
    let what = format!("the header {name} makes no sense");
    Refusal::new(StatusCode::BAD_REQUEST, what, help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{HeaderName, HeaderValue};

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        lines.iter().map(pair).collect()
    }

    #[test]
    fn a_rest_reaches_to_the_end() {
        let asked = |lines: &[_]| coming(&headers(lines)).map(|it| (it.from, it.total));
        let ranged = |range| asked(&[("content-length", "5"), ("content-range", range)]);
        assert_eq!(ranged("bytes 5-9/10").unwrap(), (5, Some(10)));
        for range in [
            "bytes 5-8/10",
            "bytes 4-9/10",
            "bytes 5-9/*",
            "bytes 9-5/10",
            "x",
        ] {
            assert_eq!(ranged(range).unwrap_err().status(), 400, "{range}");
        }
        let chunked = ("transfer-encoding", "chunked");
        assert_eq!(asked(&[chunked]).unwrap(), (0, None));
        let going_on = [chunked, ("upload-offset", "7")];
        assert_eq!(asked(&going_on).unwrap(), (7, None));
        assert_eq!(asked(&[]).unwrap_err().status(), 411);
    }

    #[test]
    fn digests_come_in_three_headers() {
        let hex = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let wanted = Sha256::parse_hex(hex);
        for line in [
            ("x-checksum-sha256", hex),
            (
                "digest",
                "md5=x, SHA-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
            ),
            (
                "content-digest",
                "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:",
            ),
        ] {
            assert_eq!(digest(&headers(&[line])).unwrap(), wanted, "{line:?}");
        }
        let wrong = digest(&headers(&[("digest", "sha-256=xx")]));
        assert_eq!(wrong.unwrap_err().status(), 400);
    }

    #[test]
    fn a_token_is_whole_and_never_shown() {
        let token = Token::of(b"secret");
        let with = |words| token.demand(&headers(&[("authorization", words)]));
        assert!(with("Bearer secret").is_ok() && with("bearer  secret").is_ok());
        for words in [
            "Bearer secre",
            "Bearer secret2",
            "Basic secret",
            "secret",
            "",
        ] {
            assert_eq!(with(words).unwrap_err().status(), 403, "{words}");
        }
        assert_eq!(token.demand(&headers(&[])).unwrap_err().status(), 401);
        assert_eq!(format!("{token:?}"), "Token");
    }
}
