//! Calls on files beyond E2B's (`filesystem.rs`): with a user's own permissions, and searching.
//!
//! Paths are the sandbox's: absolute, or relative to the home of the user who asks. A guest
//! older than [`FILES`] is refused before anything is sent.

use std::time::Duration;

use connectrpc::client::CallOptions;

use super::{GuestClient, GuestError, as_user, short};
use crate::soma::guest::v1::{
    CopyRequest, GlobRequest, GrepRequest, MakeDirRequest, MakeLinkRequest, MoveRequest,
    RemoveRequest, SetAttributesRequest,
};
use crate::version::{FILES, RAW_PATHS};

/// How long a call may take that works on a whole tree. The guest finishes what it began.
const TREE_TIMEOUT: Duration = Duration::from_mins(10);

/// How long a search may take: the guest ends it after twenty seconds, once it has begun.
const SEARCH_TIMEOUT: Duration = Duration::from_mins(1);

/// How to make a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MakeDirectory {
    /// Whether what is missing above it is made, and one that is there already is a success.
    pub parents: bool,
    /// Exactly this mode; 0755 without.
    pub mode: Option<u32>,
}

/// How to copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CopyOptions {
    /// Whether a directory is copied, with all that is in it.
    pub recursive: bool,
    /// Whether a file replaces a file, and a directory an empty directory.
    pub overwrite: bool,
}

/// What is changed of a file. At least one of them is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The mode, exactly.
    pub mode: Option<u32>,
    /// A user's name or number.
    pub owner: Option<String>,
    /// A group's name or number.
    pub group: Option<String>,
}

/// Which names are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GlobOptions {
    /// From the directory on: `*`, `?`, `[a-z]`, `{one,other}` and `**`.
    pub pattern: String,
    /// What is left out, with all below it. Without `/` it is about names at any depth.
    pub exclude: Vec<String>,
    /// 10,000 without; at most 100,000.
    pub limit: Option<u32>,
}

/// Names that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Absolute paths, sorted. They are the sandbox's words: a name may hold any character.
    pub paths: Vec<String>,
    /// Whether there may be more.
    pub truncated: bool,
}

/// Which lines are looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrepOptions {
    /// A regular expression.
    pub pattern: String,
    /// Only files like this. Without `/` it is about the file's name.
    pub include: Option<String>,
    /// As in [`GlobOptions`].
    pub exclude: Vec<String>,
    /// 1,000 without; at most 10,000.
    pub limit: Option<u32>,
}

/// Lines that were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// In the order of their paths, and of the lines in each.
    pub matches: Vec<Line>,
    /// Whether there may be more.
    pub truncated: bool,
}

/// A line that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The file, absolute.
    pub path: String,
    /// The first one is 1.
    pub line: u32,
    /// The line, at most 4 KiB of it. It is the sandbox's words.
    pub content: String,
}

impl GuestClient {
    /// Makes a directory.
    pub async fn make_directory(
        &self,
        path: &str,
        user: Option<&str>,
        options: MakeDirectory,
    ) -> Result<(), GuestError> {
        self.require(FILES).await?;
        let MakeDirectory { parents, mode } = options;
        let request = MakeDirRequest { path: path.to_owned(), parents, mode, ..Default::default() };
        self.own.make_dir_with_options(request, as_user(short(), user)?).await?;
        Ok(())
    }

    /// Removes a file, a link or a directory; one that holds something only if `recursive`.
    pub async fn remove_entry(
        &self,
        path: &str,
        user: Option<&str>,
        recursive: bool,
    ) -> Result<(), GuestError> {
        self.require(FILES).await?;
        let request = RemoveRequest { path: path.to_owned(), recursive, ..Default::default() };
        self.own.remove_with_options(request, as_user(within(TREE_TIMEOUT), user)?).await?;
        Ok(())
    }

    /// Gives a file, a link or a directory another name, and makes the directories above it.
    ///
    /// With `overwrite` a file replaces a file, and a directory an empty directory.
    pub async fn move_entry(
        &self,
        source: &str,
        destination: &str,
        user: Option<&str>,
        overwrite: bool,
    ) -> Result<(), GuestError> {
        self.require(FILES).await?;
        let request = MoveRequest {
            source: source.to_owned(),
            destination: destination.to_owned(),
            overwrite,
            ..Default::default()
        };
        self.own.r#move_with_options(request, as_user(within(TREE_TIMEOUT), user)?).await?;
        Ok(())
    }

    /// Copies a file, a link or a directory, and makes the directories above the copy.
    pub async fn copy_entry(
        &self,
        source: &str,
        destination: &str,
        user: Option<&str>,
        options: CopyOptions,
    ) -> Result<(), GuestError> {
        self.require(FILES).await?;
        let request = CopyRequest {
            source: source.to_owned(),
            destination: destination.to_owned(),
            recursive: options.recursive,
            overwrite: options.overwrite,
            ..Default::default()
        };
        self.own.copy_with_options(request, as_user(within(TREE_TIMEOUT), user)?).await?;
        Ok(())
    }

    /// Changes mode, owner and group of what a path leads to.
    pub async fn set_attributes(
        &self,
        path: &(impl AsRef<[u8]> + Sync + ?Sized),
        user: Option<&str>,
        attributes: Attributes,
    ) -> Result<(), GuestError> {
        self.require(FILES).await?;
        let Attributes { mode, owner, group } = attributes;
        let (path, path_bytes) = self.spelled(path.as_ref()).await?;
        let request =
            SetAttributesRequest { path, mode, owner, group, path_bytes, ..Default::default() };
        self.own.set_attributes_with_options(request, as_user(short(), user)?).await?;
        Ok(())
    }

    /// Makes a symbolic link that says `text`, in the place of a file or link that is there.
    pub async fn make_link(
        &self,
        path: &[u8],
        text: &[u8],
        user: Option<&str>,
    ) -> Result<(), GuestError> {
        self.require(RAW_PATHS).await?;
        let (path, text) = (path.to_vec(), text.to_vec());
        let request = MakeLinkRequest { path, text, ..Default::default() };
        self.own.make_link_with_options(request, as_user(short(), user)?).await?;
        Ok(())
    }

    /// Finds names below a directory.
    pub async fn glob(
        &self,
        path: &str,
        user: Option<&str>,
        options: GlobOptions,
    ) -> Result<Found, GuestError> {
        self.require(FILES).await?;
        let GlobOptions { pattern, exclude, limit } = options;
        let path = path.to_owned();
        let request = GlobRequest { path, pattern, exclude, limit, ..Default::default() };
        let call = as_user(within(SEARCH_TIMEOUT), user)?;
        let answer = self.own.glob_with_options(request, call).await?.into_owned();
        Ok(Found { paths: answer.paths, truncated: answer.truncated })
    }

    /// Finds lines in a file, or in the files below a directory.
    pub async fn grep(
        &self,
        path: &str,
        user: Option<&str>,
        options: GrepOptions,
    ) -> Result<Lines, GuestError> {
        self.require(FILES).await?;
        let GrepOptions { pattern, include, exclude, limit } = options;
        let path = path.to_owned();
        let request = GrepRequest { path, pattern, include, exclude, limit, ..Default::default() };
        let call = as_user(within(SEARCH_TIMEOUT), user)?;
        let answer = self.own.grep_with_options(request, call).await?.into_owned();
        let matches = answer.matches.into_iter().map(|found| Line {
            path: found.path,
            line: found.line,
            content: found.content,
        });
        Ok(Lines { matches: matches.collect(), truncated: answer.truncated })
    }
}

fn within(time: Duration) -> CallOptions {
    CallOptions::default().with_timeout(time)
}
