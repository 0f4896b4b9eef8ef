//! Which cluster is meant: kubeconfigs as kubectl finds and merges them, or the account of
//! the pod that this runs in.

use std::env;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use disklet_core::manifest::MAX_INPUT_BYTES;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::trouble::Trouble;

/// What the command line says about it.
#[derive(Default)]
#[expect(
    missing_debug_implementations,
    reason = "kube's options have none either"
)]
pub struct Wanted<'w> {
    /// The only kubeconfig that counts.
    pub kubeconfig: Option<&'w Path>,
    /// The address of the API server, which needs no kubeconfig.
    pub server: Option<&'w str>,
    /// Context, cluster and user.
    pub options: KubeConfigOptions,
}

/// The kubeconfigs that are there, merged, and how messages call them.
struct Merged {
    file: Kubeconfig,
    place: String,
}

/// How to reach the cluster.
///
/// # Errors
/// Nothing says it, or what says it cannot be used.
pub async fn find(wanted: &Wanted<'_>) -> Result<Config, Trouble> {
    let merged = match wanted.kubeconfig {
        Some(path) => Ok(Merged {
            file: read(path)?,
            place: named(path),
        }),
        None => merged(&usual())?,
    };
    let options = &wanted.options;
    let mut config = match merged {
        Ok(Merged { file, place }) => {
            let says_which = file.current_context.is_some() || options.context.is_some();
            match Config::from_custom_kubeconfig(file, options).await {
                Ok(config) => config,
                Err(error) => {
                    let trouble = Trouble::of_kubeconfig(&place, options, &error);
                    match says_which || (wanted.kubeconfig.is_some() && wanted.server.is_none()) {
                        true => return Err(trouble),
                        false => without_kubeconfig(wanted, trouble)?,
                    }
                }
            }
        }
        Err(trouble) => without_kubeconfig(wanted, trouble)?,
    };
    if let Some(server) = wanted.server {
        config.cluster_url = address(server)?;
    }
    Ok(config)
}

/// In a pod of the cluster there is an account instead.
fn without_kubeconfig(wanted: &Wanted<'_>, trouble: Trouble) -> Result<Config, Trouble> {
    match wanted.server {
        Some(server) => Ok(Config::new(address(server)?)),
        None => Config::incluster().map_err(|_| trouble),
    }
}

fn address(server: &str) -> Result<hyper::Uri, Trouble> {
    let parsed = server.parse::<hyper::Uri>();
    let address = parsed.ok().filter(|it| it.host().is_some());
    address
        .filter(|it| matches!(it.scheme_str(), Some("http" | "https")))
        .ok_or_else(|| {
            Trouble::new(format!("--server: {server:?} is no address"))
                .help("such as https://10.0.0.1:6443")
        })
}

/// Where kubectl looks.
fn usual() -> Vec<PathBuf> {
    let listed = env::var_os("KUBECONFIG").unwrap_or_default();
    let listed = env::split_paths(&listed).filter(|path| !path.as_os_str().is_empty());
    let listed: Vec<_> = listed.collect();
    match listed.is_empty() {
        true => env::home_dir()
            .map(|home| home.join(".kube/config"))
            .into_iter()
            .collect(),
        false => listed,
    }
}

/// Those of a list that are there: kubectl passes over the others. If there is none, what
/// is to be said of that.
fn merged(paths: &[PathBuf]) -> Result<Result<Merged, Trouble>, Trouble> {
    let (mut merged, mut places) = (Kubeconfig::default(), Vec::new());
    for path in paths {
        let file = match load(path) {
            Err(KubeconfigError::ReadConfig(error, _)) if is_passed_over(&error) => continue,
            other => other.map_err(|error| unread(path, &error))?,
        };
        places.push(named(path));
        let place = places.join(" and ");
        merged = merged.merge(file).map_err(|error| {
            Trouble::of_kubeconfig(&place, &KubeConfigOptions::default(), &error)
        })?;
    }
    if places.is_empty() {
        let looked: Vec<_> = paths.iter().map(|path| format!("{path:?}")).collect();
        let looked = match looked.is_empty() {
            true => "you have no home directory".to_owned(),
            false => format!("there is none at {}", looked.join(" and at ")),
        };
        return Ok(Err(Trouble::new(format!("no kubeconfig: {looked}"))
            .help("say with --kubeconfig or KUBECONFIG where it is")));
    }
    Ok(Ok(Merged {
        file: merged,
        place: places.join(" and "),
    }))
}

/// A pod's account may have the home directory of another, which it may not look into.
fn is_passed_over(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    let is_listed = env::var_os("KUBECONFIG").is_some_and(|list| !list.is_empty());
    match error.kind() {
        NotFound | NotADirectory => true,
        PermissionDenied => !is_listed,
        _ => false,
    }
}

fn read(path: &Path) -> Result<Kubeconfig, Trouble> {
    load(path).map_err(|error| unread(path, &error))
}

/// No more of it than of any other input. What is no file, such as a pipe, can be read
/// once only, and has no directory that paths in it could start from.
fn load(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let wrong = |error| KubeconfigError::ReadConfig(error, path.to_owned());
    let too_large = || {
        let why = format!("it has more than {} MiB", MAX_INPUT_BYTES >> 20);
        wrong(io::Error::new(io::ErrorKind::FileTooLarge, why))
    };
    let file = File::open(path).map_err(wrong)?;
    let meta = file.metadata().map_err(wrong)?;
    if meta.is_file() {
        return match meta.len() > MAX_INPUT_BYTES {
            true => Err(too_large()),
            false => Kubeconfig::read_from(path),
        };
    }
    let mut text = Vec::new();
    let read = file.take(MAX_INPUT_BYTES + 1).read_to_end(&mut text);
    if read.map_err(wrong)? as u64 > MAX_INPUT_BYTES {
        return Err(too_large());
    }
    let text = String::from_utf8(text);
    let text = text.map_err(|error| wrong(io::Error::new(io::ErrorKind::InvalidData, error)));
    Kubeconfig::from_yaml(&text?)
}

fn unread(path: &Path, error: &KubeconfigError) -> Trouble {
    Trouble::of_kubeconfig(&named(path), &KubeConfigOptions::default(), error)
}

fn named(path: &Path) -> String {
    format!("kubeconfig {path:?}")
}
