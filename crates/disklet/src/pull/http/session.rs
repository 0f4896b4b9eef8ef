//! Who we are at a registry: what it wants to know is found out when it asks.
//!
//! ```text
//!   registry --401, realm--> token server --token--> registry
//!                (who we are)
//! ```
//!
//! Credentials go to the registry itself, or to whom it names for that; in the
//! clear only if that was said.

use std::fmt::Write as _;
use std::sync::Mutex;

use disklet_core::text::Secret;
use disklet_core::url::{Scheme, Url};
use serde::Deserialize;
use ureq::http::{HeaderMap, header};

use super::{Client, Document};
use crate::pull::{PullError, PullErrorKind};

type Result<T> = std::result::Result<T, PullError>;

/// A token server has not more to say.
const LONGEST_ANSWER: u64 = 1 << 20;
/// And a token fits into a header.
const LONGEST_TOKEN: usize = 16 << 10;

/// Who we are.
#[derive(Debug, Clone)]
pub(in crate::pull) enum Login {
    /// A user and a password, as the value of `Authorization`.
    Basic(Secret),
    /// What a token server has given for such a purpose.
    Identity(Secret),
}

/// What a registry knows of us.
#[derive(Debug)]
pub(in crate::pull) struct Session {
    login: Option<Login>,
    /// What we want there.
    scope: String,
    /// Whether tokens may be asked for in the clear.
    may_be_clear: bool,
    words: Mutex<Option<Secret>>,
}

/// What a registry wants to know.
#[derive(Debug, PartialEq, Eq)]
enum Challenge {
    Basic,
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session {
    /// For pulling from a repository.
    pub(in crate::pull) fn new(login: Option<Login>, repository: &str, may_be_clear: bool) -> Self {
        Self {
            login,
            scope: format!("repository:{repository}:pull"),
            may_be_clear,
            words: Mutex::new(None),
        }
    }

    /// What the registry is told.
    pub(super) fn words(&self) -> Option<Secret> {
        self.words.lock().ok()?.clone()
    }

    /// The registry wants to know who we are; whether there is something new to
    /// tell it.
    pub(super) fn challenged(&self, headers: &HeaderMap, client: &Client) -> Result<bool> {
        let said = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let said = said.filter_map(|value| value.to_str().ok());
        let challenges: Vec<_> = said.flat_map(challenges).collect();
        let bearer = challenges.iter().find_map(|challenge| match challenge {
            Challenge::Bearer { realm, service } => Some((realm, service.as_deref())),
            Challenge::Basic => None,
        });
        let words = match (bearer, &self.login) {
            (Some((realm, service)), _) => self.token(realm, service, client)?,
            (None, Some(Login::Basic(words))) if challenges.contains(&Challenge::Basic) => {
                words.clone()
            }
            (None, _) => return Ok(false),
        };
        let Ok(mut before) = self.words.lock() else {
            return Ok(false);
        };
        let is_new = before.as_ref() != Some(&words);
        *before = Some(words);
        Ok(is_new)
    }

    fn token(&self, realm: &str, service: Option<&str>, client: &Client) -> Result<Secret> {
        let url = self.realm(realm, client)?;
        let mut wanted = vec![("scope", self.scope.as_str())];
        wanted.extend(service.map(|service| ("service", service)));
        let document = match &self.login {
            Some(Login::Identity(token)) => {
                let token = String::from_utf8_lossy(token.expose()).into_owned();
                wanted.extend([
                    ("grant_type", "refresh_token"),
                    ("client_id", "disklet"),
                    ("refresh_token", token.as_str()),
                ]);
                let form = Secret::new(encoded(&wanted));
                Document::of_form(&client.with_words(url, None), &form, LONGEST_ANSWER)
            }
            login => {
                let words = login.as_ref().and_then(|login| match login {
                    Login::Basic(words) => Some(words.clone()),
                    Login::Identity(_) => None,
                });
                let request = url.request();
                let mut text = String::from_utf8_lossy(request.expose()).into_owned();
                text.push(if url.query().is_some() { '&' } else { '?' });
                text.push_str(&encoded(&wanted));
                let url = Url::parse(&text).map_err(|why| wrong_realm(client, &why))?;
                Document::of(&client.with_words(url, words), LONGEST_ANSWER)
            }
        };
        read_token(
            client,
            &document.map_err(|error| of_token(error, client))?.bytes,
        )
    }

    /// Who gives tokens, as the registry says.
    fn realm(&self, realm: &str, client: &Client) -> Result<Url> {
        let url = Url::parse(realm).map_err(|why| wrong_realm(client, &why))?;
        if url.scheme() == Scheme::Http && !self.may_be_clear {
            let what = format!(
                "{}: the registry has tokens from {url}, which is not encrypted, and is not asked",
                client.url()
            );
            return Err(PullError::new(PullErrorKind::Redirect, what));
        }
        match url.login() {
            Some(_) => Err(wrong_realm(client, &"has a user in it")),
            None => Ok(url),
        }
    }
}

fn wrong_realm(client: &Client, why: &dyn std::fmt::Display) -> PullError {
    let what = format!(
        "{}: the registry has tokens from an address that {why}",
        client.url()
    );
    PullError::new(PullErrorKind::Protocol, what)
}

/// Whoever is refused at the token server is refused by the registry.
fn of_token(error: PullError, client: &Client) -> PullError {
    match error.kind() {
        PullErrorKind::Denied => {
            let what = format!(
                "{}: the registry's token server does not know us",
                client.url()
            );
            PullError::new(PullErrorKind::Denied, what)
                .because(error)
                .help("check the credentials: those of docker login, or of --auth-file")
        }
        _ => error,
    }
}

fn read_token(client: &Client, bytes: &[u8]) -> Result<Secret> {
    let answer: Option<Answer> = serde_json::from_slice(bytes).ok();
    let token = answer.and_then(|answer| answer.token.or(answer.access_token));
    let is_sound = |token: &String| {
        let fits = (1..=LONGEST_TOKEN).contains(&token.len());
        fits && token.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match token.filter(is_sound) {
        Some(token) => Ok(Secret::new(format!("Bearer {token}"))),
        None => {
            let what = format!(
                "{}: the registry's token server gives no token",
                client.url()
            );
            Err(PullError::new(PullErrorKind::Protocol, what))
        }
    }
}

/// What one header wants: schemes, each with words like `realm="…"`.
fn challenges(text: &str) -> Vec<Challenge> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(scheme) = word(&mut rest) {
        let (mut realm, mut service) = (None, None);
        while let Some((key, value)) = parameter(&mut rest) {
            match key.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                _ => {}
            }
        }
        match (scheme.to_ascii_lowercase().as_str(), realm) {
            ("basic", _) => found.push(Challenge::Basic),
            ("bearer", Some(realm)) => found.push(Challenge::Bearer { realm, service }),
            _ => {}
        }
    }
    found
}

fn word<'t>(rest: &mut &'t str) -> Option<&'t str> {
    *rest = rest.trim_start_matches([' ', ',']);
    let end = rest.find([' ', ',', '=', '"']).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    (!word.is_empty()).then_some(word)
}

/// `key=value` or `key="value"`, if that comes next.
fn parameter(rest: &mut &str) -> Option<(String, String)> {
    let mut ahead = *rest;
    let key = word(&mut ahead)?.to_owned();
    let after = ahead.strip_prefix('=')?;
    let value = match after.strip_prefix('"') {
        None => {
            ahead = after;
            word(&mut ahead).unwrap_or_default().to_owned()
        }
        Some(quoted) => {
            let (mut value, mut is_escaped) = (String::new(), false);
            let end = quoted.find(|c| match (c, is_escaped) {
                ('"', false) => true,
                ('\\', false) => {
                    is_escaped = true;
                    false
                }
                (c, _) => {
                    value.push(c);
                    is_escaped = false;
                    false
                }
            })?;
            ahead = &quoted[end + 1..];
            value
        }
    };
    *rest = ahead;
    Some((key, value))
}

/// Words of a query or a form.
fn encoded(words: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (key, value) in words {
        if !text.is_empty() {
            text.push('&');
        }
        text.push_str(key);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    text.push(char::from(byte));
                }
                byte => {
                    let _ = write!(text, "%{byte:02X}");
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let bearer = |realm: &str, service: Option<&str>| Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
        };
        for (text, wanted) in [
            ("Basic realm=\"Registry\"", vec![Challenge::Basic]),
            ("basic", vec![Challenge::Basic]),
            (
                "Bearer realm=\"https://h/token\",service=\"a b\",scope=\"x\"",
                vec![bearer("https://h/token", Some("a b"))],
            ),
            (
                "Bearer scope=x, realm=https://h/t",
                vec![bearer("https://h/t", None)],
            ),
            (
                "Negotiate, Basic realm=\"a, Bearer realm=\\\"x\\\"\", Bearer realm=\"y\"",
                vec![Challenge::Basic, bearer("y", None)],
            ),
            ("Bearer service=\"x\"", vec![]),
            ("Bearer realm=\"x", vec![]),
            ("\"", vec![]),
            ("=,=", vec![]),
        ] {
            assert_eq!(challenges(text), wanted, "{text}");
        }
    }

    #[test]
    fn words_are_escaped() {
        let words = [("scope", "repository:a/b:pull"), ("x", "1&2=é")];
        assert_eq!(
            encoded(&words),
            "scope=repository%3Aa%2Fb%3Apull&x=1%262%3D%C3%A9"
        );
    }
}
