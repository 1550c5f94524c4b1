//! Contents that are read.

use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use control::Control;
use futures::stream;
use guest_proto::client::Download;
use guest_proto::{GuestClient, GuestError};
use http::header;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{failed, is_folder, path};
use crate::ApiError;
use crate::error::FileRefusals;
use crate::extract::{Asking, Body, Which};

/// How much is read at once from the end of a file when its last lines are looked for.
const BLOCK: u64 = 256 << 10;

/// The most that is read for the last lines.
const LONGEST_TAIL: u64 = 32 << 20;

/// How many files one request may ask for.
const MOST: usize = 1000;

/// What to read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Read {
    /// Which file.
    pub path: String,
    /// From which byte on.
    #[serde(default)]
    pub offset: Option<u64>,
    /// How many bytes at the most.
    #[serde(default)]
    pub limit: Option<u64>,
    /// How many lines from its beginning.
    #[serde(default)]
    pub head: Option<u64>,
    /// How many lines from its end.
    #[serde(default)]
    pub tail: Option<u64>,
}

/// Read a file, or a part of it.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/read-file", tag = "files", operation_id = "read_file",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Read,
    responses(
        (status = 200, description = "its bytes", body = String,
         content_type = "application/octet-stream"),
        FileRefusals,
    ),
)]
pub(crate) async fn read_file(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Read>,
) -> Result<Response, ApiError> {
    let name = path("path", &asked.path)?;
    let by_lines = asked.head.is_some() || asked.tail.is_some();
    if asked.head.is_some() && asked.tail.is_some() {
        return Err(ApiError::invalid("`head` and `tail` exclude each other"));
    }
    if by_lines && (asked.offset.is_some() || asked.limit.is_some()) {
        return Err(ApiError::invalid("lines (`head`, `tail`) and bytes exclude each other"));
    }
    let guest = control.guest(&caller, &which).await?;
    let body = match (asked.head, asked.tail) {
        (Some(lines), _) => {
            let download = guest.download(name, None).await.map_err(failed)?;
            HttpBody::from_stream(first_lines(download, lines))
        }
        (None, Some(lines)) => HttpBody::from(last_lines(&guest, name, lines).await?),
        (None, None) => {
            let (start, length) = (asked.offset.unwrap_or(0), asked.limit);
            let download = if start == 0 && length.is_none() {
                guest.download(name, None).await
            } else {
                guest.download_range(name, None, start, length).await
            };
            HttpBody::from_stream(whole(download.map_err(failed)?))
        }
    };
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

fn whole(download: Download) -> impl stream::Stream<Item = Result<Bytes, GuestError>> {
    stream::try_unfold(download, |mut download| async move {
        Ok(download.next().await?.map(|bytes| (bytes, download)))
    })
}

/// The first lines, and no more of the file than they take.
fn first_lines(
    download: Download,
    lines: u64,
) -> impl stream::Stream<Item = Result<Bytes, GuestError>> {
    stream::try_unfold((download, lines), |(mut download, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let Some(bytes) = download.next().await? else { return Ok(None) };
        let mut left = left;
        let end = bytes.iter().position(|byte| {
            left -= u64::from(*byte == b'\n');
            left == 0
        });
        let bytes = match end {
            Some(end) => bytes.slice(..=end),
            None => bytes,
        };
        Ok(Some((bytes, (download, left))))
    })
}

/// The last lines, read from the end.
async fn last_lines(guest: &GuestClient, name: &str, lines: u64) -> Result<Bytes, ApiError> {
    let entry = guest.stat(name, None).await.map_err(failed)?;
    let length = u64::try_from(entry.size).unwrap_or(0);
    if is_folder(&entry) || length == 0 || lines == 0 {
        // The guest says what is wrong with what is no file.
        guest.download(name, None).await.map_err(failed)?;
        return Ok(Bytes::new());
    }
    let mut size = BLOCK;
    loop {
        let size_now = size.min(length);
        let start = length - size_now;
        let mut download =
            guest.download_range(name, None, start, Some(size_now)).await.map_err(failed)?;
        let mut block = Vec::new();
        while let Some(bytes) = download.next().await.map_err(failed)? {
            block.extend_from_slice(&bytes);
            if block.len() as u64 > size_now {
                break;
            }
        }
        if let Some(place) = place_of_last(&block, lines) {
            return Ok(Bytes::from(block).slice(place..));
        }
        if start == 0 {
            return Ok(Bytes::from(block));
        }
        if size >= LONGEST_TAIL {
            let message = format!(
                "the last {lines} lines take more than {LONGEST_TAIL} bytes: read the end by \
                 offset instead"
            );
            return Err(ApiError::invalid(message));
        }
        size *= 4;
    }
}

/// Where the last lines begin, if that many begin in this block.
fn place_of_last(block: &[u8], lines: u64) -> Option<usize> {
    // A line end at the very end does not begin another line.
    let ends = block.iter().enumerate().rev().skip(1).filter(|(_, byte)| **byte == b'\n');
    let wanted = usize::try_from(lines).ok()?.checked_sub(1)?;
    ends.map(|(place, _)| place + 1).nth(wanted)
}

/// Files to read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadMany {
    /// Which.
    pub paths: Vec<String>,
}

/// Read several files. The answer has a part for each, whose name is its path.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/read-files", tag = "files",
    operation_id = "read_files",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = ReadMany,
    responses(
        (status = 200, description = "a part for each", body = String,
         content_type = "multipart/form-data"),
        FileRefusals,
    ),
)]
pub(crate) async fn read_files(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<ReadMany>,
) -> Result<Response, ApiError> {
    if asked.paths.len() > MOST {
        return Err(ApiError::wrong("paths", format!("there are more than {MOST} of them")));
    }
    let guest = control.guest(&caller, &which).await?;
    // Before anything is sent: one that is missing is an error, and not half an answer.
    for name in &asked.paths {
        let entry = guest.stat(path("paths", name)?, None).await.map_err(failed)?;
        if is_folder(&entry) {
            return Err(ApiError::wrong("paths", format!("`{name}` is a directory")));
        }
    }
    let boundary = format!("soma-{}", boundary());
    let kind = format!("multipart/form-data; boundary={boundary}");
    let parts = Parts { guest, left: asked.paths.into_iter(), boundary, open: None, over: false };
    let body = stream::try_unfold(parts, |mut parts| async move {
        Ok::<_, GuestError>(parts.next().await?.map(|bytes| (bytes, parts)))
    });
    Ok(([(header::CONTENT_TYPE, kind)], HttpBody::from_stream(body)).into_response())
}

struct Parts {
    guest: GuestClient,
    left: std::vec::IntoIter<String>,
    boundary: String,
    open: Option<Download>,
    over: bool,
}

impl Parts {
    async fn next(&mut self) -> Result<Option<Bytes>, GuestError> {
        if let Some(download) = &mut self.open {
            if let Some(bytes) = download.next().await? {
                return Ok(Some(bytes));
            }
            self.open = None;
            return Ok(Some(Bytes::from_static(b"\r\n")));
        }
        let Some(name) = self.left.next() else {
            let is_over = std::mem::replace(&mut self.over, true);
            let end = format!("--{}--\r\n", self.boundary);
            return Ok((!is_over).then(|| Bytes::from(end)));
        };
        self.open = Some(self.guest.download(&name, None).await?);
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"").replace(['\r', '\n'], " ");
        Ok(Some(Bytes::from(format!(
            "--{}\r\nContent-Disposition: form-data; name=\"{quoted}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n",
            self.boundary
        ))))
    }
}

/// Something that no file can be made to contain ahead.
fn boundary() -> String {
    use std::collections::hash_map::RandomState;
    use std::hash::BuildHasher as _;
    let word = || RandomState::new().hash_one(0u8);
    format!("{:016x}{:016x}", word(), word())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_begin_where_they_do() {
        let text = b"one\ntwo\nthree\n";
        assert_eq!(place_of_last(text, 1), Some(8));
        assert_eq!(place_of_last(text, 2), Some(4));
        assert_eq!(place_of_last(text, 3), None);
        assert_eq!(place_of_last(b"one\ntwo", 1), Some(4));
        assert_eq!(place_of_last(b"one", 1), None);
    }
}
