//! What is answered: one line for people, or JSON for whoever asks for that.

use disklet::fill::{FillError, FillErrorKind, Stage, Standing};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

pub(super) type Answer = Response<Full<Bytes>>;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    what: String,
    help: Option<String>,
    /// From where on an upload can go on, where that was the question.
    offset: Option<u64>,
}

impl Refusal {
    pub(super) fn new(
        status: StatusCode,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            status,
            what: what.into(),
            help: Some(help.into()),
            offset: None,
        }
    }

    pub(super) fn at(self, offset: u64) -> Self {
        Self {
            offset: Some(offset),
            ..self
        }
    }

    pub(super) fn status(&self) -> u16 {
        self.status.as_u16()
    }

    /// All of it in one line.
    pub(super) fn in_words(&self) -> String {
        let help = self.help.iter().map(|help| format!("; {help}"));
        let line = format!("{}{}", self.what, help.collect::<String>());
        line.replace(['\r', '\n'], " ")
    }

    pub(super) fn answer(&self, as_json: bool) -> Answer {
        let mut answer = match as_json {
            false => plain(self.status, &self.in_words()),
            true => {
                let text = serde_json::json!({
                    "status": self.status(), "error": self.what, "help": self.help,
                });
                of_kind(self.status, "application/json", format!("{text}\n"))
            }
        };
        let headers = answer.headers_mut();
        // Whoever is refused may have more to send, which nobody would read.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(offset) = self.offset {
            headers.insert(OFFSET, HeaderValue::from(offset));
        }
        answer
    }
}

impl From<FillError> for Refusal {
    fn from(error: FillError) -> Self {
        let status = match error.kind() {
            FillErrorKind::Busy | FillErrorKind::Occupied => StatusCode::CONFLICT,
            FillErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            FillErrorKind::Full => StatusCode::INSUFFICIENT_STORAGE,
            FillErrorKind::Format => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            FillErrorKind::Unsound | FillErrorKind::Digest => StatusCode::UNPROCESSABLE_ENTITY,
            FillErrorKind::Stream => StatusCode::BAD_REQUEST,
            FillErrorKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self {
            status,
            what: error.in_words(),
            help: error.remedy().map(str::to_owned),
            offset: None,
        }
    }
}

const OFFSET: HeaderName = HeaderName::from_static("upload-offset");

/// How an upload stands.
pub(super) fn standing(standing: &Standing, is_busy: bool, last: Option<&Refusal>) -> Answer {
    let stage = match (standing.stage, is_busy) {
        (Stage::Done, _) => "done",
        (_, true) => "busy",
        (Stage::Waiting, _) => "waiting",
        (Stage::Filling, _) => "filling",
    };
    let mut answer = plain(StatusCode::OK, stage);
    let mut tell = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            let name = HeaderName::from_static(name);
            answer.headers_mut().insert(name, value);
        }
    };
    tell("upload-state", stage.to_owned());
    tell("upload-offset", standing.taken.to_string());
    tell("upload-disk-offset", standing.disk.to_string());
    if !standing.reason.is_empty() {
        tell("upload-reason", standing.reason.to_owned());
    }
    if let Some(total) = standing.total {
        tell("upload-length", total.to_string());
    }
    if let Some(tag) = &standing.tag {
        tell("upload-tag", tag.clone());
    }
    if let Some(digest) = &standing.digest {
        tell("upload-digest", format!("sha256:{digest}"));
    }
    if let Some(last) = last {
        // For whoever was still sending when it was said.
        tell(
            "upload-error",
            format!("{} {}", last.status(), last.in_words().escape_default()),
        );
    }
    answer
}

pub(super) fn plain(status: StatusCode, text: &str) -> Answer {
    of_kind(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

pub(super) fn of_kind(status: StatusCode, kind: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}
