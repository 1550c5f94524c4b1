//! What can be found.

use axum::Json;
use axum::extract::State;
use control::Control;
use guest_proto::client::{GlobOptions, GrepOptions};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{failed, path};
use crate::ApiError;
use crate::error::FileRefusals;
use crate::extract::{Asking, Body, Which};

/// A pattern for paths.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Glob {
    /// Below which folder.
    pub path: String,
    /// Which paths, such as `**/*.py`.
    pub pattern: String,
    /// Patterns for what to leave out.
    #[serde(default)]
    pub exclude: Option<Vec<String>>,
}

/// Paths that match.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Globbed {
    /// Whole paths, in order.
    pub items: Vec<String>,
    /// Whether there may be more.
    pub truncated: bool,
}

/// Find paths by a pattern.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/glob", tag = "files", operation_id = "glob_files",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Glob,
    responses((status = 200, description = "those that match", body = Globbed), FileRefusals),
)]
pub(crate) async fn glob(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Glob>,
) -> Result<Json<Globbed>, ApiError> {
    let folder = path("path", &asked.path)?;
    let options = GlobOptions {
        pattern: asked.pattern,
        exclude: asked.exclude.unwrap_or_default(),
        ..GlobOptions::default()
    };
    let guest = control.guest(&caller, &which).await?;
    let found = guest.glob(folder, None, options).await.map_err(failed)?;
    Ok(Json(Globbed { items: found.paths, truncated: found.truncated }))
}

/// A regular expression for lines.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Grep {
    /// Below which folder, or in which file.
    pub path: String,
    /// Which lines.
    pub pattern: String,
    /// Only in files whose name matches, such as `*.py`.
    #[serde(default)]
    pub include: Option<String>,
    /// Patterns for what to leave out.
    #[serde(default)]
    pub exclude: Option<Vec<String>>,
}

/// Lines that match.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Grepped {
    /// In the order of paths and lines.
    pub items: Vec<Line>,
    /// Whether there may be more.
    pub truncated: bool,
}

/// A line that matches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Line {
    /// In which file.
    pub path: String,
    /// Which line, from 1.
    pub line: u32,
    /// What it says, at most 4 KiB of it.
    pub content: String,
}

/// Find lines by a regular expression.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/grep", tag = "files", operation_id = "grep_files",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Grep,
    responses((status = 200, description = "those that match", body = Grepped), FileRefusals),
)]
pub(crate) async fn grep(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Grep>,
) -> Result<Json<Grepped>, ApiError> {
    let folder = path("path", &asked.path)?;
    let options = GrepOptions {
        pattern: asked.pattern,
        include: asked.include,
        exclude: asked.exclude.unwrap_or_default(),
        ..GrepOptions::default()
    };
    let guest = control.guest(&caller, &which).await?;
    let found = guest.grep(folder, None, options).await.map_err(failed)?;
    let items = found.matches.into_iter().map(|line| Line {
        path: line.path,
        line: line.line,
        content: line.content,
    });
    Ok(Json(Grepped { items: items.collect(), truncated: found.truncated }))
}
