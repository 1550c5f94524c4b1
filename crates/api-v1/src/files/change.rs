//! What is changed without its contents.

use axum::extract::State;
use control::Control;
use guest_proto::client::{Attributes, CopyOptions, MakeDirectory};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{failed, mode, path};
use crate::ApiError;
use crate::error::FileRefusals;
use crate::extract::{Asking, Body, Which};

/// A folder to make.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct MakeFolder {
    /// Where.
    pub path: String,
    /// Whether also those above it; one that is there is then a success.
    #[serde(default)]
    pub recursive: bool,
    /// Its permissions in octal; 755 unless said.
    #[serde(default)]
    pub permissions: Option<String>,
}

/// Make a folder.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/mkdir", tag = "files", operation_id = "make_folder",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = MakeFolder,
    responses((status = 204, description = "it is there"), FileRefusals),
)]
pub(crate) async fn mkdir(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<MakeFolder>,
) -> Result<StatusCode, ApiError> {
    let name = path("path", &asked.path)?;
    let mode = mode("permissions", asked.permissions.as_deref())?;
    let options = MakeDirectory { parents: asked.recursive, mode };
    let guest = control.guest(&caller, &which).await?;
    guest.make_directory(name, None, options).await.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT)
}

/// A file or folder to remove.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Delete {
    /// Which.
    pub path: String,
    /// Whether a folder goes with all that is in it.
    #[serde(default)]
    pub recursive: bool,
}

/// Remove a file or folder.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/delete", tag = "files", operation_id = "delete_file",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Delete,
    responses((status = 204, description = "it is gone"), FileRefusals),
)]
pub(crate) async fn delete(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Delete>,
) -> Result<StatusCode, ApiError> {
    let name = path("path", &asked.path)?;
    let guest = control.guest(&caller, &which).await?;
    guest.remove_entry(name, None, asked.recursive).await.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT)
}

/// What to change of a file's permissions.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Permissions {
    /// Which file or folder.
    pub path: String,
    /// In octal, such as `755`.
    #[serde(default)]
    pub mode: Option<String>,
    /// A user of the sandbox.
    #[serde(default)]
    pub owner: Option<String>,
    /// A group of the sandbox.
    #[serde(default)]
    pub group: Option<String>,
}

/// Change the permissions, the owner or the group of a file. Owners are changed by the sandbox's
/// root.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/set-permissions", tag = "files",
    operation_id = "set_permissions",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Permissions,
    responses((status = 204, description = "they are changed"), FileRefusals),
)]
pub(crate) async fn set_permissions(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Permissions>,
) -> Result<StatusCode, ApiError> {
    let name = path("path", &asked.path)?;
    let mode = mode("mode", asked.mode.as_deref())?;
    if mode.is_none() && asked.owner.is_none() && asked.group.is_none() {
        return Err(ApiError::invalid("there is nothing to change: say mode, owner or group"));
    }
    let user = (asked.owner.is_some() || asked.group.is_some()).then_some("root");
    let attributes = Attributes { mode, owner: asked.owner, group: asked.group };
    let guest = control.guest(&caller, &which).await?;
    guest.set_attributes(name, user, attributes).await.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT)
}

/// A file or folder and where it shall be.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Relocate {
    /// Where it is.
    pub src_path: String,
    /// Where it shall be. Folders above are made.
    pub dst_path: String,
    /// Whether to replace what is there.
    #[serde(default)]
    pub overwrite: Option<bool>,
    /// For copies: whether a folder comes with all that is in it.
    #[serde(default)]
    pub recursive: Option<bool>,
}

/// Move a file or folder.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/move", tag = "files", operation_id = "move_file",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Relocate,
    responses((status = 204, description = "it is there"), FileRefusals),
)]
pub(crate) async fn rename(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Relocate>,
) -> Result<StatusCode, ApiError> {
    let (source, destination) =
        (path("src_path", &asked.src_path)?, path("dst_path", &asked.dst_path)?);
    let overwrite = asked.overwrite.unwrap_or(false);
    let guest = control.guest(&caller, &which).await?;
    guest.move_entry(source, destination, None, overwrite).await.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Copy a file or folder.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/copy", tag = "files", operation_id = "copy_file",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Relocate,
    responses((status = 204, description = "the copy is there"), FileRefusals),
)]
pub(crate) async fn copy(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Relocate>,
) -> Result<StatusCode, ApiError> {
    let (source, destination) =
        (path("src_path", &asked.src_path)?, path("dst_path", &asked.dst_path)?);
    let options = CopyOptions {
        recursive: asked.recursive.unwrap_or(false),
        overwrite: asked.overwrite.unwrap_or(false),
    };
    let guest = control.guest(&caller, &which).await?;
    guest.copy_entry(source, destination, None, options).await.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT)
}
