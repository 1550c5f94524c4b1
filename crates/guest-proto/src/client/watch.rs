//! Watching folders.

use connectrpc::client::{CallOptions, ServerStream};

use super::error::harmless;
use super::transport::GuestBody;
use super::{EVENT_LIMIT, GuestClient, GuestError, as_user};
use crate::filesystem::__buffa::oneof::watch_dir_response::Event;
use crate::filesystem::{
    EntryInfo, EventType, FilesystemEvent, WatchDirRequest, WatchDirResponseView,
};

/// What to watch, and how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchOptions {
    /// Whether folders below are watched as well, also those that are made later.
    pub recursive: bool,
    /// Whether changes tell what is there.
    pub include_entry: bool,
    /// Whether a network file system may be watched, though not all of its changes are seen.
    pub allow_network_mounts: bool,
}

/// Something that happened in a watched folder.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// This happened to the entry of this name, which is relative to the watched folder.
    Happened {
        /// Its name, such as `nested/new.txt`.
        name: String,
        /// What happened.
        kind: EventType,
        /// What is there, where that was asked for and something is.
        entry: Option<Box<EntryInfo>>,
    },
    /// Changes were lost here, and how many where that is known. Look at the folder again.
    Lost(Option<u64>),
}

/// A folder that is watched, until this is dropped.
#[derive(Debug)]
pub struct Watching {
    stream: ServerStream<GuestBody, WatchDirResponseView<'static>>,
}

impl Watching {
    /// The next change; waits for it as long as it takes.
    ///
    /// Cancellation-safe: a change that was not returned comes with the next call.
    pub async fn next(&mut self) -> Result<Change, GuestError> {
        loop {
            let Some(message) = self.stream.message().await? else {
                let message = "the stream of changes was over".to_owned();
                return Err(GuestError::Unavailable { message });
            };
            let message = message.to_owned_message();
            match message.event {
                Some(Event::Filesystem(event)) => return Ok(read(*event)),
                Some(Event::Start(_) | Event::Keepalive(_)) | None => {}
            }
        }
    }
}

fn read(event: FilesystemEvent) -> Change {
    match event.overflow.into_option() {
        Some(overflow) => Change::Lost(overflow.lost),
        None => Change::Happened {
            name: harmless_name(event.name),
            kind: event.r#type.as_known().unwrap_or_default(),
            entry: event.entry.into_option().map(Box::new),
        },
    }
}

/// Names are kept as they are unless a terminal would be steered by them.
fn harmless_name(name: String) -> String {
    if name.chars().any(char::is_control) { harmless(&name) } else { name }
}

impl GuestClient {
    /// Watches a folder. What happens after this returned is told.
    pub async fn watch(
        &self,
        path: &str,
        user: Option<&str>,
        options: WatchOptions,
    ) -> Result<Watching, GuestError> {
        let request = WatchDirRequest {
            path: path.to_owned(),
            recursive: options.recursive,
            include_entry: options.include_entry,
            allow_network_mounts: options.allow_network_mounts,
            ..Default::default()
        };
        let call = as_user(CallOptions::default().with_max_message_size(EVENT_LIMIT), user)?;
        let mut stream = self.files.watch_dir_with_options(request, call).await?;
        // The guest says that it watches before anything else, or why it does not.
        match stream.message().await? {
            Some(_) => Ok(Watching { stream }),
            None => Err(GuestError::Unavailable {
                message: "the stream of changes was over before it began".to_owned(),
            }),
        }
    }
}
