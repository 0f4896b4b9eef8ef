//! Credentials for servers of images, out of the Secrets that a pod names as its
//! `imagePullSecrets`.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::text::Secret;
use crate::url::{Scheme, Url};

/// On a Secret of type `kubernetes.io/basic-auth`: for which server it is.
pub const SERVER: &str = "disklet.io/image-server";

const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
const OLD_DOCKER_CONFIG: &str = "kubernetes.io/dockercfg";
const BASIC: &str = "kubernetes.io/basic-auth";

/// All credentials that a pod has.
#[derive(Debug, Clone, Default)]
pub struct Keyring(Vec<Credential>);

/// What one server, or some, may be told.
#[derive(Debug, Clone)]
pub struct Credential {
    servers: Servers,
    /// The UID of the Secret that it is from: whoever has that has proved
    /// whatever was proved with it.
    pub secret: String,
    /// The value of `Authorization`.
    pub authorization: Secret,
}

/// Which servers are meant, as the keys of Docker's configuration have it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Servers {
    /// Each part of the host's name; `*` stands for any letters in one.
    host: Vec<glob::Pattern>,
    /// That of https, unless there is one.
    port: u16,
    /// What paths begin with, without the last slash.
    path: String,
}

impl Keyring {
    /// Takes a Secret as the API server has it, or says why it is none for
    /// images. Nothing secret is in that.
    pub fn take(&mut self, secret: &Value) -> Result<(), String> {
        let uid = secret["metadata"]["uid"].as_str().ok_or("it has no UID")?;
        let kind = secret["type"].as_str().unwrap_or("Opaque");
        let found = match kind {
            DOCKER_CONFIG => of_docker(&decoded(secret, ".dockerconfigjson")?, Some("auths"))?,
            OLD_DOCKER_CONFIG => of_docker(&decoded(secret, ".dockercfg")?, None)?,
            BASIC => vec![of_basic(secret)?],
            other => {
                return Err(format!(
                    "it is of type {other:?}: images take {DOCKER_CONFIG}, {OLD_DOCKER_CONFIG} or {BASIC}"
                ));
            }
        };
        for (servers, authorization) in found {
            self.0.push(Credential {
                servers,
                secret: uid.to_owned(),
                authorization,
            });
        }
        // The path that says most comes first, then the host that leaves least open.
        self.0.sort_by_key(|it| {
            let open = it
                .servers
                .host
                .iter()
                .filter(|part| part.as_str().contains('*'));
            (std::cmp::Reverse(it.servers.path.len()), open.count())
        });
        Ok(())
    }

    /// What a server may be told, best first. Nobody is told anything in the
    /// clear.
    #[must_use]
    pub fn of(&self, url: &Url) -> Vec<&Credential> {
        let fitting = self.0.iter().filter(|it| it.servers.hold(url));
        fitting.collect()
    }

    /// The Secrets that are in it, by their UIDs.
    #[must_use]
    pub fn secrets(&self) -> BTreeSet<&str> {
        self.0.iter().map(|it| it.secret.as_str()).collect()
    }
}

impl Servers {
    /// `host`, `*.example.com:5000/path`, or an address: `https://host/v1/`.
    fn parse(text: &str) -> Option<Self> {
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (authority, path) = text.split_once('/').unwrap_or((text, ""));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, 443),
        };
        let parts = host.to_ascii_lowercase();
        let parts = parts.split('.').map(glob::Pattern::new);
        let host: Vec<_> = parts.collect::<Result<_, _>>().ok()?;
        if host.iter().any(|part| part.as_str().is_empty()) {
            return None;
        }
        // As Docker's own registry is written.
        let path = path.trim_end_matches('/');
        let path = match path {
            "v1" | "v2" => "",
            path => path
                .strip_prefix("v1/")
                .or(path.strip_prefix("v2/"))
                .unwrap_or(path),
        };
        let path = match path {
            "" => String::new(),
            path => format!("/{path}"),
        };
        Some(Self { host, port, path })
    }

    fn hold(&self, url: &Url) -> bool {
        let host = url.host().to_ascii_lowercase();
        let parts: Vec<_> = host.split('.').collect();
        let mut pairs = self.host.iter().zip(&parts);
        let path = url.path();
        url.scheme() == Scheme::Https
            && self.port == url.port()
            && self.host.len() == parts.len()
            && pairs.all(|(pattern, part)| pattern.matches(part))
            && path
                .strip_prefix(self.path.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Whatever is wrong inside may be a secret, and is not told.
fn decoded(secret: &Value, key: &str) -> Result<Vec<u8>, String> {
    let text = secret["data"][key].as_str();
    let text = text.ok_or_else(|| format!("it has no {key}"))?;
    BASE64
        .decode(text)
        .map_err(|_| format!("its {key} is not base64"))
}

fn of_docker(config: &[u8], below: Option<&str>) -> Result<Vec<(Servers, Secret)>, String> {
    let config: Value =
        serde_json::from_slice(config).map_err(|_| "what it holds is not JSON".to_owned())?;
    let entries = match below {
        Some(key) => &config[key],
        None => &config,
    };
    let entries = entries
        .as_object()
        .ok_or("what it holds names no servers: auths is missing")?;
    let mut found = Vec::new();
    for (server, entry) in entries {
        let servers =
            Servers::parse(server).ok_or_else(|| format!("{server:.100?} is no server"))?;
        let words = login(entry).ok_or_else(|| {
            format!("it has neither auth nor username and password for {server:.100?}")
        })?;
        found.push((servers, words));
    }
    Ok(found)
}

/// A user and a password, as the value of `Authorization`.
pub(super) fn login(entry: &Value) -> Option<Secret> {
    let auth = entry["auth"].as_str().filter(|auth| !auth.is_empty());
    let words = match auth {
        Some(auth) => BASE64
            .decode(auth.trim())
            .ok()
            .filter(|it| it.contains(&b':'))?,
        None => {
            let text = |key: &str| entry[key].as_str();
            format!("{}:{}", text("username")?, text("password")?).into_bytes()
        }
    };
    Some(basic(&words))
}

fn of_basic(secret: &Value) -> Result<(Servers, Secret), String> {
    let server = secret["metadata"]["annotations"][SERVER].as_str();
    // Else it would be told to whichever server an image is at.
    let server = server.ok_or_else(|| {
        format!("it does not say for which server it is: annotate it with {SERVER}: HOST")
    })?;
    let servers =
        Servers::parse(server).ok_or_else(|| format!("its annotation {SERVER} is no server"))?;
    let words = [decoded(secret, "username")?, decoded(secret, "password")?];
    Ok((servers, basic(&words.join(&b':'))))
}

fn basic(words: &[u8]) -> Secret {
    Secret::new(format!("Basic {}", BASE64.encode(words)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn docker(servers: &[&str]) -> Value {
        let auth = |server: &&str| {
            (
                (*server).to_owned(),
                json!({"auth": BASE64.encode(format!("{server}:hunter2"))}),
            )
        };
        let auths: serde_json::Map<_, _> = servers.iter().map(auth).collect();
        let config = json!({"auths": auths}).to_string();
        json!({
            "metadata": {"name": "s", "uid": "uid-1"},
            "type": DOCKER_CONFIG,
            "data": {".dockerconfigjson": BASE64.encode(config)},
        })
    }

    fn keyring(servers: &[&str]) -> Keyring {
        let mut keyring = Keyring::default();
        keyring.take(&docker(servers)).unwrap();
        keyring
    }

    /// Whose credentials an address gets, best first.
    fn told(keyring: &Keyring, url: &str) -> Vec<String> {
        let url = Url::parse(url).unwrap();
        let told = keyring.of(&url).into_iter().map(|it| {
            let words = String::from_utf8(it.authorization.expose().to_vec()).unwrap();
            let words = BASE64
                .decode(words.strip_prefix("Basic ").unwrap())
                .unwrap();
            let words = String::from_utf8(words).unwrap();
            words.strip_suffix(":hunter2").unwrap().to_owned()
        });
        told.collect()
    }

    #[test]
    fn servers_match_as_the_kubelets_do() {
        for (server, url, wanted) in [
            ("host.example", "https://host.example/x.img", true),
            ("HOST.example", "https://host.EXAMPLE/x.img", true),
            (
                "https://host.example/v1/",
                "https://host.example/x.img",
                true,
            ),
            ("host.example", "https://host.example:5000/x", false),
            ("host.example:5000", "https://host.example:5000/x", true),
            ("host.example:443", "https://host.example/x", true),
            ("*.example", "https://host.example/x", true),
            ("*.example", "https://a.host.example/x", false),
            ("*.example", "https://example/x", false),
            ("host.example/team", "https://host.example/team/x", true),
            ("host.example/team", "https://host.example/teams/x", false),
            ("host.example", "https://host.example.evil/x", false),
            ("host.example", "https://evil-host.example/x", false),
            // Nothing is said in the clear.
            ("host.example:80", "http://host.example/x", false),
        ] {
            let found = !told(&keyring(&[server]), url).is_empty();
            assert_eq!(found, wanted, "{server} {url}");
        }
    }

    #[test]
    fn what_says_most_comes_first() {
        let keyring = keyring(&["*.example", "host.example", "host.example/team"]);
        assert_eq!(
            told(&keyring, "https://host.example/team/x"),
            ["host.example/team", "host.example", "*.example"]
        );
        assert_eq!(keyring.secrets(), BTreeSet::from(["uid-1"]));
        assert!(!format!("{keyring:?}").contains("hunter2"));
    }

    #[test]
    fn the_other_kinds_of_secrets_are_read() {
        let mut keyring = Keyring::default();
        let old = json!({"old.example": {"username": "old", "password": "hunter2"}}).to_string();
        keyring
            .take(&json!({
                "metadata": {"uid": "u"}, "type": OLD_DOCKER_CONFIG,
                "data": {".dockercfg": BASE64.encode(old)},
            }))
            .unwrap();
        let mut basic = json!({
            "metadata": {"uid": "v", "annotations": {SERVER: "basic.example/team"}}, "type": BASIC,
            "data": {"username": BASE64.encode("basic"), "password": BASE64.encode("hunter2")},
        });
        keyring.take(&basic).unwrap();
        assert_eq!(told(&keyring, "https://old.example/x"), ["old"]);
        assert_eq!(told(&keyring, "https://basic.example/team/x"), ["basic"]);
        basic["metadata"]["annotations"] = json!({});
        let why = keyring.take(&basic).unwrap_err();
        assert!(
            why.contains("annotate it with disklet.io/image-server"),
            "{why}"
        );
    }

    #[test]
    fn what_is_none_is_told_without_what_is_in_it() {
        let secret = |kind: &str, key: &str, text: &str| json!({"metadata": {"uid": "u"}, "type": kind, "data": {key: BASE64.encode(text)}});
        for wrong in [
            secret("Opaque", "password", "hunter2"),
            secret(DOCKER_CONFIG, ".dockercfg", "{\"hunter2\": 1}"),
            secret(DOCKER_CONFIG, ".dockerconfigjson", "hunter2"),
            secret(
                DOCKER_CONFIG,
                ".dockerconfigjson",
                "{\"auth\": \"hunter2\"}",
            ),
            secret(
                DOCKER_CONFIG,
                ".dockerconfigjson",
                "{\"auths\": {\"h\": {\"password\": \"hunter2\"}}}",
            ),
            json!({"type": DOCKER_CONFIG, "data": {".dockerconfigjson": "hunter2"}}),
        ] {
            let why = Keyring::default().take(&wrong).unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
}
