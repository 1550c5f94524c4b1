//! From a provider to the guest in one of its sandboxes.

use std::sync::Arc;

use async_trait::async_trait;
use domain::SandboxId;
use guest_proto::{ByteStream, Dial, GuestClient};
use policy::Permitted;

use crate::{BoxError, Provider};

/// A client of the guest in a sandbox that may be used. Nothing is dialled before its first call.
pub fn guest(provider: Arc<dyn Provider>, id: Permitted<SandboxId>) -> GuestClient {
    GuestClient::new(Through { provider, id })
}

struct Through {
    provider: Arc<dyn Provider>,
    id: Permitted<SandboxId>,
}

#[async_trait]
impl Dial for Through {
    async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError> {
        Ok(self.provider.connect(&self.id).await?)
    }
}
