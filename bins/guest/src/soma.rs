//! The service `soma.guest.v1.Guest`: what this guest tells beyond E2B's agent.
//!
//! It only translates; what listens is in [`crate::ports`]. A guest that acts as protocol 1
//! ([`crate::state::State::protocol`]) has no such service.

use std::sync::Arc;

use connectrpc::{
    Encodable, RequestContext, Response, ServiceRequest, ServiceResult, ServiceStream,
};
use guest_proto::soma::guest::v1::{
    Guest as GuestService, PortsRequest, PortsResponse, VersionRequest, VersionResponse,
};
use guest_proto::version;

use crate::ports::{self, Watch};
use crate::process::keepalive;

/// The service.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    ports: Arc<Watch>,
}

#[expect(refining_impl_trait, reason = "the messages themselves are what the trait asks for")]
impl GuestService for Guest {
    async fn version(
        &self,
        _context: RequestContext,
        _request: ServiceRequest<'_, VersionRequest>,
    ) -> ServiceResult<VersionResponse> {
        Response::ok(VersionResponse {
            protocol: version::PROTOCOL,
            features: version::FEATURES.iter().map(|feature| feature.name.to_owned()).collect(),
            ..VersionResponse::default()
        })
    }

    async fn ports(
        &self,
        context: RequestContext,
        _request: ServiceRequest<'_, PortsRequest>,
    ) -> ServiceResult<ServiceStream<impl Encodable<PortsResponse> + Send + use<>>> {
        let keepalive = keepalive(context.headers());
        Response::ok(ports::follow(Arc::clone(&self.ports), keepalive, context.deadline()))
    }
}
