//! Why a file call failed, before anyone knows how it is told.
//!
//! The Connect service and the HTTP routes do the same work and speak of errors differently: the
//! work says what kind of failure it was and names the path, the edges translate.

use std::io;
use std::path::Path;

use connectrpc::ConnectError;
use http::StatusCode;
use rustix::io::Errno;

/// A failed file call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct FileError {
    /// What went wrong, as far as a caller acts on it.
    pub(crate) kind: FileErrorKind,
    /// What went wrong, for people.
    pub(crate) message: String,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileErrorKind {
    /// The path names nothing.
    NotFound,
    /// Something is there already.
    AlreadyExists,
    /// The path or what it names does not fit the call.
    Invalid,
    /// The user that the request names is unknown.
    UnknownUser,
    /// The kernel does not permit it.
    Denied,
    /// The disk or the quota is full.
    NoSpace,
    /// What is there stands in the way: a mount point, a full folder, a tree that is too large.
    InTheWay,
    /// Anything else.
    Internal,
}

impl FileError {
    /// An error of this kind.
    pub(crate) fn new(kind: FileErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The path or what it names does not fit the call.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(FileErrorKind::Invalid, message)
    }

    /// What is there stands in the way.
    pub(crate) fn in_the_way(message: impl Into<String>) -> Self {
        Self::new(FileErrorKind::InTheWay, message)
    }

    /// What the kernel said about `path`.
    pub(crate) fn from_errno(errno: Errno, path: &Path) -> Self {
        let path = path.display();
        match errno {
            Errno::NOENT => {
                Self::new(FileErrorKind::NotFound, format!("path '{path}' does not exist"))
            }
            Errno::EXIST => {
                Self::new(FileErrorKind::AlreadyExists, format!("path '{path}' already exists"))
            }
            Errno::NOTDIR => Self::invalid(format!("a part of '{path}' is not a directory")),
            Errno::ISDIR => Self::invalid(format!("path '{path}' is a directory")),
            Errno::NAMETOOLONG => Self::invalid(format!("the name is too long: '{path}'")),
            Errno::LOOP => Self::invalid(format!("too many symbolic links in '{path}'")),
            Errno::INVAL | Errno::ILSEQ => Self::invalid(format!("'{path}' does not fit here")),
            Errno::ACCESS | Errno::PERM => {
                Self::new(FileErrorKind::Denied, format!("no permission for '{path}'"))
            }
            Errno::ROFS => Self::new(
                FileErrorKind::Denied,
                format!("path '{path}' is on a read-only file system"),
            ),
            Errno::NOSPC | Errno::DQUOT => {
                Self::new(FileErrorKind::NoSpace, "not enough disk space available")
            }
            Errno::FBIG => Self::new(FileErrorKind::NoSpace, "the file is too large"),
            Errno::BUSY => Self::in_the_way(format!("path '{path}' is a mount point or in use")),
            Errno::NOTEMPTY => Self::in_the_way(format!("directory '{path}' is not empty")),
            other => Self::new(FileErrorKind::Internal, format!("could not use '{path}': {other}")),
        }
    }

    /// What the standard library said about `path`.
    pub(crate) fn from_io(error: &io::Error, path: &Path) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::from_errno(errno, path),
            None => Self::new(
                FileErrorKind::Internal,
                format!("could not use '{}': {error}", path.display()),
            ),
        }
    }

    /// The status with which the HTTP routes tell it.
    pub(crate) fn status(&self) -> StatusCode {
        match self.kind {
            FileErrorKind::NotFound => StatusCode::NOT_FOUND,
            FileErrorKind::UnknownUser => StatusCode::UNAUTHORIZED,
            FileErrorKind::Invalid => StatusCode::BAD_REQUEST,
            FileErrorKind::Denied => StatusCode::FORBIDDEN,
            FileErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            FileErrorKind::AlreadyExists | FileErrorKind::InTheWay => StatusCode::CONFLICT,
            FileErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<FileError> for ConnectError {
    fn from(error: FileError) -> Self {
        let message = error.message;
        match error.kind {
            FileErrorKind::NotFound => Self::not_found(message),
            FileErrorKind::AlreadyExists => Self::already_exists(message),
            FileErrorKind::Invalid => Self::invalid_argument(message),
            FileErrorKind::UnknownUser => Self::unauthenticated(message),
            FileErrorKind::Denied => Self::permission_denied(message),
            FileErrorKind::NoSpace => Self::resource_exhausted(message),
            // Not `resource_exhausted`: the SDK takes that for a rate limit and says "try later".
            FileErrorKind::InTheWay => Self::failed_precondition(message),
            FileErrorKind::Internal => Self::internal(message),
        }
    }
}
