//! The promises of `Store`, held by the one in an SQLite file and by the one in PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod both;
mod file;
mod postgres;
mod promises;
mod queries;
mod server;
mod size;

use std::path::Path;

use both::both;
use domain::{Lease, Owner, SandboxId, SandboxSpec, State, Timestamp, Token};
use store::sqlite::{Opened, SqliteStore};
use store::{ApiKey, KeyHash, LeaseQuery, Store};
use tempfile::TempDir;

/// A store in a folder that goes with it.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("soma.db")
    }

    async fn open(&self) -> SqliteStore {
        let (store, opened) = SqliteStore::open(&self.path()).await.unwrap();
        assert_eq!(opened, Opened::default());
        store
    }
}

fn id(number: u32) -> SandboxId {
    let mut bits = [0; 15];
    bits[11..].copy_from_slice(&number.to_be_bytes());
    SandboxId::from_random(bits)
}

fn lease(number: u32) -> Lease {
    Lease::new(id(number), SandboxSpec::default(), Timestamp(i64::from(number)))
}

fn running(number: u32) -> Lease {
    let mut lease = lease(number);
    lease.state = State::Running(domain::state::Starting::new().ready());
    lease
}

fn key(name: &str, word: &str) -> ApiKey {
    ApiKey {
        name: name.to_owned(),
        owner: Owner("acme".to_owned()),
        hash: KeyHash::of(&Token::new(word)),
        created_at: Timestamp(7),
    }
}

/// The ids that a query finds, in its order, and how many match in all.
async fn found(store: &dyn Store, query: LeaseQuery) -> (Vec<SandboxId>, u64) {
    let page = store.leases(&query).await.unwrap();
    (page.items.into_iter().map(|lease| lease.id).collect(), page.total)
}

fn ids<const N: usize>(numbers: [u32; N]) -> Vec<SandboxId> {
    numbers.map(id).to_vec()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
