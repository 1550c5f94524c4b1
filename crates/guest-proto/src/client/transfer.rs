//! The bodies of files, as plain HTTP.

use std::fmt;

use bytes::Bytes;
use connectrpc::ConnectError;
use connectrpc::client::{ClientBody, full_body};
use futures::{Stream, TryStreamExt};
use http::{Method, Request, Response, request};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::error::BoxError;
use super::state::{accept, short_body};
use super::transport::{BASE, GuestBody};
use super::{GuestClient, GuestError};

/// A file on its way out of a sandbox.
pub struct Download {
    length: Option<u64>,
    body: GuestBody,
}

impl Download {
    /// How long the guest says the file is. Nothing may be reserved on its word.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// The next piece; `None` when all of it was read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, GuestError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| GuestError::unavailable(&error))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for Download {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Download").field("length", &self.length).finish_non_exhaustive()
    }
}

impl GuestClient {
    /// Writes a file, and makes the folders above it.
    pub async fn upload<S>(&self, path: &str, user: Option<&str>, body: S) -> Result<(), GuestError>
    where
        S: Stream<Item = Result<Bytes, BoxError>> + Send + Sync + 'static,
    {
        let frames = body
            .map_ok(Frame::data)
            .map_err(|cause| ConnectError::internal(format!("the file cannot be read: {cause}")));
        let request = file_request(Method::POST, path, user)
            .header("content-type", "application/octet-stream");
        let answer = self.send(request, StreamBody::new(frames).boxed()).await?;
        let (head, body) = answer.into_parts();
        let words = short_body(body).await?;
        accept(head.status, &words)
    }

    /// Reads a file.
    pub async fn download(&self, path: &str, user: Option<&str>) -> Result<Download, GuestError> {
        let request = file_request(Method::GET, path, user);
        let (head, body) = self.send(request, full_body(Bytes::new())).await?.into_parts();
        if !head.status.is_success() {
            let words = short_body(body).await?;
            return Err(GuestError::from_answer(head.status, &words));
        }
        Ok(Download { length: http_body::Body::size_hint(&body).exact(), body })
    }

    async fn send(
        &self,
        request: request::Builder,
        body: ClientBody,
    ) -> Result<Response<GuestBody>, GuestError> {
        let request = request.body(body).map_err(|error| GuestError::InvalidArgument {
            message: format!("no request can be made: {error}"),
        })?;
        self.transport.exchange(request).await.map_err(|error| GuestError::unavailable(&error))
    }
}

fn file_request(method: Method, path: &str, user: Option<&str>) -> request::Builder {
    let path = utf8_percent_encode(path, NON_ALPHANUMERIC);
    let mut uri = format!("{BASE}/files?path={path}");
    if let Some(user) = user {
        uri.push_str("&username=");
        uri.extend(utf8_percent_encode(user, NON_ALPHANUMERIC));
    }
    Request::builder().method(method).uri(uri)
}
