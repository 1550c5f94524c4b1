//! `POST /files`: new content of files.
//!
//! Two forms: a body that is one file, and a form (`multipart/form-data`) with one or many parts
//! named `file`. Where a file goes is told by `path`, or by the file name of a part. The files of
//! a form are written one after the other; when one fails, those before it stay. Either may be
//! compressed as a whole (`Content-Encoding: gzip`). `mode`, which is ours and not E2B's, is the
//! mode of all of them, in octal.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Serialize;

use super::HttpError;
use super::destination::Destination;
use super::gunzip::Gunzip;
use super::multipart::{Event, Malformed, Parser, Part};
use super::query::{parameter, raw_parameter};
use crate::files::metadata::{self, Metadata};
use crate::files::{self, attributes, blocking};
use crate::server::Body;
use crate::state::State;
use crate::users::User;

/// How much of a refused upload is still taken, and for how long.
const MOST_IGNORED: usize = 256 << 20;
const LONGEST_IGNORED: Duration = Duration::from_secs(5);

/// A file that was written, as the answer tells it.
#[derive(Debug, Serialize)]
pub(super) struct Written {
    path: String,
    name: String,
    r#type: &'static str,
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    metadata: serde_json::Map<String, serde_json::Value>,
}

impl Written {
    pub(super) fn new(path: &Path, metadata: &Metadata) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let pairs = metadata.iter().cloned();
        Self {
            path: path.to_string_lossy().into_owned(),
            name,
            r#type: "file",
            metadata: pairs.map(|(key, value)| (key, value.into())).collect(),
        }
    }
}

/// Takes the files of a request.
pub(super) async fn upload(
    head: &Parts,
    body: Incoming,
    state: &State,
) -> Result<Response<Body>, HttpError> {
    let has_begun = !head.headers.contains_key(EXPECT);
    let mut arriving = Arriving { body, gunzip: None, has_begun };
    let done = match Upload::new(head, state) {
        Ok(upload) => {
            arriving.gunzip = upload.is_compressed.then(Gunzip::new);
            upload.take(head, &mut arriving).await
        }
        Err(error) => Err(error),
    };
    if done.is_err() {
        arriving.ignore_rest().await;
    }
    super::json(StatusCode::OK, &done?)
}

/// Takes what a client still sends of a request that was refused, within limits: one that is cut
/// off in the middle of its sending sees a broken connection instead of the reason.
pub(super) async fn ignore(head: &Parts, body: Incoming) {
    let has_begun = !head.headers.contains_key(EXPECT);
    Arriving { body, gunzip: None, has_begun }.ignore_rest().await;
}

/// What applies to all files of a request.
struct Upload<'a> {
    state: &'a State,
    user: User,
    path: Option<OsString>,
    metadata: Metadata,
    /// The mode that the files have in the end, where one was asked for.
    mode: Option<u32>,
    is_compressed: bool,
}

impl<'a> Upload<'a> {
    fn new(head: &Parts, state: &'a State) -> Result<Self, HttpError> {
        let encoding = head.headers.get(CONTENT_ENCODING).map(http::HeaderValue::as_bytes);
        let is_compressed = match encoding.unwrap_or_default().to_ascii_lowercase().as_slice() {
            b"" | b"identity" => false,
            b"gzip" | b"x-gzip" => true,
            _ => {
                return Err(HttpError::new(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "an upload is compressed with gzip or not at all",
                ));
            }
        };
        Ok(Self {
            state,
            user: files::find_user(state, parameter(head.uri.query(), "username")?)?,
            path: raw_parameter(head.uri.query(), "path"),
            metadata: metadata::in_headers(&head.headers)?,
            mode: parameter(head.uri.query(), "mode")?.as_deref().map(mode).transpose()?,
            is_compressed,
        })
    }

    async fn take(self, head: &Parts, arriving: &mut Arriving) -> Result<Vec<Written>, HttpError> {
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default();
        match kind.split(';').next().unwrap_or_default().trim() {
            "application/octet-stream" => self.take_body(arriving).await,
            "multipart/form-data" => self.take_form(kind, arriving).await,
            _ => Err(HttpError::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!(
                    "an upload is multipart/form-data or application/octet-stream, not '{kind}'"
                ),
            )),
        }
    }

    /// The body is the file.
    async fn take_body(self, arriving: &mut Arriving) -> Result<Vec<Written>, HttpError> {
        let Some(path) = self.path.as_deref().filter(|path| !path.is_empty()) else {
            return Err(HttpError::bad_request("'path' says where the file goes, and is missing"));
        };
        let mut destination = self.open(path).await?;
        while let Some(data) = arriving.next().await? {
            destination.write(data).await?;
        }
        Ok(vec![Written::new(&destination.finish().await?, &self.metadata)])
    }

    /// The parts are the files.
    async fn take_form(
        self,
        kind: &str,
        arriving: &mut Arriving,
    ) -> Result<Vec<Written>, HttpError> {
        let mut parser = Parser::new(kind)?;
        let mut written: Vec<Written> = Vec::new();
        let mut destination = None;
        loop {
            match parser.next()? {
                Event::Part(part) if part.name.as_deref() == Some("file") => {
                    let path = self.path_of(&part)?;
                    let expanded = files::expand(self.state, path, &self.user)?;
                    let shown = expanded.to_string_lossy();
                    if written.iter().any(|earlier| earlier.path == shown) {
                        return Err(HttpError::bad_request(format!(
                            "two files of one upload have the same path '{shown}'; the first one \
                             was written"
                        )));
                    }
                    destination = Some(self.open(path).await?);
                }
                Event::Part(_) => destination = None,
                Event::Data(data) => {
                    if let Some(destination) = &mut destination {
                        destination.write(data).await?;
                    }
                }
                Event::PartEnd => {
                    if let Some(destination) = destination.take() {
                        written.push(Written::new(&destination.finish().await?, &self.metadata));
                    }
                }
                Event::NeedMore => match arriving.next().await? {
                    Some(data) => parser.push(&data),
                    None => return Err(Malformed("the form ends before its last boundary").into()),
                },
                Event::End if written.is_empty() => {
                    return Err(Malformed("the form has no part named 'file'").into());
                }
                Event::End => return Ok(written),
            }
        }
    }

    fn path_of<'b>(&'b self, part: &'b Part) -> Result<&'b OsStr, HttpError> {
        let path = self.path.as_deref().filter(|path| !path.is_empty());
        path.or(part.filename.as_deref().map(OsStr::new))
            .filter(|path| !path.is_empty())
            .ok_or_else(|| {
                HttpError::bad_request("neither 'path' nor a file name says where the file goes")
            })
    }

    async fn open(&self, path: &OsStr) -> Result<Destination, HttpError> {
        let mut expanded = files::expand(self.state, path, &self.user)?;
        // Making a relative path absolute drops a slash at its end, which says "a folder".
        if path.as_bytes().ends_with(b"/") {
            expanded.push("");
        }
        let (user, metadata, mode) = (self.user.clone(), self.metadata.clone(), self.mode);
        let open = move || Destination::open(&expanded, &user, &metadata, mode);
        Ok(blocking::short(open).await?)
    }
}

/// Reads a mode in octal, such as `644`.
fn mode(text: &str) -> Result<u32, HttpError> {
    let is_octal = text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    let mode = u32::from_str_radix(text, 8).ok().filter(|_| is_octal);
    let mode = mode.ok_or_else(|| {
        HttpError::bad_request(format!("'mode' is a number in octal such as 644, not '{text}'"))
    })?;
    Ok(attributes::checked_mode(mode)?)
}

impl From<Malformed> for HttpError {
    fn from(malformed: Malformed) -> Self {
        Self::bad_request(malformed.0)
    }
}

/// The body of a request on its way in.
struct Arriving {
    body: Incoming,
    /// Undoes the compression, if there is one.
    gunzip: Option<Gunzip>,
    /// Whether the client sends already: one that waits for `100 Continue` does not.
    has_begun: bool,
}

impl Arriving {
    /// The next piece of the content, never empty.
    async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let is_hungry = self.gunzip.as_ref().is_none_or(Gunzip::is_hungry);
            let arrived = if is_hungry { self.arrived().await? } else { None };
            let is_over = is_hungry && arrived.is_none();
            let Some(gunzip) = &mut self.gunzip else { return Ok(arrived) };
            if let Some(data) = arrived {
                gunzip.feed(data);
            }
            let data = if is_over { gunzip.finish().await? } else { gunzip.step().await? };
            if is_over {
                self.gunzip = None;
            }
            if !data.is_empty() {
                return Ok(Some(data));
            }
            if is_over {
                return Ok(None);
            }
        }
    }

    /// The next piece as it came.
    async fn arrived(&mut self) -> Result<Option<Bytes>, HttpError> {
        self.has_begun = true;
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| {
                HttpError::bad_request(format!("the upload broke off: {error}"))
            })?;
            if let Ok(data) = frame.into_data()
                && !data.is_empty()
            {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }

    /// Takes the rest of a refused upload, within limits.
    async fn ignore_rest(&mut self) {
        if !self.has_begun {
            return;
        }
        let ignore = async {
            let mut ignored = 0;
            while let Ok(Some(data)) = self.arrived().await {
                ignored += data.len();
                if ignored > MOST_IGNORED {
                    break;
                }
            }
        };
        // Either way there is nothing more to do for this client.
        let _ = tokio::time::timeout(LONGEST_IGNORED, ignore).await;
    }
}
