//! Files in a sandbox: each call is one of the guest's, done inside and as the sandbox's user.
//!
//! Nothing here resolves a path: what it names is found by the guest, beneath the sandbox's root.

pub mod change;
pub mod edit;
pub mod look;
pub mod read;
pub mod search;
pub mod write;

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use control::{Control, ControlError};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use guest_proto::filesystem::{EntryInfo, FileType};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ApiError;

pub(crate) fn described() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(look::ls))
        .routes(routes!(look::stat))
        .routes(routes!(look::exists))
        .routes(routes!(look::tree))
        .routes(routes!(change::mkdir))
        .routes(routes!(change::delete))
        .routes(routes!(change::set_permissions))
        .routes(routes!(change::rename))
        .routes(routes!(change::copy))
        .routes(routes!(write::write_file))
        .routes(routes!(write::write_files))
        .routes(routes!(read::read_file))
        .routes(routes!(read::read_files))
        .routes(routes!(search::glob))
        .routes(routes!(search::grep))
        .routes(routes!(edit::edit_file))
        .routes(routes!(edit::edit_files))
}

/// One file or folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    /// Its name.
    pub name: String,
    /// Its whole path. Bytes that are not UTF-8 are shown as U+FFFD.
    pub path: String,
    /// The same path exactly, in base64, where it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_bytes: Option<String>,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// How long it is.
    pub size: i64,
    /// Its permissions in octal, such as `755`.
    pub mode: String,
    /// When it was changed, in seconds since 1970.
    pub mtime: i64,
    /// Whose it is.
    pub owner: String,
    /// Which group's it is.
    pub group: String,
    /// Whether it is a symbolic link.
    pub is_symlink: bool,
    /// Where that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_target: Option<String>,
}

impl From<EntryInfo> for FileInfo {
    fn from(entry: EntryInfo) -> Self {
        let is_dir = is_folder(&entry);
        let is_symlink = entry.permissions.starts_with('L') || entry.symlink_target.is_some();
        Self {
            name: entry.name,
            path: entry.path,
            path_bytes: entry.path_bytes.map(|path| STANDARD.encode(path)),
            is_dir,
            size: entry.size,
            mode: format!("{:o}", entry.mode & 0o7777),
            mtime: entry.modified_time.into_option().map_or(0, |time| time.seconds),
            owner: entry.owner,
            group: entry.group,
            is_symlink,
            link_target: entry.symlink_target,
        }
    }
}

fn is_folder(entry: &EntryInfo) -> bool {
    entry.r#type == FileType::FILE_TYPE_DIRECTORY
}

/// How deep a whole tree is listed.
const DEEPEST: u32 = 256;

/// Patterns for what is left out.
struct Excluded(GlobSet);

impl Excluded {
    /// Reads patterns: one without a slash is for names anywhere, another for whole paths below
    /// the folder.
    fn read(patterns: Option<&Vec<String>>) -> Result<Self, ApiError> {
        let mut set = GlobSetBuilder::new();
        let patterns = patterns.map(Vec::as_slice).unwrap_or_default();
        if patterns.len() > 100 {
            return Err(ApiError::wrong("exclude", "it has more than 100 patterns"));
        }
        for pattern in patterns {
            let whole = pattern.trim_matches('/');
            let whole = if whole.contains('/') { whole.to_owned() } else { format!("**/{whole}") };
            let glob = GlobBuilder::new(&whole).literal_separator(true).build();
            set.add(glob.map_err(|error| ApiError::wrong("exclude", error.kind().to_string()))?);
        }
        let set = set.build().map_err(|error| ApiError::wrong("exclude", error.to_string()))?;
        Ok(Self(set))
    }

    /// Leaves out what matches, and everything below it.
    fn filter(&self, folder: &str, entries: Vec<EntryInfo>) -> Vec<EntryInfo> {
        if self.0.is_empty() {
            return entries;
        }
        let mut left_out: BTreeSet<String> = BTreeSet::new();
        let folder = folder.trim_end_matches('/');
        let keep = |entry: &EntryInfo| {
            let below = entry.path.strip_prefix(folder).unwrap_or(&entry.path);
            let below = below.trim_start_matches('/');
            let parent = entry.path.rsplit_once('/').map_or("", |(parent, _)| parent);
            let excluded = left_out.contains(parent) || self.0.is_match(below);
            if excluded {
                left_out.insert(entry.path.clone());
            }
            !excluded
        };
        let mut keep = keep;
        entries.into_iter().filter(|entry| keep(entry)).collect()
    }
}

/// Reads permissions as they are written in octal.
fn mode(field: &str, text: Option<&str>) -> Result<Option<u32>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777);
    let wrong = || ApiError::wrong(field, "it has to be octal, such as 644");
    mode.filter(|_| digits.len() <= 5).map(Some).ok_or_else(wrong)
}

/// Refuses a path that cannot be one.
fn path<'a>(field: &str, text: &'a str) -> Result<&'a str, ApiError> {
    if text.is_empty() {
        return Err(ApiError::wrong(field, "it is empty"));
    }
    if text.contains('\0') {
        return Err(ApiError::wrong(field, "it has a NUL in it, which no path can have"));
    }
    Ok(text)
}

/// An error of the guest, as an answer.
fn failed(error: guest_proto::GuestError) -> ApiError {
    ControlError::from(error).into()
}
