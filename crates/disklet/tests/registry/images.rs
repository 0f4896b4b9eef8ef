//! Container images, made by hand, and a registry that has them.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use sha2::Digest;

use crate::server::{Reply, Request};

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// An archive of files and links: `name -> target` is a symbolic link, `name = target`
/// a hard one.
pub(crate) fn tar(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, data) in entries {
        bytes.extend_from_slice(&match name.split_once(' ') {
            None if name.ends_with('/') => header(name, b'5', "", 0),
            None => header(name, b'0', "", data.len() as u64),
            Some((name, link)) => match link.split_once(' ') {
                Some(("->", to)) => header(name, b'2', to, 0),
                Some((_, to)) => header(name, b'1', to, 0),
                None => header(name, b'4', "", 0),
            },
        });
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

pub(crate) fn header(name: &str, mark: u8, link: &str, size: u64) -> [u8; 512] {
    let mut block = [0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..107].copy_from_slice(b"0000644");
    for field in [108..115, 116..123, 136..147] {
        block[field].fill(b'0');
    }
    block[124] = 0x80;
    block[128..136].copy_from_slice(&size.to_be_bytes());
    block[156] = mark;
    block[157..157 + link.len()].copy_from_slice(link.as_bytes());
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in sha2::Sha256::digest(bytes) {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

/// What a registry has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    blobs: BTreeMap<String, Vec<u8>>,
    /// By digest and by tag.
    manifests: BTreeMap<String, (String, Vec<u8>)>,
}

impl Content {
    pub(crate) fn blob(&mut self, kind: &str, bytes: &[u8]) -> Value {
        let name = digest(bytes);
        self.blobs.insert(name.clone(), bytes.to_vec());
        json!({"mediaType": kind, "digest": name, "size": bytes.len()})
    }

    /// The digest of a manifest, which is there under a tag as well.
    pub(crate) fn manifest(&mut self, tag: &str, kind: &str, document: &Value) -> Value {
        let bytes = document.to_string().into_bytes();
        let name = digest(&bytes);
        let entry = (kind.to_owned(), bytes);
        let size = entry.1.len();
        self.manifests.insert(name.clone(), entry.clone());
        self.manifests.insert(tag.to_owned(), entry);
        json!({"mediaType": kind, "digest": name, "size": size})
    }

    /// An image of such layers, the lowest first.
    pub(crate) fn image(&mut self, tag: &str, layers: &[Vec<u8>]) -> Value {
        let rootfs = layers.iter().map(|it| digest(it)).collect::<Vec<_>>();
        let config = json!({
            "architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": rootfs},
        });
        let config = self.blob(CONFIG, config.to_string().as_bytes());
        let layers: Vec<_> = layers.iter().map(|it| self.blob(LAYER, it)).collect();
        let document = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
        });
        self.manifest(tag, MANIFEST, &document)
    }

    /// Writes it as a directory that tools know, with one image in it.
    pub(crate) fn layout(&self, directory: &Path, tag: &str, named: &Value) {
        let blobs = directory.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        let manifests = self
            .manifests
            .iter()
            .map(|(name, (_, bytes))| (name, bytes));
        for (name, bytes) in self.blobs.iter().chain(manifests) {
            if let Some(hex) = name.strip_prefix("sha256:") {
                fs::write(blobs.join(hex), bytes).unwrap();
            }
        }
        let mut named = named.clone();
        named["annotations"] = json!({"org.opencontainers.image.ref.name": tag});
        let index = json!({"schemaVersion": 2, "manifests": [named]});
        fs::write(directory.join("index.json"), index.to_string()).unwrap();
        let version = json!({"imageLayoutVersion": "1.0.0"});
        fs::write(directory.join("oci-layout"), version.to_string()).unwrap();
    }

    /// Takes away what stands under a digest, and puts something else there.
    pub(crate) fn falsify(&mut self, name: &str, bytes: &[u8]) {
        if let Some(blob) = self.blobs.get_mut(name) {
            *blob = bytes.to_vec();
        }
        if let Some((_, manifest)) = self.manifests.get_mut(name) {
            *manifest = bytes.to_vec();
        }
    }

    /// What a registry answers that has this in `team/disk`.
    pub(crate) fn answer(&self, request: &Request) -> Reply {
        let Some(path) = request.path.strip_prefix("/v2/team/disk/") else {
            return Reply::status(404);
        };
        if let Some(name) = path.strip_prefix("manifests/")
            && let Some((kind, bytes)) = self.manifests.get(name)
        {
            return Reply::whole(bytes).header("Content-Type", kind);
        }
        let blob = path
            .strip_prefix("blobs/")
            .and_then(|name| self.blobs.get(name));
        match blob {
            // As registries do it that have no tags for what never changes.
            Some(bytes) => {
                let mut reply = Reply::file(request, bytes, "");
                reply.headers.retain(|(name, _)| *name != "ETag");
                reply
            }
            None => Reply::status(404),
        }
    }
}
