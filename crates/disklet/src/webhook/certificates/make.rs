//! Making an authority and the certificate that it signs.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};

use super::state::Generation;

/// Clocks of two machines may differ by this, and a new certificate is valid for
/// both.
pub(super) const BACK_DATED: Duration = Duration::from_secs(3600);

/// An authority that signs this one certificate: its key is forgotten at once,
/// so nobody can ever sign another.
pub(in crate::webhook) fn make(
    hosts: &[String],
    now: u64,
    life: Duration,
) -> Result<Generation, rcgen::Error> {
    let begins = now.saturating_sub(BACK_DATED.as_secs());
    let ends = now.saturating_add(life.as_secs());
    let dated = |params: &mut CertificateParams, name: &str| {
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(1970, 1, 1) + Duration::from_secs(begins);
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(ends);
    };
    let mut authority = CertificateParams::default();
    dated(&mut authority, &format!("disklet webhook authority {now}"));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

    let mut served = CertificateParams::new(hosts)?;
    dated(&mut served, "disklet webhook");
    served.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    served.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    served.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let served = served.signed_by(&key, &authority)?;
    Ok(Generation {
        authority: authority.pem(),
        certificate: served.pem(),
        key: key.serialize_pem(),
        hosts: hosts.to_vec(),
        made: now,
        not_before: begins,
        not_after: ends,
    })
}
