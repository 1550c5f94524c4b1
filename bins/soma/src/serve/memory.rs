//! The daemon's memory: a file of its own, or a database in a server.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use store::Store;
use store::postgres::PostgresStore;
use store::sqlite::SqliteStore;
use tracing::{info, warn};

use crate::config::Database;
use crate::failure::{Failure, SOMA_FAILED};

/// What the daemon remembers in.
pub(super) enum Memory {
    File(Arc<SqliteStore>),
    Server(Arc<PostgresStore>),
}

impl Memory {
    /// Opens it for the daemon with this folder.
    pub(super) async fn open(folder: &Path, database: &Database) -> Result<Self, Failure> {
        match database {
            Database::File => open_file(folder).await,
            Database::Postgres(address) => {
                let home = home_id(folder)?;
                let store = PostgresStore::open(address, &home).await;
                let store = store.map_err(|error| Failure::own(&error))?;
                info!(database = %address, "the daemon remembers in a server");
                Ok(Self::Server(Arc::new(store)))
            }
        }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        match self {
            Self::File(store) => Arc::clone(store) as _,
            Self::Server(store) => Arc::clone(store) as _,
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::File(store) => store.close().await,
            Self::Server(store) => store.close().await,
        }
    }
}

async fn open_file(folder: &Path) -> Result<Memory, Failure> {
    let opened = SqliteStore::open(&folder.join("soma.db")).await;
    let (store, opened) = opened.map_err(|error| Failure::own(&error))?;
    if let Some(aside) = opened.set_aside {
        warn!(
            aside = %aside.display(),
            keys = opened.keys,
            "the database was damaged and is set aside; what the sandboxes' folders say is \
             indexed anew, and the API keys that could be read in it are kept; any other but the \
             one in `api-key` has to be made again"
        );
    }
    Ok(Memory::File(Arc::new(store)))
}

/// What tells this home from all others, made when it is first needed. It is no secret.
fn home_id(folder: &Path) -> Result<String, Failure> {
    let path = folder.join("home-id");
    let failed = |error: io::Error| {
        Failure::new(SOMA_FAILED, format!("`{}` cannot be used: {error}", path.display()))
    };
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path).map_err(failed)?,
        Err(error) => return Err(failed(error)),
    };
    let id = text.trim();
    if id.len() < 16 || id.len() > 64 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(failed(io::Error::other("it has no id in it: restore it from a backup")));
    }
    Ok(id.to_owned())
}

fn make(path: &Path) -> io::Result<String> {
    let id = provider_native::random_id()?.as_str().to_owned();
    // Whole or not at all: half an id would be the end of this home's claim.
    let unfinished = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    Ok(id)
}
