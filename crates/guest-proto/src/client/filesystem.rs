//! Calls on files, their bodies apart (`transfer.rs`).
//!
//! Paths are the sandbox's: absolute, or relative to the home of the user who asks. They are bytes,
//! as in the kernel; those that are no UTF-8 need a guest with [`RAW_PATHS`].

use super::{GuestClient, GuestError, LISTED_LIMIT, LISTING_LIMIT, as_user, short};
use crate::filesystem::{
    EntryInfo, ListDirRequest, MakeDirRequest, MoveRequest, RemoveRequest, StatRequest,
};
use crate::version::RAW_PATHS;

impl GuestClient {
    /// What a path names.
    pub async fn stat(
        &self,
        path: &(impl AsRef<[u8]> + Sync + ?Sized),
        user: Option<&str>,
    ) -> Result<EntryInfo, GuestError> {
        let (path, path_bytes) = self.spelled(path.as_ref()).await?;
        let request = StatRequest { path, path_bytes, ..Default::default() };
        let answer = self.files.stat_with_options(request, as_user(short(), user)?).await?;
        entry(answer.into_owned().entry.into_option())
    }

    /// Makes a folder and those above it.
    pub async fn make_dir(
        &self,
        path: &(impl AsRef<[u8]> + Sync + ?Sized),
        user: Option<&str>,
    ) -> Result<EntryInfo, GuestError> {
        let (path, path_bytes) = self.spelled(path.as_ref()).await?;
        let request = MakeDirRequest { path, path_bytes, ..Default::default() };
        let answer = self.files.make_dir_with_options(request, as_user(short(), user)?).await?;
        entry(answer.into_owned().entry.into_option())
    }

    /// What is in a folder, `depth` levels down, in the order of the paths.
    pub async fn list_dir(
        &self,
        path: &(impl AsRef<[u8]> + Sync + ?Sized),
        depth: u32,
        user: Option<&str>,
    ) -> Result<Vec<EntryInfo>, GuestError> {
        let (path, path_bytes) = self.spelled(path.as_ref()).await?;
        let request = ListDirRequest { path, depth, path_bytes, ..Default::default() };
        let options = as_user(short(), user)?
            .with_max_message_size(LISTING_LIMIT)
            .with_element_memory_limit(LISTED_LIMIT);
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

    /// A path as it travels: as text where it is some, else as bytes beside a text that shows it.
    pub(super) async fn spelled(
        &self,
        path: &[u8],
    ) -> Result<(String, Option<Vec<u8>>), GuestError> {
        if let Ok(text) = std::str::from_utf8(path) {
            return Ok((text.to_owned(), None));
        }
        self.require(RAW_PATHS).await?;
        Ok((String::from_utf8_lossy(path).into_owned(), Some(path.to_vec())))
    }
}

fn entry(entry: Option<EntryInfo>) -> Result<EntryInfo, GuestError> {
    entry.ok_or_else(|| GuestError::Refused {
        code: "internal",
        message: "the guest's answer names no file".to_owned(),
    })
}
