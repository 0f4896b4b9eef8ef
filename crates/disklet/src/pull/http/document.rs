//! Small answers, read as a whole.

use std::io::Read;

use disklet_core::text::Secret;
use disklet_core::url::Url;
use ureq::Body;
use ureq::http::{HeaderMap, Response};

use super::Client;
use super::client::Asked;
use super::patience::{in_words, pause};
use crate::pull::{Observer, PullError, PullErrorKind};
use crate::report::with_causes;

/// An answer.
pub(in crate::pull) struct Document {
    pub(in crate::pull) bytes: Vec<u8>,
    headers: HeaderMap,
}

impl Document {
    /// One that has at most so many bytes. A server that cannot answer now is
    /// asked again, and so is one from which the connection was lost.
    pub(in crate::pull) fn fetch(
        client: &Client,
        most: u64,
        retries: u32,
        observer: &dyn Observer,
    ) -> Result<Self, PullError> {
        let mut tries = 0;
        loop {
            let error = match Self::of(client, most) {
                Ok(document) => return Ok(document),
                Err(error) => error,
            };
            let is_worth_it = matches!(error.kind(), PullErrorKind::Busy | PullErrorKind::Lost);
            if !is_worth_it || tries >= retries || observer.cancelled() {
                return Err(error);
            }
            observer.notice(&format!("{}; trying again", with_causes(&error)));
            tries += 1;
            pause(tries, observer);
        }
    }

    pub(super) fn of(client: &Client, most: u64) -> Result<Self, PullError> {
        let (url, response) = client.follow(Asked::All)?;
        Self::read(client, &url, response, most)
    }

    /// The answer to something that is said.
    pub(super) fn of_form(client: &Client, form: &Secret, most: u64) -> Result<Self, PullError> {
        Self::read(client, client.url(), client.post(form)?, most)
    }

    fn read(
        client: &Client,
        url: &Url,
        response: Response<Body>,
        most: u64,
    ) -> Result<Self, PullError> {
        if response.status().as_u16() != 200 {
            return Err(client.refused(url, response.status().as_u16()));
        }
        let (parts, body) = response.into_parts();
        let mut bytes = Vec::new();
        let reader = body.into_with_config().limit(u64::MAX).reader();
        let read = reader.take(most.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| {
            PullError::new(PullErrorKind::Lost, format!("{url}: {}", in_words(&error))).passing()
        })?;
        if bytes.len() as u64 > most {
            let what = format!("{url}: the answer is longer than {most} bytes");
            return Err(PullError::new(PullErrorKind::TooLarge, what));
        }
        let headers = parts.headers;
        Ok(Self { bytes, headers })
    }

    /// What is said of it.
    pub(in crate::pull) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
