//! Calls on files, their bodies apart (`transfer.rs`).
//!
//! Paths are the sandbox's: absolute, or relative to the home of the user who asks.

use super::{GuestClient, GuestError, LISTING_LIMIT, as_user, short};
use crate::filesystem::{
    EntryInfo, ListDirRequest, MakeDirRequest, MoveRequest, RemoveRequest, StatRequest,
};

impl GuestClient {
    /// What a path names.
    pub async fn stat(&self, path: &str, user: Option<&str>) -> Result<EntryInfo, GuestError> {
        let request = StatRequest { path: path.to_owned(), ..Default::default() };
        let answer = self.files.stat_with_options(request, as_user(short(), user)?).await?;
        entry(answer.into_owned().entry.into_option())
    }

    /// Makes a folder and those above it.
    pub async fn make_dir(&self, path: &str, user: Option<&str>) -> Result<EntryInfo, GuestError> {
        let request = MakeDirRequest { path: path.to_owned(), ..Default::default() };
        let answer = self.files.make_dir_with_options(request, as_user(short(), user)?).await?;
        entry(answer.into_owned().entry.into_option())
    }

    /// What is in a folder, `depth` levels down, in the order of the paths.
    pub async fn list_dir(
        &self,
        path: &str,
        depth: u32,
        user: Option<&str>,
    ) -> Result<Vec<EntryInfo>, GuestError> {
        let request = ListDirRequest { path: path.to_owned(), depth, ..Default::default() };
        let options = as_user(short(), user)?.with_max_message_size(LISTING_LIMIT);
        let answer = self.files.list_dir_with_options(request, options).await?;
        Ok(answer.into_owned().entries)
    }

    /// Gives a file or folder another name, and replaces what was there.
    pub async fn move_(
        &self,
        source: &str,
        destination: &str,
        user: Option<&str>,
    ) -> Result<EntryInfo, GuestError> {
        let request = MoveRequest {
            source: source.to_owned(),
            destination: destination.to_owned(),
            ..Default::default()
        };
        let answer = self.files.r#move_with_options(request, as_user(short(), user)?).await?;
        entry(answer.into_owned().entry.into_option())
    }

    /// Removes a file, or a folder with all in it. Nothing to remove is a success.
    pub async fn remove(&self, path: &str, user: Option<&str>) -> Result<(), GuestError> {
        let request = RemoveRequest { path: path.to_owned(), ..Default::default() };
        self.files.remove_with_options(request, as_user(short(), user)?).await?;
        Ok(())
    }
}

fn entry(entry: Option<EntryInfo>) -> Result<EntryInfo, GuestError> {
    entry.ok_or_else(|| GuestError::Refused {
        code: "internal",
        message: "the guest's answer names no file".to_owned(),
    })
}
