//! Credentials for registries, as `docker login` leaves them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Reference;
use super::keyring::login;
use crate::text::Secret;

/// What a configuration file of Docker's says of registries.
#[derive(Debug, Clone, Default)]
pub struct DockerConfig {
    /// By host, or by host and the beginning of a name.
    entries: BTreeMap<String, Known>,
    helpers: BTreeMap<String, String>,
    /// Who keeps what is in no entry.
    store: Option<String>,
}

/// What is known of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// A user and a password, as the value of `Authorization`.
    Login(Secret),
    /// What is shown to a token server instead.
    Identity(Secret),
    /// Whom to ask, about which server.
    Helper {
        /// The end of its program's name.
        name: String,
        /// What the registry is called there.
        server: String,
    },
}

/// Docker's own registry, as its tools write it.
const USUAL_SERVER: &str = "https://index.docker.io/v1/";
const USUAL_HOSTS: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

impl DockerConfig {
    /// Reads such a file, or says what is wrong. Nothing secret is in that.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let config: Value =
            serde_json::from_slice(bytes).map_err(|_| "it is not JSON".to_owned())?;
        if !config.is_object() {
            return Err("it is no object".to_owned());
        }
        let mut read = Self {
            store: helper(&config["credsStore"])?,
            ..Self::default()
        };
        for (server, name) in config["credHelpers"].as_object().into_iter().flatten() {
            if let Some(name) = helper(name)? {
                read.helpers.insert(key(server), name);
            }
        }
        for (server, entry) in config["auths"].as_object().into_iter().flatten() {
            let token = entry["identitytoken"].as_str();
            let known = match token.filter(|token| !token.is_empty()) {
                Some(token) => Some(Known::Identity(Secret::new(token))),
                // What a helper keeps has an entry without anything in it.
                None => login(entry).map(Known::Login),
            };
            if let Some(known) = known {
                read.entries.insert(key(server), known);
            }
        }
        Ok(read)
    }

    /// What is known of the registry of an image. The entry that says most of its
    /// name counts.
    #[must_use]
    pub fn of(&self, image: &Reference) -> Option<Known> {
        let host = image.registry().to_ascii_lowercase();
        let is_usual = USUAL_HOSTS.contains(&host.as_str());
        let hosts = match is_usual {
            true => USUAL_HOSTS.map(str::to_owned).to_vec(),
            false => vec![host.clone()],
        };
        let server = match is_usual {
            true => USUAL_SERVER.to_owned(),
            false => host,
        };
        let helper = |name: &String| Known::Helper {
            name: name.clone(),
            server: server.clone(),
        };
        if let Some(name) = hosts.iter().find_map(|host| self.helpers.get(host)) {
            return Some(helper(name));
        }
        let mut repository = Some(image.repository());
        while let Some(name) = repository {
            let found = hosts
                .iter()
                .find_map(|host| self.entries.get(&format!("{host}/{name}")));
            if let Some(known) = found {
                return Some(known.clone());
            }
            repository = name.rsplit_once('/').map(|(before, _)| before);
        }
        let of_host = hosts.iter().find_map(|host| self.entries.get(host));
        of_host.cloned().or_else(|| self.store.as_ref().map(helper))
    }
}

/// The name of a helper, which becomes the end of a program's.
fn helper(name: &Value) -> Result<Option<String>, String> {
    match name.as_str() {
        None | Some("") => Ok(None),
        Some(name) => {
            let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            match name.bytes().all(known) {
                true => Ok(Some(name.to_owned())),
                false => Err(format!("{name:.100?} is no name of a credential helper")),
            }
        }
    }
}

/// A server without what is not its name.
fn key(server: &str) -> String {
    let server = server.split_once("://").map_or(server, |(_, rest)| rest);
    let server = server.trim_end_matches('/');
    let server = server
        .strip_suffix("/v1")
        .or(server.strip_suffix("/v2"))
        .unwrap_or(server);
    server.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use serde_json::json;

    use super::*;

    fn of(config: &Value, image: &str) -> Option<Known> {
        let config = DockerConfig::parse(config.to_string().as_bytes()).unwrap();
        config.of(&Reference::parse(image).unwrap())
    }

    fn basic(words: &str) -> Option<Known> {
        let words = format!("Basic {}", BASE64.encode(words));
        Some(Known::Login(Secret::new(words)))
    }

    #[test]
    fn the_entry_that_says_most_counts() {
        let auth = |words: &str| json!({"auth": BASE64.encode(words)});
        let config = json!({"auths": {
            "h.example:5000": auth("all:1"), "https://h.example:5000/team/": auth("team:2"),
            "https://index.docker.io/v1/": {"username": "hub", "password": "3"},
            "kept.example": {}, "id.example": {"identitytoken": "4", "auth": ""},
        }});
        for (image, wanted) in [
            ("h.example:5000/a", basic("all:1")),
            ("h.example:5000/team/a", basic("team:2")),
            ("h.example:5000/teams/a", basic("all:1")),
            ("h.example/a", None),
            ("kept.example/a", None),
            ("debian", basic("hub:3")),
            ("docker.io/x/y", basic("hub:3")),
            ("id.example/a", Some(Known::Identity(Secret::new("4")))),
        ] {
            assert_eq!(of(&config, image), wanted, "{image}");
        }
    }

    #[test]
    fn helpers_are_asked_about_their_servers() {
        let helper = |name: &str, server: &str| {
            Some(Known::Helper {
                name: name.to_owned(),
                server: server.to_owned(),
            })
        };
        let config = json!({"credHelpers": {"h.example": "ours"}, "credsStore": "pass", "auths": {
            "h.example": {"username": "x", "password": "y"}, "i.example": {"username": "x", "password": "y"},
        }});
        assert_eq!(of(&config, "h.example/a"), helper("ours", "h.example"));
        assert_eq!(of(&config, "i.example/a"), basic("x:y"));
        assert_eq!(of(&config, "j.example/a"), helper("pass", "j.example"));
        assert_eq!(of(&config, "debian"), helper("pass", USUAL_SERVER));
    }

    #[test]
    fn what_is_none_is_told_without_what_is_in_it() {
        for bytes in [
            "hunter2",
            "\"hunter2\"",
            "{\"credsStore\": \"../../bin/x\"}",
        ] {
            let why = DockerConfig::parse(bytes.as_bytes()).unwrap_err();
            assert!(!why.contains("hunter2"), "{why}");
        }
        let odd = b"{\"auths\": {\"h\": 5, \"i\": {\"auth\": \"?\"}}, \"credHelpers\": []}";
        DockerConfig::parse(odd).unwrap();
    }
}
