//! Requests of others, passed on as they are.

use bytes::Bytes;
use connectrpc::ConnectError;
use connectrpc::client::ClientBody;
use futures::Stream;
use futures::TryStreamExt as _;
use http::{HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::error::BoxError;
use super::transport::GuestBody;
use super::{GuestClient, GuestError};

tokio::task_local! {
    /// What the calls of a task show as their `traceparent`.
    static TRACE: HeaderValue;
}

/// Runs `future` so that every call to a guest in it carries this `traceparent`: one id leads
/// from whoever asked to what was done.
pub async fn traced<F: Future>(traceparent: HeaderValue, future: F) -> F::Output {
    TRACE.scope(traceparent, future).await
}

/// The `traceparent` of the present task.
pub(super) fn trace() -> Option<HeaderValue> {
    TRACE.try_with(Clone::clone).ok()
}

impl GuestClient {
    /// Passes a request on and returns the answer as soon as its head is there.
    ///
    /// Of the request's address only the path and query count. Headers that concern one
    /// connection only are the caller's to remove.
    pub async fn forward<S>(
        &self,
        request: Request<S>,
    ) -> Result<
        Response<impl http_body::Body<Data = Bytes, Error = BoxError> + Send + use<S>>,
        GuestError,
    >
    where
        S: Stream<Item = Result<Bytes, BoxError>> + Send + Sync + 'static,
    {
        let request = request.map(into_body);
        let answer = self.transport.exchange(request).await;
        let answer = answer.map_err(|error| GuestError::unavailable(&error))?;
        Ok(answer.map(|body: GuestBody| body.map_err(BoxError::from)))
    }
}

fn into_body<S>(stream: S) -> ClientBody
where
    S: Stream<Item = Result<Bytes, BoxError>> + Send + Sync + 'static,
{
    let frames = stream
        .map_ok(Frame::data)
        .map_err(|cause| ConnectError::internal(format!("the request cannot be read: {cause}")));
    StreamBody::new(frames).boxed()
}
