//! An image in a registry: from its name to its layers.

use std::sync::Arc;

use disklet_core::images::Reference;
use disklet_core::names::Sha256;
use disklet_core::url::Scheme;
use sha2::Digest;

use super::Registry;
use super::documents::{ACCEPT, LONGEST, Layer, Listed, Said, unsound};
use crate::pull::http::{Client, Document, Session};
use crate::pull::{Observer, PullError, PullErrorKind};

type Result<T> = std::result::Result<T, PullError>;

/// A list may lead to another one.
const DEEPEST: u32 = 3;

/// An image whose layers are known.
#[derive(Debug)]
pub(super) struct Image {
    /// Its name, pinned to the digest that its tag stood for.
    pub(super) pinned: Reference,
    /// The lowest first.
    pub(super) layers: Vec<Layer>,
    /// Where each of them is.
    pub(super) clients: Vec<Client>,
}

impl Image {
    /// Asks the registry.
    pub(super) fn find(registry: &Registry, retries: u32, observer: &dyn Observer) -> Result<Self> {
        let name = &registry.reference;
        let wrong = |why| {
            let what = format!("{name}: the registry's address {why}");
            PullError::new(PullErrorKind::Settings, what)
        };
        let scheme = registry.scheme();
        let url = name.manifest(scheme).map_err(wrong)?;
        let login = registry.login.login(name)?;
        let may_be_clear = scheme == Scheme::Http;
        let session = Arc::new(Session::new(login, name.repository(), may_be_clear));
        let base = Client::new(&registry.address(url))?;
        let mut wanted = name.digest();
        let mut size = None;
        let mut pinned = None;
        for _ in 0..DEEPEST {
            let at = match wanted {
                Some(digest) => name.manifest_of(scheme, &digest),
                None => name.manifest(scheme),
            };
            let client = base.at(at.map_err(wrong)?, &session).accepting(ACCEPT);
            let document = Document::fetch(&client, LONGEST, retries, observer)?;
            let where_ = client.url().to_string();
            let digest = verified(&document, wanted, size, &where_)?;
            pinned.get_or_insert(digest);
            match Said::read(&document.bytes, &where_)? {
                Said::List(listed) => {
                    let Listed {
                        digest, size: of, ..
                    } = registry.platform.choose(&listed, &where_)?;
                    (wanted, size) = (Some(*digest), Some(*of));
                }
                Said::Layers(layers) => {
                    let clients = layers.iter().map(|layer| {
                        let url = name.blob(scheme, &layer.digest).map_err(wrong)?;
                        Ok(base.at(url, &session).by_digest())
                    });
                    return Ok(Self {
                        pinned: name.pinned(*pinned.get_or_insert(digest)),
                        clients: clients.collect::<Result<_>>()?,
                        layers,
                    });
                }
            }
        }
        Err(unsound(format!(
            "{name}: lists of images lead to lists, and no further"
        )))
    }
}

/// The digest of a document, which must be the wanted one.
fn verified(
    document: &Document,
    wanted: Option<Sha256>,
    size: Option<u64>,
    where_: &str,
) -> Result<Sha256> {
    let digest: [u8; 32] = sha2::Sha256::digest(&document.bytes).into();
    let digest = Sha256::from_bytes(digest);
    let differs = |wanted: &Sha256| *wanted != digest;
    let is_said = document
        .header("docker-content-digest")
        .and_then(|text| text.strip_prefix("sha256:"))
        .and_then(Sha256::parse_hex);
    let is_cut = size.is_some_and(|size| size != document.bytes.len() as u64);
    match wanted.or(is_said).filter(differs) {
        None if is_cut => {
            let what = format!("{where_}: the manifest has another length than is said of it");
            Err(PullError::new(PullErrorKind::Digest, what))
        }
        None => Ok(digest),
        Some(wanted) => {
            let what = format!(
                "{where_}: the manifest has the digest sha256:{digest}, not sha256:{wanted}"
            );
            Err(PullError::new(PullErrorKind::Digest, what)
                .help("the registry is damaged, or somebody is between it and us"))
        }
    }
}
