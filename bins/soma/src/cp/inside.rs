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
    pub(super) async fn find(&self, path: &[u8]) -> Result<Option<EntryInfo>, Failure> {
        let path = if path.is_empty() { b"." } else { path };
        match self.guest.stat(path, self.user()).await {
            Ok(entry) => Ok(Some(entry)),
            Err(GuestError::NotFound { .. }) => Ok(None),
            Err(error) => Err(refused_inside(&error)),
        }
    }

    /// The text of a link, as it is and not where it leads.
    pub(super) async fn link(&self, entry: &EntryInfo, path: &[u8]) -> Result<Bytes, Failure> {
        match &entry.link_text {
            Some(text) => Ok(Bytes::copy_from_slice(text)),
            // An older guest.
            None => self.run("readlink", vec!["-n".to_owned(), "--".to_owned(), text(path)?]).await,
        }
    }

    /// Makes a link, in the place of another one or a file that has its name.
    pub(super) async fn make_link(&self, says: &[u8], path: &[u8]) -> Result<(), Failure> {
        match self.guest.make_link(path, says, self.user()).await {
            Err(GuestError::TooOld { .. }) => {
                let words = vec!["-sfn".to_owned(), "--".to_owned(), text(says)?, text(path)?];
                self.run("ln", words).await.map(drop)
            }
            made => made.map_err(|error| refused_inside(&error)),
        }
    }

    /// Gives folders their modes, the innermost first: it may be the last that can be done there.
    pub(super) async fn set_modes(&self, modes: Vec<(u32, Vec<u8>)>) -> Result<(), Failure> {
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

/// The whole path of an entry, as its bytes.
pub(super) fn path_of(entry: &EntryInfo) -> &[u8] {
    entry.path_bytes.as_deref().unwrap_or(entry.path.as_bytes())
}

/// What an entry is called, as its bytes; nothing for the root.
pub(super) fn name_of(entry: &EntryInfo) -> &[u8] {
    match &entry.path_bytes {
        // The guest's name for it shows what is no text as something else.
        Some(path) => last(path),
        None => entry.name.as_bytes(),
    }
}

/// The last name of a path.
pub(super) fn last(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// A path inside, one level down.
pub(super) fn below(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let end = folder.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    [&folder[..end], b"/", name].concat()
}

/// A path for messages.
pub(super) fn shown(path: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(path)
}

fn text(path: &[u8]) -> Result<String, Failure> {
    String::from_utf8(path.to_vec()).map_err(|_| {
        let message = format!("`{}` is not UTF-8, which this sandbox's guest wants", shown(path));
        Failure::new(FAILED, message)
    })
}
