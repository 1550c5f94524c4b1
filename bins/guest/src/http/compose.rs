//! `POST /files/compose`: one file from several, for uploads that came in parts.
//!
//! The parts are joined in the given order and removed once the whole is in place. Until then
//! they and what the destination held stay as they are.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use http::request::Parts;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;

use super::destination::Destination;
use super::download;
use super::file_body::{self, CHUNK, Spare};
use super::upload::Written;
use super::{HttpError, query};
use crate::files::metadata;
use crate::files::{self, FileError, blocking};
use crate::server::Body;
use crate::state::State;

/// The most parts. Each is open from the beginning to the end.
const MOST_PARTS: usize = 1000;

/// As large as the request may be.
const LARGEST: usize = 8 << 20;

#[derive(Deserialize)]
struct Asked {
    source_paths: Vec<String>,
    destination: String,
    username: Option<String>,
}

/// Joins the files that the request names.
pub(super) async fn compose(
    head: &Parts,
    body: Incoming,
    state: &State,
) -> Result<Response<Body>, HttpError> {
    let metadata = metadata::in_headers(&head.headers)?;
    let asked: Asked = serde_json::from_slice(&super::whole(body, LARGEST).await?)
        .map_err(|error| HttpError::bad_request(format!("the request makes no sense: {error}")))?;
    if asked.source_paths.is_empty() || asked.source_paths.len() > MOST_PARTS {
        return Err(HttpError::bad_request(format!(
            "a file is made of 1 to {MOST_PARTS} parts, not of {}",
            asked.source_paths.len()
        )));
    }
    let named = match asked.username.filter(|name| !name.is_empty()) {
        Some(name) => Some(name),
        None => query::parameter(head.uri.query(), "username")?,
    };
    let user = files::find_user(state, named)?;
    let sources = asked.source_paths.iter().map(|path| files::expand(state, path, &user));
    let sources: Vec<PathBuf> = sources.collect::<Result<_, _>>()?;
    let path = files::expand(state, &asked.destination, &user)?;
    if asked.destination.is_empty() {
        return Err(HttpError::bad_request("'destination' says where the file goes"));
    }

    let parts = blocking::short(move || open(sources)).await?;
    let (owner, set) = (user.clone(), metadata.clone());
    let mut destination =
        blocking::short(move || Destination::open(&path, &owner, &set, None)).await?;
    for part in &parts {
        let mut offset = 0;
        loop {
            let (file, path) = (Arc::clone(&part.file), part.path.clone());
            let read = move || {
                file_body::read_chunk(&file, Spare::default(), offset, CHUNK)
                    .map_err(|error| FileError::from_io(&error, &path))
            };
            let chunk = blocking::short(read).await?;
            if chunk.is_empty() {
                break;
            }
            offset += chunk.len() as u64;
            destination.write(chunk).await?;
        }
    }
    let path = destination.finish().await?;
    blocking::short(move || remove(parts)).await?;
    super::json(StatusCode::OK, &Written::new(&path, &metadata))
}

struct Part {
    path: PathBuf,
    file: Arc<File>,
    identity: (u64, u64),
}

/// Opens all parts before anything is made, so that a missing one changes nothing.
fn open(sources: Vec<PathBuf>) -> Result<Vec<Part>, FileError> {
    let mut seen = HashSet::new();
    let parts = sources.into_iter().map(|path| {
        let (file, stat) = download::open(&path)?;
        let identity = (stat.st_dev, stat.st_ino);
        if !seen.insert(identity) {
            return Err(FileError::invalid(format!("'{}' is named twice", path.display())));
        }
        Ok(Part { path, file: Arc::new(file), identity })
    });
    parts.collect()
}

/// Removes the parts, except where the name stands for something else by now: the whole, when it
/// took the place of a part.
fn remove(parts: Vec<Part>) -> Result<(), FileError> {
    for part in parts {
        let found = std::fs::symlink_metadata(&part.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == part.identity) {
            std::fs::remove_file(&part.path)
                .map_err(|error| FileError::from_io(&error, &part.path))?;
        }
    }
    Ok(())
}
