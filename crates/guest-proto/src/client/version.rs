//! What the guest at the other end speaks, asked once.

use connectrpc::ErrorCode;
use connectrpc::client::CallOptions;

use super::{ANSWER_LIMIT, CALL_TIMEOUT, GuestClient, GuestError};
use crate::soma::guest::v1::VersionRequest;
use crate::version::{FEATURES, FIRST, Feature};

/// What a guest says it speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestVersion {
    /// The number of its protocol.
    pub protocol: u32,
    /// What it can do beyond the first protocol, of all that we know.
    pub features: Vec<Feature>,
}

impl GuestClient {
    /// What the guest speaks. It is asked once; a guest that could not be reached is asked again.
    pub async fn version(&self) -> Result<GuestVersion, GuestError> {
        self.version.get_or_try_init(|| self.ask_version()).await.cloned()
    }

    /// Fails at once when the guest is older than `feature`.
    pub async fn require(&self, feature: Feature) -> Result<(), GuestError> {
        let version = self.version().await?;
        if version.features.contains(&feature) {
            return Ok(());
        }
        Err(GuestError::TooOld { needs: feature, has: version.protocol })
    }

    async fn ask_version(&self) -> Result<GuestVersion, GuestError> {
        let options =
            CallOptions::default().with_timeout(CALL_TIMEOUT).with_max_message_size(ANSWER_LIMIT);
        match self.own.version_with_options(VersionRequest::default(), options).await {
            Ok(answer) => {
                let told = answer.into_owned();
                let known = FEATURES
                    .iter()
                    .filter(|known| told.features.iter().take(1000).any(|name| name == known.name));
                Ok(GuestVersion { protocol: told.protocol, features: known.copied().collect() })
            }
            // Guests from before there were numbers have no such route.
            Err(error) if matches!(error.code, ErrorCode::Unimplemented | ErrorCode::NotFound) => {
                Ok(GuestVersion { protocol: FIRST, features: Vec::new() })
            }
            Err(error) => Err(error.into()),
        }
    }
}
