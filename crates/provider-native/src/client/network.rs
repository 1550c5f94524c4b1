//! What a sandbox may reach: told to the egress program through the engine, and shown to the
//! programs inside.

use std::collections::BTreeMap;
use std::io;

use ::network::{Authority, Configuration, Rules};
use bytes::Bytes;
use domain::{NetworkPolicy, SandboxId};
use futures::StreamExt as _;
use guest_proto::{GuestClient, GuestError};
use provider::{NetworkLog, ProviderError};

use super::{NativeProvider, backend, checked, java, odd};
use crate::verbs::{Answer, Record, Verb};

/// Where the certificate of a sandbox's own authority lies inside, for whoever asks for it.
const CERTIFICATE: &str = "/usr/local/share/ca-certificates/soma.crt";

/// The same with all others that the system trusts, as Java reads them.
const KEY_STORE: &str = "/usr/local/share/ca-certificates/soma.jks";

/// Where systems have all certificates that they trust in one file, the most usual first.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Variables by which programs find such a file: OpenSSL and Go, requests, pip, curl, git, the
/// cloud's tools.
const FILES: [&str; 6] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
];

/// Those by which they find what is trusted beside their own.
const ADDED: [&str; 2] = ["NODE_EXTRA_CA_CERTS", "DENO_CERT"];

/// No list of certificates comes near it.
const LARGEST_BUNDLE: usize = 4 << 20;

impl NativeProvider {
    /// Lets the egress program work like this from now on, also when it starts anew.
    pub async fn configure_network(
        &self,
        configuration: &Configuration,
    ) -> Result<(), ProviderError> {
        let configuration = checked(&text(configuration)?)?;
        self.ask(Verb::ConfigureNetwork { configuration }, None).await?;
        Ok(())
    }

    /// What the egress program is told of a sandbox that is about to be made.
    pub(super) fn rules(id: &SandboxId, policy: &NetworkPolicy) -> Result<Rules, ProviderError> {
        let mut rules = Rules { policy: policy.clone(), ..Rules::nothing(id.clone()) };
        if !policy.transforms.is_empty() {
            let made = Authority::generate(id);
            rules.authority = Some(made.map_err(|error| broken("make an authority", error))?);
        }
        Ok(rules)
    }

    pub(super) async fn change_rules(
        &self,
        id: &SandboxId,
        policy: &NetworkPolicy,
    ) -> Result<(), ProviderError> {
        let before = self.read_rules(id).await?.and_then(|rules| rules.authority);
        let mut rules = Self::rules(id, policy)?;
        // What was signed stays good.
        rules.authority = before.or(rules.authority);
        let rules = record(&rules)?;
        self.ask(Verb::ChangeNetwork { id: id.clone(), rules }, Some(id)).await?;
        Ok(())
    }

    /// The rules that a sandbox has; none when nobody ever gave it any that can be read.
    pub(super) async fn read_rules(&self, id: &SandboxId) -> Result<Option<Rules>, ProviderError> {
        match self.ask(Verb::ReadRules { id: id.clone() }, Some(id)).await?.0 {
            Answer::Record(Record(text)) => Ok(serde_json::from_str(&text).ok()),
            other => Err(odd(&other)),
        }
    }

    pub(super) async fn follow_network(
        &self,
        id: &SandboxId,
        after: u64,
        follow: bool,
    ) -> Result<NetworkLog, ProviderError> {
        let (_, descriptor) = self.ask(Verb::ReadNetwork, None).await?;
        let step = "read what the sandbox reached";
        let missing = || backend(step, io::Error::other("the engine sent no connection"));
        let connection = descriptor.ok_or_else(missing)?;
        let entries = ::network::follow_log(connection, id.clone(), after, follow);
        let entries = entries.await.map_err(|error| backend(step, error))?;
        Ok(entries.map(move |entry| entry.map_err(|error| backend(step, error))).boxed())
    }

    /// Makes the programs in a sandbox trust its own authority.
    pub(super) async fn furnish(
        guest: &GuestClient,
        authority: &Authority,
    ) -> Result<(), ProviderError> {
        let certificate = Bytes::from(authority.certificate.clone());
        write(guest, CERTIFICATE, certificate.clone()).await.map_err(untrusting)?;
        let all = Self::add_to_bundle(guest, certificate).await.map_err(untrusting)?;
        let store = Bytes::from(java::key_store(&all));
        write(guest, KEY_STORE, store).await.map_err(untrusting)
    }

    /// Adds the certificate to those that the system trusts, and returns all of them.
    async fn add_to_bundle(guest: &GuestClient, certificate: Bytes) -> Result<Bytes, GuestError> {
        for bundle in BUNDLES {
            let Some(mut all) = read(guest, bundle).await else { continue };
            let is_there = all.windows(certificate.len()).any(|part| part == certificate);
            if !is_there {
                all.extend_from_slice(b"\n");
                all.extend_from_slice(&certificate);
            }
            let all = Bytes::from(all);
            if !is_there {
                write(guest, bundle, all.clone()).await?;
            }
            if bundle != BUNDLES[0] {
                // The variables name the most usual place.
                write(guest, BUNDLES[0], all.clone()).await?;
            }
            return Ok(all);
        }
        // A system that trusts nobody trusts this one alone.
        write(guest, BUNDLES[0], certificate.clone()).await?;
        Ok(certificate)
    }
}

/// Variables by which programs find the authority's certificate.
pub(super) fn variables() -> BTreeMap<String, String> {
    let files = FILES.iter().map(|name| (*name, BUNDLES[0]));
    let added = ADDED.iter().map(|name| (*name, CERTIFICATE));
    let variables = files.chain(added).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let java = format!("-Djavax.net.ssl.trustStore={KEY_STORE}");
    variables.chain([("JAVA_TOOL_OPTIONS".to_owned(), java)]).collect()
}

pub(super) fn untrusting(error: GuestError) -> ProviderError {
    broken("make the sandbox trust its authority", error)
}

pub(super) fn record(rules: &Rules) -> Result<Record, ProviderError> {
    checked(&text(rules)?)
}

fn text(value: &impl serde::Serialize) -> Result<String, ProviderError> {
    serde_json::to_string(value).map_err(|error| broken("write the network's rules", error))
}

fn broken(step: &str, error: impl std::error::Error + Send + Sync + 'static) -> ProviderError {
    ProviderError::Backend { step: step.to_owned(), source: Box::new(error) }
}

async fn read(guest: &GuestClient, path: &str) -> Option<Vec<u8>> {
    let mut file = guest.download(path, Some("root")).await.ok()?;
    let mut bytes = Vec::new();
    while let Some(part) = file.next().await.ok()? {
        bytes.extend_from_slice(&part);
        if bytes.len() > LARGEST_BUNDLE {
            return None;
        }
    }
    Some(bytes)
}

async fn write(guest: &GuestClient, path: &str, bytes: Bytes) -> Result<(), GuestError> {
    let body = futures::stream::iter([Ok(bytes)]);
    guest.upload(path, Some("root"), body).await
}
