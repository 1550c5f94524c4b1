//! Why a file call failed, before anyone knows how it is told.
//!
//! The Connect service and the HTTP routes do the same work and speak of errors differently: the
//! work says what kind of failure it was and names the path, the edges translate.

use std::io;
use std::path::Path;

use connectrpc::ConnectError;
use guest_proto::fault::{self, Fault};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
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
    /// Something else is where a directory is wanted.
    NotADirectory,
    /// A directory is where something else is wanted.
    IsADirectory,
    /// The user that the request names is unknown.
    UnknownUser,
    /// The kernel does not permit it.
    Denied,
    /// The disk or the quota is full.
    NoSpace,
    /// A directory holds something and should not.
    NotEmpty,
    /// What is there stands in the way: a mount point, a tree that is too large.
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
            Errno::NOTDIR => Self::new(
                FileErrorKind::NotADirectory,
                format!("a part of '{path}' is not a directory"),
            ),
            Errno::ISDIR => {
                Self::new(FileErrorKind::IsADirectory, format!("path '{path}' is a directory"))
            }
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
            Errno::NOTEMPTY => {
                Self::new(FileErrorKind::NotEmpty, format!("directory '{path}' is not empty"))
            }
            other => Self::new(FileErrorKind::Internal, format!("could not use '{path}': {other}")),
        }
    }

    /// Something that is not a directory is called `path`, where one is wanted.
    pub(crate) fn not_a_directory(path: &Path) -> Self {
        let path = path.display();
        Self::new(FileErrorKind::NotADirectory, format!("path '{path}' is not a directory"))
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
            FileErrorKind::Invalid | FileErrorKind::NotADirectory | FileErrorKind::IsADirectory => {
                StatusCode::BAD_REQUEST
            }
            FileErrorKind::Denied => StatusCode::FORBIDDEN,
            FileErrorKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
            FileErrorKind::AlreadyExists | FileErrorKind::NotEmpty | FileErrorKind::InTheWay => {
                StatusCode::CONFLICT
            }
            FileErrorKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The header that tells it from others of its status, where there are such.
    pub(crate) fn header(&self) -> Option<(HeaderName, HeaderValue)> {
        let fault = match self.kind {
            FileErrorKind::NotADirectory => Fault::NotADirectory,
            FileErrorKind::IsADirectory => Fault::IsADirectory,
            FileErrorKind::NotEmpty => Fault::NotEmpty,
            FileErrorKind::NoSpace => Fault::NoSpace,
            _ => return None,
        };
        let name = HeaderName::from_static(fault::HEADER);
        Some((name, HeaderValue::from_static(fault.name())))
    }
}

impl From<FileError> for ConnectError {
    fn from(error: FileError) -> Self {
        let headers = HeaderMap::from_iter(error.header());
        let message = error.message;
        let told = match error.kind {
            FileErrorKind::NotFound => Self::not_found(message),
            FileErrorKind::AlreadyExists => Self::already_exists(message),
            FileErrorKind::Invalid | FileErrorKind::NotADirectory | FileErrorKind::IsADirectory => {
                Self::invalid_argument(message)
            }
            FileErrorKind::UnknownUser => Self::unauthenticated(message),
            FileErrorKind::Denied => Self::permission_denied(message),
            FileErrorKind::NoSpace => Self::resource_exhausted(message),
            // Not `resource_exhausted`: the SDK takes that for a rate limit and says "try later".
            FileErrorKind::NotEmpty | FileErrorKind::InTheWay => Self::failed_precondition(message),
            FileErrorKind::Internal => Self::internal(message),
        };
        if headers.is_empty() { told } else { told.with_headers(headers) }
    }
}
