//! The service `soma.guest.v1.Guest`: what this guest tells and does beyond E2B's agent.
//!
//! It only translates; what listens is in [`crate::ports`], the work on files in
//! [`crate::files`]. A guest that acts as protocol 1 ([`State::protocol`]) has no such service,
//! and one of protocol 2 no files in it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use connectrpc::{
    Encodable, RequestContext, Response, ServiceRequest, ServiceResult, ServiceStream,
};
use guest_proto::soma::guest::v1::{
    CopyRequest, CopyResponse, GlobRequest, GlobResponse, GrepRequest, GrepResponse,
    Guest as GuestService, MakeDirRequest, MakeDirResponse, MakeLinkRequest, MakeLinkResponse,
    MoveRequest, MoveResponse, PortsRequest, PortsResponse, RemoveRequest, RemoveResponse,
    SetAttributesRequest, SetAttributesResponse, VersionRequest, VersionResponse,
};
use guest_proto::version;

use crate::files::answer::{Answer, Place};
use crate::files::attributes::{self, Changes};
use crate::files::relocate::{self, Existing};
use crate::files::{self, FileError, duplicate, glob, grep, link, remove};
use crate::ports::{self, Watch};
use crate::process::keepalive;
use crate::state::State;
use crate::users::{self, User};

/// The service.
#[derive(Debug)]
pub(crate) struct Guest {
    state: Arc<State>,
    ports: Arc<Watch>,
}

impl Guest {
    /// The service for this sandbox.
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state, ports: Arc::default() }
    }

    /// Who asks.
    fn caller(&self, context: &RequestContext) -> Result<User, FileError> {
        files::find_user(&self.state, users::named_in(context.headers()))
    }

    /// Who asks, and what that user means by `path`.
    fn caller_and_path(
        &self,
        context: &RequestContext,
        path: impl AsRef<OsStr>,
    ) -> Result<(User, PathBuf), FileError> {
        let user = self.caller(context)?;
        let path = files::expand(&self.state, path, &user)?;
        Ok((user, path))
    }
}

/// Whether a guest of this protocol has what is at a path of this service.
pub(crate) fn serves(path: &str, protocol: u32) -> bool {
    let Some(call) = path.strip_prefix("/soma.guest.v1.Guest/") else { return false };
    match call {
        "Version" | "Ports" => protocol > version::FIRST,
        "MakeLink" => protocol >= version::RAW_PATHS.since,
        _ => protocol >= version::FILES.since,
    }
}

#[expect(refining_impl_trait, reason = "the messages themselves are what the trait asks for")]
impl GuestService for Guest {
    async fn version(
        &self,
        _context: RequestContext,
        _request: ServiceRequest<'_, VersionRequest>,
    ) -> ServiceResult<VersionResponse> {
        let protocol = self.state.protocol;
        let features = version::FEATURES.iter().filter(|feature| feature.since <= protocol);
        Response::ok(VersionResponse {
            protocol,
            features: features.map(|feature| feature.name.to_owned()).collect(),
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

    async fn make_dir(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, MakeDirRequest>,
    ) -> ServiceResult<MakeDirResponse> {
        let (user, path) = self.caller_and_path(&context, request.path)?;
        let (parents, mode) = (request.parents, request.mode);
        files::short_as(user, move |user| attributes::make_folder(&path, parents, mode, user))
            .await?;
        Response::ok(MakeDirResponse::default())
    }

    async fn remove(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, RemoveRequest>,
    ) -> ServiceResult<RemoveResponse> {
        let (user, path) = self.caller_and_path(&context, request.path)?;
        let recursive = request.recursive;
        files::long_as(user, move |_| remove::remove_existing(&path, recursive)).await?;
        Response::ok(RemoveResponse::default())
    }

    async fn r#move(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, MoveRequest>,
    ) -> ServiceResult<MoveResponse> {
        let (user, source) = self.caller_and_path(&context, request.source)?;
        let destination = files::expand(&self.state, request.destination, &user)?;
        let existing = existing(request.overwrite);
        files::long_as(user, move |user| relocate::relocate(&source, &destination, user, existing))
            .await?;
        Response::ok(MoveResponse::default())
    }

    async fn copy(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, CopyRequest>,
    ) -> ServiceResult<CopyResponse> {
        let (user, source) = self.caller_and_path(&context, request.source)?;
        let destination = files::expand(&self.state, request.destination, &user)?;
        let (recursive, existing) = (request.recursive, existing(request.overwrite));
        files::long_as(user, move |user| {
            duplicate::duplicate(&source, &destination, user, recursive, existing)
        })
        .await?;
        Response::ok(CopyResponse::default())
    }

    async fn set_attributes(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, SetAttributesRequest>,
    ) -> ServiceResult<SetAttributesResponse> {
        let path = files::spelled(&self.state, request.path, request.path_bytes);
        let (user, path) = self.caller_and_path(&context, path)?;
        let changes = Changes {
            mode: request.mode,
            owner: request.owner.map(ToOwned::to_owned),
            group: request.group.map(ToOwned::to_owned),
        };
        files::short_as(user, move |_| attributes::change(&path, &changes)).await?;
        Response::ok(SetAttributesResponse::default())
    }

    async fn make_link(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, MakeLinkRequest>,
    ) -> ServiceResult<MakeLinkResponse> {
        let (user, path) = self.caller_and_path(&context, OsStr::from_bytes(request.path))?;
        let text = OsStr::from_bytes(request.text).to_owned();
        files::short_as(user, move |_| link::make(&path, &text)).await?;
        Response::ok(MakeLinkResponse::default())
    }

    async fn glob(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, GlobRequest>,
    ) -> ServiceResult<Answer<GlobResponse>> {
        let (user, path) = self.caller_and_path(&context, request.path)?;
        let wanted = glob::Wanted {
            pattern: request.pattern.to_owned(),
            exclude: request.exclude.iter().map(|one| (*one).to_owned()).collect(),
            limit: request.limit,
        };
        let place = Place::take().await?;
        let found = files::long_as(user, move |_| glob::glob(&path, &wanted)).await?;
        Response::ok(place.keep(found))
    }

    async fn grep(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, GrepRequest>,
    ) -> ServiceResult<Answer<GrepResponse>> {
        let (user, path) = self.caller_and_path(&context, request.path)?;
        let wanted = grep::Wanted {
            pattern: request.pattern.to_owned(),
            include: request.include.map(ToOwned::to_owned),
            exclude: request.exclude.iter().map(|one| (*one).to_owned()).collect(),
            limit: request.limit,
        };
        let place = Place::take().await?;
        let found = files::long_as(user, move |_| grep::grep(&path, &wanted)).await?;
        Response::ok(place.keep(found))
    }
}

fn existing(overwrite: bool) -> Existing {
    if overwrite { Existing::Replaced } else { Existing::Stays }
}
