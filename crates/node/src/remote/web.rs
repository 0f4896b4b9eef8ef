//! Files of web servers, read by our own client.
//!
//! QEMU's driver for them loses requests when several are under way at once, and
//! follows servers into networks that are closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use disklet::pull::{PullError, PullErrorKind, WebDisk};
use disklet_block::convert::Watch;
use disklet_block::device::Source;
use disklet_core::images::{Address, Transport};
use disklet_core::networks::Networks;
use disklet_core::source::WebFile;
use disklet_core::text::Secret;
use disklet_core::url::Url;

use super::daemon::PATIENCE;
use super::{Login, while_wanted};
use crate::failure::{Failure, Result};

/// Opens a file, only to read, and hands it on.
pub(super) fn with<T>(
    file: &WebFile,
    login: Option<&Login<'_>>,
    networks: &Networks,
    watch: &dyn Watch,
    read: impl FnOnce(Arc<dyn Source>) -> Result<T>,
) -> Result<T> {
    let unread = |why| Failure::new(format!("the address of a file at {} {why}", file.server));
    let url = Url::parse(&url(file)).map_err(unread)?;
    let address = Address {
        url,
        digest: None,
        transport: Transport {
            stall_timeout: PATIENCE,
            networks: Some(networks.clone()),
            authorization: login.map(basic),
            ..Transport::default()
        },
        is_mapped: false,
    };
    let unwanted = Arc::new(AtomicBool::new(false));
    let end = || unwanted.store(true, Ordering::Relaxed);
    while_wanted(watch, end, || {
        let disk =
            WebDisk::open(&address, Arc::clone(&unwanted)).map_err(|error| unopened(&error))?;
        read(Arc::new(disk))
    })
}

fn basic(login: &Login<'_>) -> Secret {
    let words = [login.user.as_bytes(), b":", login.key.expose()].concat();
    Secret::new(format!("Basic {}", BASE64.encode(words)))
}

fn unopened(error: &PullError) -> Failure {
    if error.kind() == PullErrorKind::Cancelled {
        return Failure::cancelled();
    }
    let help = match error.kind() {
        PullErrorKind::Untrusted => Some(
            "the node has to trust the server's authority, in /etc/ssl/certs; or have the file as an image, with source: {image: {name: https://…}}, whose mapping takes tls",
        ),
        // Transports of a mapping are for images.
        PullErrorKind::Denied => {
            Some("check the user and the password, with auth of the disk's source")
        }
        PullErrorKind::NotFound => Some("check the address in the disk's source"),
        _ => error.remedy(),
    };
    let failure = Failure::new(disklet::report::with_causes(error));
    let failure = match error.kind() {
        PullErrorKind::Denied => failure.into_of_key(),
        _ => failure,
    };
    match help {
        Some(help) => failure.help(help),
        None => failure,
    }
}

/// A web file's address, with all escaped that may mean something else.
fn url(file: &WebFile) -> String {
    let mut address = format!("{}://{}/", file.scheme.name(), file.server);
    for byte in file.path.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => address.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => address.push(char::from(byte)),
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    // It is written as it is meant.
    if let Some(query) = &file.query {
        address.push('?');
        address.push_str(&String::from_utf8_lossy(query.expose()));
    }
    address
}

#[cfg(test)]
mod tests {
    use disklet_core::source::Endpoint;
    use disklet_core::url::Scheme;

    use super::*;

    #[test]
    fn addresses_are_escaped() {
        let file = WebFile {
            scheme: Scheme::Https,
            server: Endpoint::new("a", 443).unwrap(),
            path: "b c/d?e%f#ü".to_owned(),
            query: None,
        };
        assert_eq!(url(&file), "https://a:443/b%20c/d%3Fe%25f%23%C3%BC");
    }
}
