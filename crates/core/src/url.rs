//! Addresses of files, http and https only. Whatever may be a secret in one
//! never shows.

use std::fmt;

use crate::diag::is_unprintable;
use crate::text::Secret;

/// How a file is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear.
    Http,
    /// Encrypted, from whom it says.
    Https,
}

/// The address of a file. As text it is without user and password, and without
/// the words of a query: those may be a signature.
#[derive(Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    login: Option<Login>,
    host: String,
    port: Option<u16>,
    path: String,
    query: Option<Secret>,
}

/// A user and a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// Who.
    pub user: Secret,
    /// The password; empty if none was given.
    pub password: Secret,
}

/// Why a text is no [`Url`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlError {
    /// Neither http nor https.
    Scheme,
    /// A host that is none, or none.
    Host,
    /// A port that is none.
    Port,
    /// A character that must be written as %XX there.
    Character(char),
    /// Longer than any address should be.
    TooLong,
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => f.write_str("does not begin with https:// or http://"),
            Self::Host => f.write_str("has no host, or one with a wrong character"),
            Self::Port => f.write_str("has a port that is not a number from 1 to 65535"),
            Self::Character(c) => write!(f, "has the character {c:?}, to be written as %XX"),
            Self::TooLong => f.write_str("is longer than 8192 characters"),
        }
    }
}

impl std::error::Error for UrlError {}

const MOST: usize = 8192;

impl Url {
    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > MOST {
            return Err(UrlError::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Scheme)?;
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(UrlError::Scheme),
        };
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at(end);
        let (login, address) = match authority.rsplit_once('@') {
            Some((login, address)) => (Some(read_login(login)), address),
            None => (None, authority),
        };
        let (host, port) = split_port(address)?;
        let (path, query) = match tail.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (tail, None),
        };
        let odd = |c: &char| !c.is_ascii_graphic() || "\"<>\\^`{|}".contains(*c);
        if let Some(c) = tail.chars().find(odd) {
            return Err(UrlError::Character(c));
        }
        Ok(Self {
            scheme,
            login,
            host,
            port,
            path: if path.is_empty() { "/" } else { path }.to_owned(),
            query: query.map(Secret::new),
        })
    }

    /// Where a redirect leads: an address, or a part of one that the rest of
    /// this one completes. A user and a password are not taken along.
    pub fn join(&self, reference: &str) -> Result<Self, UrlError> {
        let reference = reference.split_once('#').map_or(reference, |(it, _)| it);
        let scheme = self.scheme.name();
        let base = format!("{scheme}://{}", self.authority());
        let is_whole = reference
            .split_once("://")
            .is_some_and(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphanumeric()));
        if is_whole {
            Self::parse(reference)
        } else if let Some(rest) = reference.strip_prefix("//") {
            Self::parse(&format!("{scheme}://{rest}"))
        } else if reference.starts_with('/') {
            Self::parse(&format!("{base}{reference}"))
        } else if reference.is_empty() || reference.starts_with('?') {
            Self::parse(&format!("{base}{}{reference}", self.path))
        } else {
            let directory = self.path.rsplit_once('/').map_or("", |(before, _)| before);
            Self::parse(&format!("{base}{}", without_dots(directory, reference)))
        }
    }

    /// How the file is fetched.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// From where.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, the scheme's own if it names none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(self.scheme.port())
    }

    /// The path, as it is written.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What follows a `?`.
    #[must_use]
    pub fn query(&self) -> Option<&Secret> {
        self.query.as_ref()
    }

    /// The path that its escapes stand for, if that is text that shows.
    #[must_use]
    pub fn decoded_path(&self) -> Option<String> {
        let path = String::from_utf8(without_percents(&self.path)).ok()?;
        (!path.chars().any(is_unprintable)).then_some(path)
    }

    /// The user and password in it.
    #[must_use]
    pub fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    /// Whether both are at the same server, reached in the same way: only then
    /// may it be told the same secrets.
    #[must_use]
    pub fn is_same_origin(&self, other: &Self) -> bool {
        let origin = |url: &Self| (url.scheme, url.host.to_ascii_lowercase(), url.port());
        origin(self) == origin(other)
    }

    /// What is asked for: all of it but user and password.
    #[must_use]
    pub fn request(&self) -> Secret {
        let mut text = self.to_string().into_bytes();
        if let Some(query) = &self.query {
            text.truncate(text.len() - "…".len());
            text.extend_from_slice(query.expose());
        }
        Secret::new(text)
    }

    fn authority(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }
}

impl Scheme {
    /// As addresses begin.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = self.query.as_ref().map_or("", |_| "?…");
        let scheme = self.scheme.name();
        write!(f, "{scheme}://{}{}{query}", self.authority(), self.path)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn read_login(text: &str) -> Login {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Login {
        user: Secret::new(without_percents(user)),
        password: Secret::new(without_percents(password)),
    }
}

fn split_port(address: &str) -> Result<(String, Option<u16>), UrlError> {
    let (host, port) = match address.rsplit_once(':') {
        // The colons of an IPv6 address are within its brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (address, None),
    };
    let port = match port {
        None | Some("") => None,
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => {
            let port = port.parse().ok().filter(|port| *port != 0);
            Some(port.ok_or(UrlError::Port)?)
        }
        Some(_) => return Err(UrlError::Port),
    };
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').ok_or(UrlError::Host)?,
        None => host,
    };
    let in_brackets = bare.len() != host.len();
    let fits = |b: u8| match in_brackets {
        true => b.is_ascii_hexdigit() || matches!(b, b':' | b'.'),
        false => b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'),
    };
    if bare.is_empty() || bare.len() > 253 || !bare.bytes().all(fits) {
        return Err(UrlError::Host);
    }
    Ok((host.to_owned(), port))
}

/// The bytes that %XX stand for. What is no %XX stands for itself.
fn without_percents(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// A path below a directory, `.` and `..` carried out.
fn without_dots(directory: &str, reference: &str) -> String {
    let (path, query) = match reference.find('?') {
        Some(at) => reference.split_at(at),
        None => (reference, ""),
    };
    let mut parts: Vec<&str> = directory.split('/').skip(1).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}{query}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn secrets_in_addresses_do_not_show() {
        let it = url("https://user:hunter2@host.example:8443/a/b.img?token=hunter2#there");
        for shown in [it.to_string(), format!("{it:?}")] {
            assert_eq!(shown, "https://host.example:8443/a/b.img?…");
        }
        let asked = it.request();
        assert_eq!(
            asked.expose(),
            b"https://host.example:8443/a/b.img?token=hunter2"
        );
        let login = url("http://us%40er:p%3Aw%zz@h/").login().unwrap().clone();
        assert_eq!(login.user.expose(), b"us@er");
        assert_eq!(login.password.expose(), b"p:w%zz");
        assert!(!format!("{login:?}").contains("us@er"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, error) in [
            ("host/x", UrlError::Scheme),
            ("ftp://host/x", UrlError::Scheme),
            ("https:///x", UrlError::Host),
            ("https://ho st/x", UrlError::Host),
            ("https://[::1/x", UrlError::Host),
            ("https://host:0/", UrlError::Port),
            ("https://host:x/", UrlError::Port),
            ("https://host:99999/", UrlError::Port),
            ("https://host/a b", UrlError::Character(' ')),
            ("https://host/a\r\nX: y", UrlError::Character('\r')),
        ] {
            assert_eq!(Url::parse(text), Err(error), "{text}");
        }
        assert_eq!(url("HTTPS://host").to_string(), "https://host/");
        assert_eq!(url("http://[::1]:80/x").host(), "[::1]");
    }

    #[test]
    fn redirects_lead_where_they_say() {
        let base = url("https://user:word@host:8443/a/b/c.img?x=1");
        for (reference, wanted) in [
            ("http://other/x", "http://other/x"),
            ("//other/x", "https://other/x"),
            ("/x?y=http://z", "https://host:8443/x?…"),
            ("d.img", "https://host:8443/a/b/d.img"),
            ("../d.img", "https://host:8443/a/d.img"),
            ("./../../../../d.img", "https://host:8443/d.img"),
            ("?y", "https://host:8443/a/b/c.img?…"),
        ] {
            let joined = base.join(reference).unwrap();
            assert_eq!(joined.to_string(), wanted, "{reference}");
            assert_eq!(joined.login(), None);
        }
        assert_eq!(base.join("file:///etc/passwd"), Err(UrlError::Scheme));
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let base = url("https://host/x");
        assert!(base.is_same_origin(&url("https://HOST:443/y")));
        for other in ["http://host/x", "https://host:8443/x", "https://other/x"] {
            assert!(!base.is_same_origin(&url(other)), "{other}");
        }
    }
}
