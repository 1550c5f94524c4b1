//! The index is a copy: lost or damaged while the daemon runs, it is made again from what we have.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use control::{Control, Options, Wish};
use domain::{Lease, Owner, SandboxId, SandboxSpec, Timestamp, Token};
use journal::{Bounds, Journal};
use policy::Caller;
use provider::fake::FakeBackend;
use store::sqlite::SqliteStore;
use store::{ApiKey, KeyHash, LeaseQuery, Page, Store, StoreError, Unreadable};

async fn open(backend: &FakeBackend, folder: &tempfile::TempDir, store: Arc<dyn Store>) -> Control {
    let (journal, _) = Journal::open(&folder.path().join("events"), Bounds::default()).unwrap();
    let provider = Arc::new(backend.provider());
    Control::open(provider, store, journal, Options::default()).await.unwrap().0
}

fn named(name: &str) -> Wish {
    Wish { name: Some(name.parse().unwrap()), ..Wish::default() }
}

async fn names(control: &Control) -> Vec<String> {
    let page = control.list(&Caller::local(), LeaseQuery::default()).await.unwrap();
    assert_eq!((page.total, page.unreadable), (page.items.len() as u64, vec![]));
    let mut names: Vec<String> =
        page.items.iter().map(|lease| lease.name.as_ref().unwrap().to_string()).collect();
    names.sort();
    names
}

fn set_aside(folder: &tempfile::TempDir) -> usize {
    let entries = std::fs::read_dir(folder.path()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    names
        .filter(|name| {
            name.contains("damaged") && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .count()
}

#[tokio::test]
async fn a_database_that_is_damaged_while_it_is_used_is_replaced_and_filled_again() {
    let (backend, folder) = (FakeBackend::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("soma.db");
    let store = Arc::new(SqliteStore::open(&path).await.unwrap().0);
    let key = ApiKey {
        name: "ci".to_owned(),
        owner: Owner::default(),
        hash: KeyHash::of(&Token::new("a key")),
        created_at: Timestamp(7),
    };
    store.put_key(&key).await.unwrap();
    let control = open(&backend, &folder, Arc::clone(&store) as _).await;
    let caller = Caller::local();
    for name in ["one", "two", "three"] {
        control.create(&caller, named(name)).await.unwrap();
    }
    assert_eq!(names(&control).await, ["one", "three", "two"]);
    for round in 1..=3 {
        // Both the file and its log, in which everything is as yet.
        for file in ["soma.db", "soma.db-wal"] {
            let file = OpenOptions::new().write(true).open(folder.path().join(file)).unwrap();
            let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
            file.write_all_at(&vec![0xa5; length], 0).unwrap();
        }
        // After a change nobody has pages of it in memory. Who meets it then is a search, or
        // somebody with a key.
        let state = if round % 2 == 1 {
            control.stop(&caller, &"two".into()).await.unwrap()
        } else {
            control.start(&caller, &"two".into()).await.unwrap()
        };
        if round == 2 {
            assert_eq!(store.key(&key.hash).await.unwrap(), Some(key.clone()), "{round}");
        }
        assert_eq!(names(&control).await, ["one", "three", "two"], "{round}");
        assert_eq!(store.key(&key.hash).await.unwrap(), Some(key.clone()), "{round}");
        let query = LeaseQuery { name: Some("two".parse().unwrap()), ..LeaseQuery::default() };
        let listed = control.list(&caller, query).await.unwrap().items;
        assert_eq!(listed[0].state, state.state, "{round}");
        assert!(set_aside(&folder) >= round, "{round}: the damage was not met");
    }
    control.create(&caller, named("four")).await.unwrap();
    control.delete(&caller, &"one".into()).await.unwrap();
    control.close().await;
    store.close().await;
    drop(control);
    let again = Arc::new(SqliteStore::open(&path).await.unwrap().0);
    let control = open(&backend, &folder, again).await;
    assert_eq!(names(&control).await, ["four", "three", "two"]);
}

/// A store in which some rows cannot be read until they are written again.
struct Blurred {
    inner: SqliteStore,
    blurred: Mutex<BTreeSet<SandboxId>>,
}

#[async_trait]
impl Store for Blurred {
    async fn put_lease(&self, lease: &Lease) -> Result<(), StoreError> {
        self.blurred.lock().unwrap().remove(&lease.id);
        self.inner.put_lease(lease).await
    }

    async fn remove_lease(&self, id: &SandboxId) -> Result<(), StoreError> {
        self.inner.remove_lease(id).await
    }

    async fn leases(&self, query: &LeaseQuery) -> Result<Page<Lease>, StoreError> {
        let mut page = self.inner.leases(query).await?;
        let blurred = self.blurred.lock().unwrap().clone();
        page.items.retain(|lease| !blurred.contains(&lease.id));
        let row = |id: SandboxId| Unreadable { id: id.to_string(), reason: "blurred".to_owned() };
        page.unreadable = blurred.into_iter().map(row).collect();
        Ok(page)
    }

    async fn put_key(&self, key: &ApiKey) -> Result<(), StoreError> {
        self.inner.put_key(key).await
    }

    async fn key(&self, hash: &KeyHash) -> Result<Option<ApiKey>, StoreError> {
        self.inner.key(hash).await
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_hides_nobody_and_is_written_again() {
    let (backend, folder) = (FakeBackend::new(), tempfile::tempdir().unwrap());
    let inner = SqliteStore::open(&folder.path().join("soma.db")).await.unwrap().0;
    let store = Arc::new(Blurred { inner, blurred: Mutex::default() });
    let control = open(&backend, &folder, Arc::clone(&store) as _).await;
    let mut made = Vec::new();
    for name in ["one", "two", "three"] {
        made.push(control.create(&Caller::local(), named(name)).await.unwrap().id.clone());
    }
    store.blurred.lock().unwrap().insert(made[1].clone());
    assert_eq!(names(&control).await, ["one", "three", "two"]);
    assert!(store.blurred.lock().unwrap().is_empty(), "it was not written again");
    control.close().await;
    drop(control);
    // At the start of a daemon: one that is found says itself what it is, and one of which only
    // the row is there is not forgotten.
    let lost = SandboxId::from_random([7; 15]);
    store
        .inner
        .put_lease(&Lease::new(lost.clone(), SandboxSpec::default(), Timestamp(1)))
        .await
        .unwrap();
    store.blurred.lock().unwrap().extend([made[0].clone(), lost.clone()]);
    let control = open(&backend, &folder, Arc::clone(&store) as _).await;
    let page = control.list(&Caller::local(), LeaseQuery::default()).await.unwrap();
    assert_eq!(page.total, 4);
    let missing = page.items.iter().find(|lease| lease.id == lost).unwrap();
    assert_eq!(missing.state.name(), "error");
    assert_eq!(control.get(&Caller::local(), &"one".into()).unwrap().state.name(), "running");
}
