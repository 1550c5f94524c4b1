//! Certificates: a sandbox's own authority, the leaves it signs, and whom we trust ourselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use domain::{SandboxId, SecretText};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};

use crate::Authority;

const DAY: Duration = Duration::from_hours(24);
/// How long an authority is good for.
const YEARS_OF_AUTHORITY: u32 = 10;
/// How long a leaf is good for, and how long it is given out.
const DAYS_OF_LEAF: u32 = 90;
const RENEWED_AFTER: Duration = DAY.saturating_mul(30);
const MOST_LEAVES: usize = 64;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
#[error("the certificate cannot be made: {0}")]
pub struct CertificateError(String);

impl Authority {
    /// A new authority for one sandbox alone.
    pub fn generate(sandbox: &SandboxId) -> Result<Self, CertificateError> {
        let name = format!("Soma sandbox {}", sandbox.as_str());
        let key = KeyPair::generate().map_err(wrong)?;
        let mut params = authority_params(&name);
        params.not_before = (SystemTime::now() - DAY).into();
        params.not_after = (SystemTime::now() + DAY * 365 * YEARS_OF_AUTHORITY).into();
        let certificate = params.self_signed(&key).map_err(wrong)?;
        let key = SecretText::new(key.serialize_pem());
        Ok(Self { name, certificate: certificate.pem(), key })
    }

    /// A certificate for one name, with its key, signed by this authority.
    fn sign(&self, name: &str) -> Result<CertifiedKey, CertificateError> {
        let key = KeyPair::from_pem(self.key.expose()).map_err(|_| unreadable())?;
        let issuer = Issuer::new(authority_params(&self.name), key);
        let mut params = CertificateParams::new([name.to_owned()]).map_err(wrong)?;
        params.distinguished_name = common_name(name);
        params.not_before = (SystemTime::now() - DAY).into();
        params.not_after = (SystemTime::now() + DAY * DAYS_OF_LEAF).into();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let leaf_key = KeyPair::generate().map_err(wrong)?;
        let leaf = params.signed_by(&leaf_key, &issuer).map_err(wrong)?;
        let own = CertificateDer::from_pem_slice(self.certificate.as_bytes());
        let chain = vec![leaf.der().clone(), own.map_err(|_| unreadable())?];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
        let key = provider().key_provider.load_private_key(key).map_err(wrong)?;
        Ok(CertifiedKey::new(chain, key))
    }
}

/// The leaves that a sandbox's authority has signed under its present rules.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    signed: Mutex<HashMap<String, (Instant, Arc<CertifiedKey>)>>,
}

impl Leaves {
    /// The certificate for a name, signed now if there is none.
    pub(crate) fn get(
        &self,
        authority: &Authority,
        name: &str,
    ) -> Result<Arc<CertifiedKey>, CertificateError> {
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, leaf)) = signed.get(name)
            && since.elapsed() < RENEWED_AFTER
        {
            return Ok(Arc::clone(leaf));
        }
        let leaf = Arc::new(authority.sign(name)?);
        if signed.len() >= MOST_LEAVES {
            signed.clear();
        }
        signed.insert(name.to_owned(), (Instant::now(), Arc::clone(&leaf)));
        Ok(leaf)
    }
}

/// The one library for all cryptography here.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Whom we trust when we speak TLS for a sandbox: whom the host trusts, and some more as PEM.
pub(crate) fn trust(more: Option<&str>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    let host = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(host.certs);
    if let Some(text) = more {
        roots.add_parsable_certificates(read_all(text)?);
    }
    if roots.is_empty() {
        return Err("this host trusts no certificate authority; install ca-certificates".to_owned());
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The certificates in a text of PEM, which has some.
pub(crate) fn read_all(text: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = || "the certificates in the network's configuration are no PEM".to_owned();
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(wrong)
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    // Of such a name 64 letters are allowed; clients read the one beside it, which has no limit.
    distinguished.push(DnType::CommonName, name.get(..64).unwrap_or(name));
    distinguished
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn wrong(error: impl ToString) -> CertificateError {
    CertificateError(error.to_string())
}

/// What was wrong with a key is not repeated.
fn unreadable() -> CertificateError {
    CertificateError("the sandbox's authority cannot be read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::{ServerName, UnixTime};

    #[test]
    fn a_leaf_is_good_for_its_name_and_its_own_sandbox() {
        let ours = Authority::generate(&SandboxId::from_random([1; 15])).unwrap();
        let other = Authority::generate(&SandboxId::from_random([2; 15])).unwrap();
        let leaf = Leaves::default().get(&ours, "api.example.com").unwrap();
        let verify = |authority: &Authority, name: &str| {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(read_all(&authority.certificate).unwrap());
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider());
            let name = ServerName::try_from(name.to_owned()).unwrap();
            let verifier = verifier.build().unwrap();
            verifier
                .verify_server_cert(&leaf.cert[0], &leaf.cert[1..], &name, &[], UnixTime::now())
                .is_ok()
        };
        assert!(verify(&ours, "api.example.com"));
        assert!(!verify(&ours, "other.example.com"));
        assert!(!verify(&other, "api.example.com"));
    }
}
