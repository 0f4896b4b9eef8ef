//! The certificate that is shown to whoever connects. It is exchanged between
//! two handshakes; connections that stand are not touched.

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::state::Generation;

/// What is served now.
#[derive(Debug, Default)]
pub(in crate::webhook) struct Served(RwLock<Option<Arc<CertifiedKey>>>);

impl Served {
    /// From now on, this.
    pub(in crate::webhook) fn exchange(&self, generation: &Generation) -> Result<(), String> {
        let key = certified(generation)?;
        let mut served = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *served = Some(Arc::new(key));
        Ok(())
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        served.clone()
    }
}

fn certified(generation: &Generation) -> Result<CertifiedKey, String> {
    let unusable = |error: rustls::pki_types::pem::Error| format!("{error:?}");
    let chain = CertificateDer::pem_slice_iter(generation.certificate.as_bytes());
    let chain: Result<Vec<_>, _> = chain.collect();
    let key = PrivateKeyDer::from_pem_slice(generation.key.as_bytes()).map_err(unusable)?;
    CertifiedKey::from_der(chain.map_err(unusable)?, key, &ring::default_provider())
        .map_err(|error| error.to_string())
}

/// TLS with what is served.
pub(in crate::webhook) fn tls(served: Arc<Served>) -> Result<ServerConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(served);
    Ok(config)
}
