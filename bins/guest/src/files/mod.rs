//! Files of the sandbox: the Connect service `filesystem.Filesystem`.
//!
//! The service only translates: it finds out who asks and what the path means, and hands the
//! work to [`list`], [`remove`], [`relocate`], [`folders`] and [`entry`], off the runtime's
//! thread ([`blocking`]). The guest is root of its sandbox and acts as such, like E2B's agent;
//! what it makes belongs to the user that the request names.
//!
//! File bodies do not pass here: see [`crate::http`]. Folders are watched by [`watch`].

pub(crate) mod answer;
pub(crate) mod attributes;
pub(crate) mod blocking;
mod copy;
pub(crate) mod duplicate;
mod entry;
pub(crate) mod error;
pub(crate) mod folders;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod link;
mod list;
mod listing;
pub(crate) mod memory;
pub(crate) mod metadata;
mod pattern;
pub(crate) mod relocate;
pub(crate) mod remove;
mod walk;
mod watch;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use connectrpc::{RequestContext, Response, ServiceRequest, ServiceResult, ServiceStream};
use guest_proto::filesystem::{
    self as proto, CreateWatcherRequest, CreateWatcherResponse, EntryInfo, GetWatcherEventsRequest,
    GetWatcherEventsResponse, ListDirRequest, MakeDirRequest, MakeDirResponse, MoveRequest,
    MoveResponse, RemoveRequest, RemoveResponse, RemoveWatcherRequest, RemoveWatcherResponse,
    StatRequest, StatResponse, WatchDirRequest, WatchDirResponse,
};
use guest_proto::version;
use rustix::io::Errno;

pub(crate) use error::{FileError, FileErrorKind};
pub(crate) use relocate::temporary_name;

use crate::state::State;
use crate::users::{self, Names, User};
use crate::{identity, paths, process};
use listing::{Finished, Listing};
use relocate::Existing;
use watch::{Polled, Watcher};

/// The file service of the guest.
#[derive(Debug, Clone)]
pub(crate) struct Filesystem {
    state: Arc<State>,
    polled: Arc<Polled>,
}

impl Filesystem {
    /// The service for this sandbox.
    pub(crate) fn new(state: Arc<State>) -> Self {
        Self { state, polled: Arc::default() }
    }

    /// Who asks.
    fn caller(&self, context: &RequestContext) -> Result<User, FileError> {
        find_user(&self.state, users::named_in(context.headers()))
    }

    /// What the caller means by `path`.
    fn expand(&self, path: impl AsRef<OsStr>, user: &User) -> Result<PathBuf, FileError> {
        expand(&self.state, path, user)
    }

    fn path<'a>(&self, text: &'a str, bytes: Option<&'a [u8]>) -> &'a OsStr {
        spelled(&self.state, text, bytes)
    }
}

/// The user that a request acts for: the one that it names, else the default one.
pub(crate) fn find_user(state: &State, named: Option<String>) -> Result<User, FileError> {
    let name = named.unwrap_or_else(|| state.defaults().user.clone());
    users::require(&name).map_err(|message| FileError::new(FileErrorKind::UnknownUser, message))
}

/// What `user` means by `path`.
pub(crate) fn expand(
    state: &State,
    path: impl AsRef<OsStr>,
    user: &User,
) -> Result<PathBuf, FileError> {
    let workdir = state.defaults().workdir.clone();
    paths::expand(path, user, workdir.as_deref()).map_err(FileError::invalid)
}

/// The path of a request: its bytes, where it has some that are no text.
pub(crate) fn spelled<'a>(state: &State, text: &'a str, bytes: Option<&'a [u8]>) -> &'a OsStr {
    // A guest that acts as an earlier one passes over what that did not know.
    let bytes = bytes.filter(|_| state.protocol >= version::RAW_PATHS.since);
    bytes.map_or(OsStr::new(text), OsStr::from_bytes)
}

/// Runs long file work with a user's own permissions, once there is a place for it.
pub(crate) async fn long_as<T: Send + 'static>(
    user: User,
    work: impl FnOnce(&User) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    blocking::long(move || as_user(&user, work)).await
}

/// Runs a single file call with a user's own permissions, once there is a place for it.
pub(crate) async fn short_as<T: Send + 'static>(
    user: User,
    work: impl FnOnce(&User) -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    blocking::short(move || as_user(&user, work)).await
}

fn as_user<T: Send>(
    user: &User,
    work: impl FnOnce(&User) -> Result<T, FileError> + Send,
) -> Result<T, FileError> {
    identity::as_user(user, || work(user))
        .unwrap_or_else(|message| Err(FileError::new(FileErrorKind::Internal, message)))
}

#[expect(refining_impl_trait, reason = "the messages themselves are what the trait asks for")]
impl proto::Filesystem for Filesystem {
    async fn stat(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, StatRequest>,
    ) -> ServiceResult<StatResponse> {
        let user = self.caller(&context)?;
        let path = self.expand(self.path(request.path, request.path_bytes), &user)?;
        let entry = blocking::short(move || describe(&path)).await?;
        Response::ok(StatResponse { entry: entry.into(), ..StatResponse::default() })
    }

    async fn make_dir(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, MakeDirRequest>,
    ) -> ServiceResult<MakeDirResponse> {
        let user = self.caller(&context)?;
        let path = self.expand(self.path(request.path, request.path_bytes), &user)?;
        let entry = blocking::short(move || make_dir(&path, &user)).await?;
        Response::ok(MakeDirResponse { entry: entry.into(), ..MakeDirResponse::default() })
    }

    async fn r#move(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, MoveRequest>,
    ) -> ServiceResult<MoveResponse> {
        let user = self.caller(&context)?;
        let source = self.expand(request.source, &user)?;
        let destination = self.expand(request.destination, &user)?;
        let entry = blocking::long(move || {
            relocate::relocate(&source, &destination, &user, Existing::Replaced)?;
            describe(&destination)
        })
        .await?;
        Response::ok(MoveResponse { entry: entry.into(), ..MoveResponse::default() })
    }

    async fn list_dir(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, ListDirRequest>,
    ) -> ServiceResult<Finished> {
        let user = self.caller(&context)?;
        let path = self.expand(self.path(request.path, request.path_bytes), &user)?;
        let depth = request.depth;
        let mut listing = Listing::new(context.headers());
        let listing = blocking::long(move || {
            list::list(&path, depth, |entry| listing.add(&entry))?;
            Ok(listing.finish())
        });
        Response::ok(listing.await?)
    }

    async fn remove(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, RemoveRequest>,
    ) -> ServiceResult<RemoveResponse> {
        let user = self.caller(&context)?;
        let path = self.expand(request.path, &user)?;
        blocking::long(move || remove::remove(&path)).await?;
        Response::ok(RemoveResponse::default())
    }

    async fn watch_dir(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, WatchDirRequest>,
    ) -> ServiceResult<ServiceStream<WatchDirResponse>> {
        let user = self.caller(&context)?;
        let watcher = Watcher::open(watch::Request {
            path: self.expand(request.path, &user)?,
            recursive: request.recursive,
            include_entry: request.include_entry,
            allow_network_mounts: request.allow_network_mounts,
        })
        .await?;
        let keepalive = process::keepalive(context.headers());
        Response::ok(watch::follow(watcher, context.deadline(), keepalive))
    }

    async fn create_watcher(
        &self,
        context: RequestContext,
        request: ServiceRequest<'_, CreateWatcherRequest>,
    ) -> ServiceResult<CreateWatcherResponse> {
        let user = self.caller(&context)?;
        let request = watch::Request {
            path: self.expand(request.path, &user)?,
            recursive: request.recursive,
            include_entry: request.include_entry,
            allow_network_mounts: request.allow_network_mounts,
        };
        let watcher_id = self.polled.create(request).await?;
        Response::ok(CreateWatcherResponse { watcher_id, ..CreateWatcherResponse::default() })
    }

    async fn get_watcher_events(
        &self,
        _context: RequestContext,
        request: ServiceRequest<'_, GetWatcherEventsRequest>,
    ) -> ServiceResult<GetWatcherEventsResponse> {
        let events = self.polled.events(request.watcher_id).await?;
        Response::ok(GetWatcherEventsResponse { events, ..GetWatcherEventsResponse::default() })
    }

    async fn remove_watcher(
        &self,
        _context: RequestContext,
        request: ServiceRequest<'_, RemoveWatcherRequest>,
    ) -> ServiceResult<RemoveWatcherResponse> {
        self.polled.remove(request.watcher_id)?;
        Response::ok(RemoveWatcherResponse::default())
    }
}

fn describe(path: &Path) -> Result<EntryInfo, FileError> {
    entry::describe(path, &Names::read()).map_err(|errno| match errno {
        // Below a file there is nothing; a client that asks whether a path is there wants "no".
        Errno::NOTDIR => FileError::from_errno(Errno::NOENT, path),
        errno => FileError::from_errno(errno, path),
    })
}

fn make_dir(path: &Path, user: &User) -> Result<EntryInfo, FileError> {
    match rustix::fs::stat(path) {
        Ok(stat) if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() => {
            return Err(FileError::new(
                FileErrorKind::AlreadyExists,
                format!("directory already exists: '{}'", path.display()),
            ));
        }
        Ok(_) => {
            return Err(FileError::new(
                FileErrorKind::NotADirectory,
                format!("path already exists but it is not a directory: '{}'", path.display()),
            ));
        }
        Err(_) => folders::open_or_create(path, user)?,
    };
    describe(path)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The user who runs the tests, with a home of its own name.
    pub(crate) fn myself() -> User {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        User {
            name: Names::read().user(uid),
            uid,
            gid,
            groups: vec![gid],
            home: std::env::temp_dir(),
            shell: PathBuf::from("/bin/sh"),
        }
    }

    #[test]
    fn making_a_folder_twice_and_over_a_file_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let entry = make_dir(&path, &myself()).unwrap();
        assert_eq!(entry.permissions, "drwxr-xr-x");
        let error = make_dir(&path, &myself()).unwrap_err();
        assert_eq!(error.kind, FileErrorKind::AlreadyExists);
        std::fs::write(folder.path().join("file"), "").unwrap();
        for name in ["file", "file/below"] {
            let error = make_dir(&folder.path().join(name), &myself()).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::NotADirectory, "{name}");
        }
    }

    #[test]
    fn nothing_is_below_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        for name in ["none", "file/below", "file/"] {
            let error = describe(&folder.path().join(name)).unwrap_err();
            assert_eq!(error.kind, FileErrorKind::NotFound, "{name}");
        }
    }
}
