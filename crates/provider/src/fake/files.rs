//! The file calls of the guest in memory.

use bytes::Bytes;
use connectrpc::{ConnectError, RequestContext, Response as Answer, ServiceRequest, ServiceResult};
use connectrpc::{ErrorCode, ServiceStream};
use guest_proto::filesystem::{
    CreateWatcherRequest, CreateWatcherResponse, EntryInfo, FileType, Filesystem,
    GetWatcherEventsRequest, GetWatcherEventsResponse, ListDirRequest, ListDirResponse,
    MakeDirRequest, MakeDirResponse, MoveRequest, MoveResponse, RemoveRequest, RemoveResponse,
    RemoveWatcherRequest, RemoveWatcherResponse, StatRequest, StatResponse, WatchDirRequest,
    WatchDirResponse,
};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use percent_encoding::percent_decode_str;
use std::sync::Arc;

use super::guest::{Body, plain};
use super::tree::{Tree, resolve};
use super::users::{home, home_of};

pub(super) struct Files {
    pub(super) tree: Arc<Tree>,
}

impl Files {
    fn entry(&self, path: &str) -> Result<EntryInfo, ConnectError> {
        let body = self.tree.get(path)?;
        let (kind, mode, permissions) = match body {
            Some(_) => (FileType::File, 0o644, "-rw-r--r--"),
            None => (FileType::Directory, 0o755, "drwxr-xr-x"),
        };
        Ok(EntryInfo {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            r#type: kind.into(),
            path: path.to_owned(),
            size: body.map_or(0, |body| i64::try_from(body.len()).unwrap_or(i64::MAX)),
            mode,
            permissions: permissions.to_owned(),
            owner: "user".to_owned(),
            group: "user".to_owned(),
            ..Default::default()
        })
    }
}

#[expect(refining_impl_trait, reason = "the service traits leave the type of an answer open")]
impl Filesystem for Files {
    async fn stat(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, StatRequest>,
    ) -> ServiceResult<StatResponse> {
        let entry = self.entry(&resolve(home_of(&context)?, request.path))?;
        Answer::ok(StatResponse { entry: entry.into(), ..Default::default() })
    }

    async fn make_dir(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, MakeDirRequest>,
    ) -> ServiceResult<MakeDirResponse> {
        let path = resolve(home_of(&context)?, request.path);
        if self.tree.is_folder(&path) {
            let message = format!("directory already exists: {path}");
            return Err(ConnectError::already_exists(message));
        }
        self.tree.make_folder(&path)?;
        Answer::ok(MakeDirResponse { entry: self.entry(&path)?.into(), ..Default::default() })
    }

    async fn r#move(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, MoveRequest>,
    ) -> ServiceResult<MoveResponse> {
        let home = home_of(&context)?;
        let destination = resolve(home, request.destination);
        self.tree.rename(&resolve(home, request.source), &destination)?;
        Answer::ok(MoveResponse { entry: self.entry(&destination)?.into(), ..Default::default() })
    }

    async fn list_dir(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, ListDirRequest>,
    ) -> ServiceResult<ListDirResponse> {
        let path = resolve(home_of(&context)?, request.path);
        let below = self.tree.below(&path, request.depth.max(1) as usize)?;
        let entries = below.iter().map(|path| self.entry(path)).collect::<Result<_, _>>()?;
        Answer::ok(ListDirResponse { entries, ..Default::default() })
    }

    async fn remove(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, RemoveRequest>,
    ) -> ServiceResult<RemoveResponse> {
        self.tree.remove(&resolve(home_of(&context)?, request.path));
        Answer::ok(RemoveResponse::default())
    }

    async fn watch_dir(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, WatchDirRequest>,
    ) -> ServiceResult<ServiceStream<WatchDirResponse>> {
        Err(unwatched())
    }

    async fn create_watcher(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, CreateWatcherRequest>,
    ) -> ServiceResult<CreateWatcherResponse> {
        Err(unwatched())
    }

    async fn get_watcher_events(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, GetWatcherEventsRequest>,
    ) -> ServiceResult<GetWatcherEventsResponse> {
        Err(unwatched())
    }

    async fn remove_watcher(
        &self,
        _: RequestContext,
        _: ServiceRequest<'_, RemoveWatcherRequest>,
    ) -> ServiceResult<RemoveWatcherResponse> {
        Err(unwatched())
    }
}

fn unwatched() -> ConnectError {
    ConnectError::unimplemented("the guest in memory watches nothing")
}

/// Answers `GET /files`.
pub(super) fn download(tree: &Tree, uri: &Uri) -> Response<Body> {
    let body = target(uri).and_then(|path| match tree.get(&path)? {
        Some(body) => Ok(body),
        None => Err(ConnectError::invalid_argument(format!("path '{path}' is a directory"))),
    });
    body.map_or_else(|error| refusal(&error), |body| plain(StatusCode::OK, body))
}

/// Answers `POST /files` with a body that is the file.
pub(super) async fn upload(tree: &Tree, request: Request<Incoming>) -> Response<Body> {
    let path = target(request.uri());
    let body = request.into_body().collect().await;
    let written = path.and_then(|path| {
        let body = body.map_err(|error| ConnectError::invalid_argument(error.to_string()))?;
        tree.write(&path, body.to_bytes())
    });
    written.map_or_else(|error| refusal(&error), |()| plain(StatusCode::OK, Bytes::from("[]")))
}

fn target(uri: &Uri) -> Result<String, ConnectError> {
    let value = |name: &str| {
        let pairs = uri.query().unwrap_or_default().split('&');
        pairs
            .filter_map(|pair| pair.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|(_, value)| percent_decode_str(value).decode_utf8_lossy().into_owned())
    };
    let user = value("username").unwrap_or_else(|| "user".to_owned());
    let home = home(&user).map_err(ConnectError::unauthenticated)?;
    let path = value("path").ok_or_else(|| ConnectError::invalid_argument("no path"))?;
    Ok(resolve(home, &path))
}

fn refusal(error: &ConnectError) -> Response<Body> {
    let status = match error.code {
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        _ => StatusCode::BAD_REQUEST,
    };
    let words = serde_json::json!({ "code": status.as_u16(), "message": error.message });
    plain(status, words.to_string().into())
}
