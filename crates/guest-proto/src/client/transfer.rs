//! The bodies of files, as plain HTTP.

use std::fmt;

use bytes::{Buf as _, Bytes};
use connectrpc::ConnectError;
use connectrpc::client::{ClientBody, full_body};
use futures::{Stream, TryStreamExt};
use http::header::{CONTENT_RANGE, RANGE};
use http::{Method, Request, Response, StatusCode, request};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode, utf8_percent_encode};

use super::error::BoxError;
use super::state::{accept, short_body};
use super::transport::{BASE, GuestBody};
use super::{GuestClient, GuestError};
use crate::version::FILES;

/// A file, or a part of one, on its way out of a sandbox.
pub struct Download {
    length: Option<u64>,
    total: Option<u64>,
    /// None when nothing of it is wanted.
    body: Option<GuestBody>,
    /// Bytes that come first and are not wanted.
    unwanted: u64,
    /// Bytes that may still be given out, whatever the guest sends.
    left: u64,
}

impl Download {
    /// How long the guest says this is, if it does. Nothing may be reserved on its word.
    pub fn length(&self) -> Option<u64> {
        self.length
    }

    /// How long the guest says the whole file is, if it does.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// The next piece; `None` when all of it was read.
    pub async fn next(&mut self) -> Result<Option<Bytes>, GuestError> {
        while self.left > 0
            && let Some(body) = &mut self.body
            && let Some(frame) = body.frame().await
        {
            let frame = frame.map_err(|error| GuestError::unavailable(&error))?;
            let Ok(mut bytes) = frame.into_data() else { continue };
            let unwanted = self.unwanted.min(bytes.len() as u64);
            self.unwanted -= unwanted;
            bytes.advance(usize::try_from(unwanted).unwrap_or(bytes.len()));
            bytes.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            if !bytes.is_empty() {
                self.left -= bytes.len() as u64;
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
    pub async fn upload<S>(
        &self,
        path: &(impl AsRef<[u8]> + Sync + ?Sized),
        user: Option<&str>,
        body: S,
    ) -> Result<(), GuestError>
    where
        S: Stream<Item = Result<Bytes, BoxError>> + Send + Sync + 'static,
    {
        self.upload_with(path, user, None, body).await
    }

    /// Writes a file that then has exactly this mode, and makes the folders above it.
    ///
    /// Without a mode a new file has 0644, and one that is replaced keeps its own.
    pub async fn upload_with<S>(
        &self,
        path: &(impl AsRef<[u8]> + Sync + ?Sized),
        user: Option<&str>,
        mode: Option<u32>,
        body: S,
    ) -> Result<(), GuestError>
    where
        S: Stream<Item = Result<Bytes, BoxError>> + Send + Sync + 'static,
    {
        let mut uri = file_uri(path.as_ref(), user);
        if let Some(mode) = mode {
            self.require(FILES).await?;
            uri = format!("{uri}&mode={mode:o}");
        }
        let frames = body
            .map_ok(Frame::data)
            .map_err(|cause| ConnectError::internal(format!("the file cannot be read: {cause}")));
        let request = Request::builder()
            .method(Method::POST)
            .uri(uri)
            .header("content-type", "application/octet-stream");
        let answer = self.send(request, StreamBody::new(frames).boxed()).await?;
        let (head, body) = answer.into_parts();
        let words = short_body(body).await?;
        accept(&head, &words)
    }

    /// Reads a file.
    pub async fn download(
        &self,
        path: &(impl AsRef<[u8]> + Sync + ?Sized),
        user: Option<&str>,
    ) -> Result<Download, GuestError> {
        self.download_range(path, user, 0, None).await
    }

    /// Reads `length` bytes of a file from `start` on, or all from there.
    ///
    /// What lies beyond the end of the file is not there: less comes, or nothing.
    pub async fn download_range(
        &self,
        path: &(impl AsRef<[u8]> + Sync + ?Sized),
        user: Option<&str>,
        start: u64,
        length: Option<u64>,
    ) -> Result<Download, GuestError> {
        let mut request = Request::builder().method(Method::GET).uri(file_uri(path.as_ref(), user));
        if start > 0 || length.is_some() {
            // A range has one byte at least.
            let last = length.map(|length| start.saturating_add(length.max(1) - 1).to_string());
            request = request.header(RANGE, format!("bytes={start}-{}", last.unwrap_or_default()));
        }
        let (head, body) = self.send(request, full_body(Bytes::new())).await?.into_parts();
        let exact = http_body::Body::size_hint(&body).exact();
        let range = head.headers.get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
        let total = range.and_then(|range| range.rsplit_once('/')?.1.parse().ok());
        let left = length.unwrap_or(u64::MAX);
        match head.status {
            StatusCode::PARTIAL_CONTENT => Ok(Download {
                length: exact.map(|exact| exact.min(left)),
                total,
                body: Some(body),
                unwanted: 0,
                left,
            }),
            StatusCode::RANGE_NOT_SATISFIABLE => {
                Ok(Download { length: Some(0), total, body: None, unwanted: 0, left: 0 })
            }
            // All of it, also where a part was asked for: files without a length have no parts.
            status if status.is_success() => Ok(Download {
                length: exact.map(|exact| exact.saturating_sub(start).min(left)),
                total: exact,
                body: Some(body),
                unwanted: start,
                left,
            }),
            status => {
                let words = short_body(body).await?;
                Err(GuestError::from_answer(status, &head.headers, &words))
            }
        }
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

/// A guest that takes text alone refuses a path that is none.
fn file_uri(path: &[u8], user: Option<&str>) -> String {
    let path = percent_encode(path, NON_ALPHANUMERIC);
    let mut uri = format!("{BASE}/files?path={path}");
    if let Some(user) = user {
        uri.push_str("&username=");
        uri.extend(utf8_percent_encode(user, NON_ALPHANUMERIC));
    }
    uri
}
