//! Contents that are written.

use axum::extract::{Request, State};
use bytes::Bytes;
use control::Control;
use futures::{Stream, TryStreamExt as _};
use guest_proto::client::BoxError;
use http::{StatusCode, header};
use multer::Multipart;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use sync_wrapper::SyncStream;
use utoipa::IntoParams;

use super::{failed, mode, path};
use crate::ApiError;
use crate::error::FileRefusals;
use crate::extract::{Asked, Asking, Which};

/// How many files one request may bring.
const MOST: usize = 1000;

/// Where to write.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Write {
    /// Which file. Folders above it are made.
    pub path: String,
    /// Its permissions in octal; 644 for a new file unless said.
    pub permissions: Option<String>,
}

/// Write a file. The body is what it shall hold, of any length.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/write-file", tag = "files",
    operation_id = "write_file",
    params(
        ("id" = String, Path, description = "a sandbox's id, name, or a beginning of either"),
        Write,
    ),
    request_body(content = String, content_type = "application/octet-stream"),
    responses((status = 204, description = "it is written"), FileRefusals),
)]
pub(crate) async fn write_file(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Asked(asked): Asked<Write>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let name = path("path", &asked.path)?;
    let mode = mode("permissions", asked.permissions.as_deref())?;
    let guest = control.guest(&caller, &which).await?;
    let body = pieces(request.into_body().into_data_stream());
    guest.upload_with(name, None, mode, body).await.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Write several files. Each part is a file, and the part's name its path.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/write-files", tag = "files",
    operation_id = "write_files",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body(content = String, content_type = "multipart/form-data"),
    responses((status = 204, description = "they are written"), FileRefusals),
)]
pub(crate) async fn write_files(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(kind).map_err(|_| {
        ApiError::invalid("the body has to be multipart/form-data, a part for each file")
    })?;
    let guest = control.guest(&caller, &which).await?;
    let mut parts = Multipart::new(request.into_body().into_data_stream(), boundary);
    let mut written = 0;
    while let Some(part) = parts.next_field().await.map_err(|error| broken(&error))? {
        if written == MOST {
            let message = format!("there are more than {MOST} files: the first are written");
            return Err(ApiError::invalid(message));
        }
        let name = part.name().map(unquoted).unwrap_or_default();
        let name = path("name", &name)?.to_owned();
        // One after the other: a part is read from the request as it is written.
        guest.upload_with(&name, None, None, pieces(part)).await.map_err(failed)?;
        written += 1;
    }
    Ok(StatusCode::NO_CONTENT)
}

fn pieces<E>(
    stream: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> impl Stream<Item = Result<Bytes, BoxError>> + Send + Sync + 'static
where
    E: Into<BoxError> + 'static,
{
    SyncStream::new(stream.map_err(Into::into))
}

/// Clients write quotes and control characters in a part's name as `%22` and the like.
fn unquoted(name: &str) -> String {
    let mut text = name.replace("\\\\", "\\");
    for (quoted, plain) in [("%22", "\""), ("%0D", "\r"), ("%0A", "\n")] {
        text = text.replace(quoted, plain);
    }
    // Other control characters are encoded alike; everything else is as it was meant.
    if text.contains('%') {
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded.chars().any(char::is_control) {
            return decoded;
        }
    }
    text
}

fn broken(error: &multer::Error) -> ApiError {
    ApiError::invalid(format!("the body is not the multipart that it says it is: {error}"))
}
