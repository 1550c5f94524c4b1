//! The sandbox's side of a copy, as one of its users.

use bytes::{Bytes, BytesMut};
use guest_proto::client::{Attributes, Event, StartOptions};
use guest_proto::filesystem::{EntryInfo, FileType};
use guest_proto::{GuestClient, GuestError};

use crate::failure::{FAILED, Failure, refused_inside};

/// The longest text of a link that is believed.
const LONGEST_LINK: usize = 4096;

/// How long a small program inside may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// A sandbox as one of its users sees it.
pub(super) struct Inside {
    pub(super) guest: GuestClient,
    user: Option<String>,
}

impl Inside {
    pub(super) fn new(guest: GuestClient, user: Option<String>) -> Self {
        Self { guest, user }
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// What a path names; links are followed.
    pub(super) async fn find(&self, path: &str) -> Result<Option<EntryInfo>, Failure> {
        let path = if path.is_empty() { "." } else { path };
        match self.guest.stat(path, self.user()).await {
            Ok(entry) => Ok(Some(entry)),
            Err(GuestError::NotFound { .. }) => Ok(None),
            Err(error) => Err(refused_inside(&error)),
        }
    }

    /// The text of a link, as it is and not where it leads.
    pub(super) async fn link(&self, path: &str) -> Result<Bytes, Failure> {
        self.run("readlink", vec!["-n".to_owned(), "--".to_owned(), path.to_owned()]).await
    }

    /// Makes a link, in the place of another one or a file that has its name.
    pub(super) async fn make_link(&self, text: String, path: String) -> Result<(), Failure> {
        let words = vec!["-sfn".to_owned(), "--".to_owned(), text, path];
        self.run("ln", words).await.map(drop)
    }

    /// Gives folders their modes, the innermost first: it may be the last that can be done there.
    pub(super) async fn set_modes(&self, modes: Vec<(u32, String)>) -> Result<(), Failure> {
        for (mode, path) in modes.into_iter().rev() {
            let attributes = Attributes { mode: Some(mode), ..Attributes::default() };
            let set = self.guest.set_attributes(&path, self.user(), attributes).await;
            set.map_err(|error| refused_inside(&error))?;
        }
        Ok(())
    }

    /// Runs a small program and returns the little that it writes.
    async fn run(&self, program: &str, words: Vec<String>) -> Result<Bytes, Failure> {
        let inside = |error: GuestError| refused_inside(&error);
        let options = StartOptions {
            cmd: program.to_owned(),
            args: words,
            user: self.user.clone(),
            cwd: Some("/".to_owned()),
            timeout: Some(PATIENCE),
            ..StartOptions::default()
        };
        let mut running = self.guest.start(options).await.map_err(inside)?;
        let (mut written, mut said) = (BytesMut::new(), String::new());
        while let Some(event) = running.next().await.map_err(inside)? {
            match event {
                Event::Stdout(bytes) if written.len() + bytes.len() <= LONGEST_LINK => {
                    written.extend_from_slice(&bytes);
                }
                Event::Stderr(bytes) if said.len() < LONGEST_LINK => {
                    said.push_str(&String::from_utf8_lossy(&bytes));
                }
                Event::Ended(ended) if ended.code == 0 && ended.signal.is_none() => {}
                Event::Ended(ended) => {
                    let said = said.lines().next().map_or(ended.status, ToOwned::to_owned);
                    let message = format!("`{program}` in the sandbox failed: {said}");
                    return Err(Failure::new(FAILED, message));
                }
                _ => {}
            }
        }
        Ok(written.freeze())
    }
}

/// What an entry is, in what matters to a copy.
pub(super) enum Kind {
    File,
    Folder,
    Link,
    /// A device, a socket, a pipe.
    Other,
}

/// What an entry of a listing is: a link is a link, wherever it leads.
pub(super) fn kind(entry: &EntryInfo) -> Kind {
    if entry.symlink_target.is_some() {
        return Kind::Link;
    }
    followed(entry)
}

/// The same where links are followed.
pub(super) fn followed(entry: &EntryInfo) -> Kind {
    match entry.r#type.as_known() {
        Some(FileType::FILE_TYPE_FILE) => Kind::File,
        Some(FileType::FILE_TYPE_DIRECTORY) => Kind::Folder,
        Some(FileType::FILE_TYPE_SYMLINK) => Kind::Link,
        _ => Kind::Other,
    }
}

/// A path inside, one level down.
pub(super) fn below(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}
