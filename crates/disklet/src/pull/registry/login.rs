//! Who we are at a registry: what `docker login` has left, or what a program
//! knows that keeps it.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use disklet_core::images::{DockerConfig, Known, Reference};
use disklet_core::text::Secret;
use serde::Deserialize;

use crate::pull::http::Login;
use crate::pull::{PullError, PullErrorKind};

type Result<T> = std::result::Result<T, PullError>;

/// From where it is known who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginFrom {
    /// From nowhere.
    Nobody,
    /// From a file as Docker has it: this one, else the usual one.
    DockerConfig(Option<PathBuf>),
    /// Somebody has said it: the value of `Authorization`.
    Words(Secret),
}

/// A file or an answer of a helper has no more.
const LONGEST: u64 = 4 << 20;

impl LoginFrom {
    pub(super) fn login(&self, image: &Reference) -> Result<Option<Login>> {
        let said = match self {
            Self::Nobody => return Ok(None),
            Self::Words(words) => return Ok(Some(Login::Basic(words.clone()))),
            Self::DockerConfig(said) => said,
        };
        let Some((path, must_be)) = said.clone().map(|path| (path, true)).or_else(usual) else {
            return Ok(None);
        };
        let bytes = match read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !must_be => return Ok(None),
            Err(error) => {
                return Err(settings(format!("{}: cannot be read", path.display())).because(error));
            }
            Ok(bytes) => bytes,
        };
        let config = DockerConfig::parse(&bytes)
            .map_err(|why| settings(format!("{}: {why}", path.display())))?;
        match config.of(image) {
            None => Ok(None),
            Some(Known::Login(words)) => Ok(Some(Login::Basic(words))),
            Some(Known::Identity(token)) => Ok(Some(Login::Identity(token))),
            Some(Known::Helper { name, server }) => ask(&name, &server),
        }
    }
}

/// Where credentials usually are, and whether somebody has said so.
fn usual() -> Option<(PathBuf, bool)> {
    let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = value("REGISTRY_AUTH_FILE") {
        return Some((path.into(), true));
    }
    let directory = value("DOCKER_CONFIG").map(PathBuf::from);
    let directory = directory.or_else(|| Some(PathBuf::from(value("HOME")?).join(".docker")));
    directory.map(|directory| (directory.join("config.json"), false))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path)?;
    file.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Kept {
    username: String,
    secret: String,
}

/// Asks the program that keeps credentials; it may have none.
fn ask(name: &str, server: &str) -> Result<Option<Login>> {
    /// What stands in place of a user whose secret is a token.
    const TOKEN: &str = "<token>";
    let program = format!("docker-credential-{name}");
    let failed = |error| settings(format!("{program}: cannot be asked")).because(error);
    let mut child = Command::new(&program)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error: io::Error| {
            failed(error).help("install it, or say with --auth-file where credentials are")
        })?;
    let mut answer = Vec::new();
    let said = child
        .stdin
        .take()
        .map(|mut input| input.write_all(server.as_bytes()));
    let heard = child
        .stdout
        .take()
        .map(|output| output.take(LONGEST).read_to_end(&mut answer));
    let status = child.wait().map_err(failed)?;
    if !status.success() {
        // In these words helpers say that they have none.
        let has_none = String::from_utf8_lossy(&answer).contains("credentials not found");
        return match has_none {
            true => Ok(None),
            false => Err(settings(format!(
                "{program}: does not say who we are at {server}"
            ))),
        };
    }
    said.transpose().map_err(failed)?;
    heard.transpose().map_err(failed)?;
    let kept: Kept = serde_json::from_slice(&answer)
        .map_err(|_| settings(format!("{program}: its answer makes no sense")))?;
    let Kept { username, secret } = kept;
    Ok(Some(match username.as_str() {
        TOKEN => Login::Identity(Secret::new(secret)),
        user => {
            let words = STANDARD.encode(format!("{user}:{secret}"));
            Login::Basic(Secret::new(format!("Basic {words}")))
        }
    }))
}

fn settings(what: impl Into<String>) -> PullError {
    PullError::new(PullErrorKind::Settings, what)
}
