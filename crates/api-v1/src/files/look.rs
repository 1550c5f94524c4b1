//! What is there.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use control::Control;
use guest_proto::GuestError;
use guest_proto::filesystem::EntryInfo;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{DEEPEST, Excluded, FileInfo, failed, is_folder, path};
use crate::ApiError;
use crate::error::FileRefusals;
use crate::extract::{Asking, Body, Which};

/// A folder to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct List {
    /// Which.
    pub path: String,
    /// Whether also what is below its folders.
    #[serde(default)]
    pub recursive: bool,
    /// Patterns for what to leave out.
    #[serde(default)]
    pub exclude: Option<Vec<String>>,
}

/// What is in a folder.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Files {
    /// In the order of their paths.
    pub items: Vec<FileInfo>,
}

/// List a folder.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/ls", tag = "files", operation_id = "list_files",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = List,
    responses((status = 200, description = "what is in it", body = Files), FileRefusals),
)]
pub(crate) async fn ls(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<List>,
) -> Result<Json<Files>, ApiError> {
    let folder = path("path", &asked.path)?;
    let excluded = Excluded::read(asked.exclude.as_ref())?;
    let depth = if asked.recursive { DEEPEST } else { 1 };
    let guest = control.guest(&caller, &which).await?;
    let entries = guest.list_dir(folder, depth, None).await.map_err(failed)?;
    let entries = excluded.filter(folder, entries);
    Ok(Json(Files { items: entries.into_iter().map(FileInfo::from).collect() }))
}

/// A file or folder.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct Named {
    /// Which: absolute, or relative to the home of the sandbox's user.
    pub path: String,
}

/// See one file or folder.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/stat", tag = "files", operation_id = "stat_file",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Named,
    responses((status = 200, description = "what it is", body = FileInfo), FileRefusals),
)]
pub(crate) async fn stat(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Named>,
) -> Result<Json<FileInfo>, ApiError> {
    let name = path("path", &asked.path)?;
    let entry = control.guest(&caller, &which).await?.stat(name, None).await.map_err(failed)?;
    Ok(Json(entry.into()))
}

/// Whether something is there.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct Exists {
    /// Whether it is.
    pub exists: bool,
}

/// Say whether a path names something.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/exists", tag = "files", operation_id = "file_exists",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = Named,
    responses((status = 200, description = "whether it does", body = Exists), FileRefusals),
)]
pub(crate) async fn exists(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<Named>,
) -> Result<Json<Exists>, ApiError> {
    let name = path("path", &asked.path)?;
    let guest = control.guest(&caller, &which).await?;
    match guest.stat(name, None).await {
        Ok(_) => Ok(Json(Exists { exists: true })),
        Err(GuestError::NotFound { .. } | GuestError::NotADirectory { .. }) => {
            Ok(Json(Exists { exists: false }))
        }
        Err(error) => Err(failed(error)),
    }
}

/// A folder to show as a tree.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct TreeAsked {
    /// Which.
    pub path: String,
    /// How many levels; all unless said.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 256)]
    pub max_depth: Option<u32>,
    /// Patterns for what to leave out.
    #[serde(default)]
    pub exclude: Option<Vec<String>>,
}

/// A tree of files.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Tree {
    /// What is in the folder.
    pub items: Vec<Node>,
}

/// One file or folder of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it is: `file` or `directory`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is in it; left out for files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub children: Option<Vec<Node>>,
}

/// Show a folder as a tree.
#[utoipa::path(
    post, path = "/v1/sandbox/{id}/filesystem/tree", tag = "files", operation_id = "file_tree",
    params(("id" = String, Path, description = "a sandbox's id, name, or a beginning of either")),
    request_body = TreeAsked,
    responses((status = 200, description = "the tree", body = Tree), FileRefusals),
)]
pub(crate) async fn tree(
    State(control): State<Control>,
    Asking(caller): Asking,
    Which(which): Which,
    Body(asked): Body<TreeAsked>,
) -> Result<Json<Tree>, ApiError> {
    let folder = path("path", &asked.path)?;
    let excluded = Excluded::read(asked.exclude.as_ref())?;
    let depth = asked.max_depth.unwrap_or(DEEPEST);
    if !(1..=DEEPEST).contains(&depth) {
        let error = format!("it has to be between 1 and {DEEPEST}");
        return Err(ApiError::wrong("max_depth", error));
    }
    let guest = control.guest(&caller, &which).await?;
    let entries = guest.list_dir(folder, depth, None).await.map_err(failed)?;
    Ok(Json(Tree { items: nodes(excluded.filter(folder, entries)) }))
}

/// Puts entries into the folders that they are in. A folder comes before what is in it.
fn nodes(entries: Vec<EntryInfo>) -> Vec<Node> {
    let mut children: BTreeMap<String, Vec<(String, Node)>> = BTreeMap::new();
    let known: std::collections::BTreeSet<String> =
        entries.iter().map(|entry| entry.path.clone()).collect();
    let mut top = String::new();
    for entry in entries {
        let parent = entry.path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned();
        if !known.contains(&parent) {
            top.clone_from(&parent);
        }
        let folder = is_folder(&entry) && entry.symlink_target.is_none();
        let node = Node {
            name: entry.name,
            kind: if folder { "directory" } else { "file" }.to_owned(),
            children: folder.then(Vec::new),
        };
        children.entry(parent).or_default().push((entry.path, node));
    }
    // Deepest first, so that every folder is complete when it is put into its own.
    let mut folders: Vec<String> = children.keys().cloned().collect();
    folders.sort_by_key(|folder| std::cmp::Reverse(folder.matches('/').count()));
    for folder in folders.iter().filter(|folder| **folder != top) {
        let Some(inside) = children.remove(folder) else { continue };
        let parent = folder.rsplit_once('/').map_or("", |(parent, _)| parent);
        let own = children.get_mut(parent).into_iter().flatten();
        for (_, node) in own.filter(|(path, _)| path == folder) {
            node.children = Some(inside.iter().map(|(_, node)| node.clone()).collect());
        }
    }
    children.remove(&top).into_iter().flatten().map(|(_, node)| node).collect()
}

#[cfg(test)]
mod tests {
    use guest_proto::filesystem::FileType;

    use super::*;

    fn entry(path: &str, folder: bool) -> EntryInfo {
        let kind = if folder { FileType::FILE_TYPE_DIRECTORY } else { FileType::FILE_TYPE_FILE };
        EntryInfo {
            name: path.rsplit('/').next().unwrap().to_owned(),
            path: path.to_owned(),
            r#type: kind.into(),
            ..EntryInfo::default()
        }
    }

    #[test]
    fn a_tree_has_its_files_in_their_folders() {
        let entries = vec![
            entry("/w/a", true),
            entry("/w/a/b", true),
            entry("/w/a/b/c.txt", false),
            entry("/w/empty", true),
            entry("/w/z.txt", false),
        ];
        let shown = serde_json::to_string(&nodes(entries)).unwrap();
        assert_eq!(
            shown,
            r#"[{"name":"a","type":"directory","children":[{"name":"b","type":"directory","children":[{"name":"c.txt","type":"file"}]}]},{"name":"empty","type":"directory","children":[]},{"name":"z.txt","type":"file"}]"#
        );
        assert!(nodes(Vec::new()).is_empty());
    }

    #[test]
    fn what_is_left_out_is_left_out_with_all_below_it() {
        let entries = || {
            vec![
                entry("/w/.git", true),
                entry("/w/.git/x", false),
                entry("/w/a.pyc", false),
                entry("/w/a.py", false),
                entry("/w/s/b.pyc", false),
            ]
        };
        let left = |patterns: &[&str]| -> Vec<String> {
            let patterns = patterns.iter().map(ToString::to_string).collect();
            let excluded = Excluded::read(Some(&patterns)).unwrap();
            excluded.filter("/w", entries()).into_iter().map(|entry| entry.path).collect()
        };
        assert_eq!(left(&[".git", "*.pyc"]), ["/w/a.py"]);
        assert_eq!(left(&["s/*"]), ["/w/.git", "/w/.git/x", "/w/a.pyc", "/w/a.py"]);
        assert!(Excluded::read(Some(&vec!["[".to_owned()])).is_err());
    }
}
