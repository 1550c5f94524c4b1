//! Contents that are changed in place: found, replaced, and shown as a difference.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use control::Control;
use guest_proto::GuestClient;
use guest_proto::client::BoxError;
use serde::{Deserialize, Serialize};
use similar::TextDiff;
use utoipa::ToSchema;

use super::{failed, path};
use crate::ApiError;
use crate::error::FileRefusals;
use crate::extract::{Asking, Body, Which};

/// The largest file that is edited: it is held in memory, several times.
const LARGEST: usize = 4 << 20;

/// How long a difference may be looked for. After that it is larger than it need be.
const PATIENCE: Duration = Duration::from_millis(500);

/// How many files one request may name.
const MOST: usize = 1000;

/// What to change in a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct EditFile {
    /// Which file. It has to be text.
    pub path: String,
    /// What to change, one after the other.
    pub edits: Vec<Edit>,
}

/// One change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Edit {
    /// What to look for, literally.
    pub find: String,
    /// What to put in its place, wherever it is.
    pub replace: String,
}

/// What was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Edited {
    /// The difference, as `diff -u` shows it.
    pub diff: String,
    /// How many places were changed.
    pub replacements: u64,
}

/// Change a file. All changes are made, or none.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/edit-file", tag = "files", operation_id = "edit_file",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = EditFile,
    responses((status = 200, description = "what was changed", body = Edited), FileRefusals),
)]
pub(crate) async fn edit_file(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<EditFile>,
) -> Result<Json<Edited>, ApiError> {
    let name = path("path", &asked.path)?;
    if asked.edits.is_empty() {
        return Err(ApiError::wrong("edits", "there are none"));
    }
    let guest = control.guest(&caller, &which).await?;
    Ok(Json(edit(&guest, name, &asked.edits).await?))
}

/// One change in several files.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct EditFiles {
    /// Which files.
    pub files: Vec<String>,
    /// What to look for, literally.
    pub find: String,
    /// What to put in its place, wherever it is.
    pub replace: String,
}

/// What became of each file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EditedFiles {
    /// In the order in which they were named.
    pub items: Vec<EditedFile>,
}

/// What became of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EditedFile {
    /// Which.
    pub file: String,
    /// Whether it was changed.
    pub success: bool,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Make one change in several files, each by itself.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/edit-files", tag = "files",
    operation_id = "edit_files",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = EditFiles,
    responses((status = 200, description = "what became of each", body = EditedFiles), FileRefusals),
)]
pub(crate) async fn edit_files(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<EditFiles>,
) -> Result<Json<EditedFiles>, ApiError> {
    if asked.files.len() > MOST {
        return Err(ApiError::wrong("files", format!("there are more than {MOST} of them")));
    }
    let change = [Edit { find: asked.find, replace: asked.replace }];
    check(&change)?;
    let guest = control.guest(&caller, &which).await?;
    let mut items = Vec::new();
    for file in asked.files {
        let edited = match path("files", &file) {
            Ok(name) => edit(&guest, name, &change).await,
            Err(error) => Err(error),
        };
        let error = edited.err().map(|error| error.message().to_owned());
        items.push(EditedFile { file, success: error.is_none(), error });
    }
    Ok(Json(EditedFiles { items }))
}

async fn edit(guest: &GuestClient, name: &str, edits: &[Edit]) -> Result<Edited, ApiError> {
    check(edits)?;
    let entry = guest.stat(name, None).await.map_err(failed)?;
    let old = read(guest, name).await?;
    let (new, replacements) = replace(&old, edits)?;
    let difference = TextDiff::configure().timeout(PATIENCE).diff_lines(&old, &new);
    let diff = difference.unified_diff().header(&entry.path, &entry.path).to_string();
    let body = futures::stream::iter([Ok::<_, BoxError>(Bytes::from(new))]);
    guest.upload_with(name, None, Some(entry.mode & 0o7777), body).await.map_err(failed)?;
    Ok(Edited { diff, replacements })
}

fn check(edits: &[Edit]) -> Result<(), ApiError> {
    match edits.iter().position(|edit| edit.find.is_empty()) {
        Some(place) => {
            Err(ApiError::wrong(format!("edits[{place}].find"), "there is nothing to look for"))
        }
        None => Ok(()),
    }
}

async fn read(guest: &GuestClient, name: &str) -> Result<String, ApiError> {
    let mut download = guest.download(name, None).await.map_err(failed)?;
    let mut bytes = Vec::new();
    while let Some(piece) = download.next().await.map_err(failed)? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > LARGEST {
            let message = format!("`{name}` is larger than the {LARGEST} bytes that are edited");
            return Err(ApiError::invalid(message));
        }
    }
    String::from_utf8(bytes).map_err(|_| ApiError::invalid(format!("`{name}` is not UTF-8 text")))
}

/// The text with all changes made, and in how many places.
fn replace(old: &str, edits: &[Edit]) -> Result<(String, u64), ApiError> {
    let mut text = old.to_owned();
    let mut replacements = 0;
    for (place, edit) in edits.iter().enumerate() {
        let found = text.matches(&edit.find).count();
        if found == 0 {
            let error = "the file does not contain it, so nothing was changed";
            return Err(ApiError::wrong(format!("edits[{place}].find"), error));
        }
        let grown = edit.replace.len().saturating_sub(edit.find.len()).saturating_mul(found);
        if text.len().saturating_add(grown) > LARGEST {
            let message = format!("the file would become larger than {LARGEST} bytes");
            return Err(ApiError::invalid(message));
        }
        text = text.replace(&edit.find, &edit.replace);
        replacements += found as u64;
    }
    Ok((text, replacements))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(find: &str, replace: &str) -> Edit {
        Edit { find: find.to_owned(), replace: replace.to_owned() }
    }

    #[test]
    fn changes_are_made_one_after_the_other_and_counted() {
        let (text, count) = replace("a b a", &[edit("a", "c"), edit("c b", "d")]).unwrap();
        assert_eq!((text.as_str(), count), ("d c", 3));
    }

    #[test]
    fn what_is_not_there_changes_nothing() {
        let error = replace("a", &[edit("a", "b"), edit("z", "y")]).unwrap_err();
        assert!(error.message().starts_with("`edits[1].find`: "), "{error:?}");
        assert!(check(&[edit("", "x")]).is_err());
    }

    #[test]
    fn a_file_does_not_grow_without_end() {
        let error = replace(&"a".repeat(1000), &[edit("a", &"b".repeat(10_000))]).unwrap_err();
        assert!(error.message().contains("larger"), "{error:?}");
    }
}
