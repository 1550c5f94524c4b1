//! PostgreSQL: whose a database is, a server that goes away, and what is never said.

use std::io::Write as _;
use std::sync::Arc;

use store::StoreError;
use store::postgres::{Address, PostgresStore};

use super::server::{PASSWORD, Server};
use super::*;

/// A server of the test's own, unless there is none to be had, which is said.
pub(crate) fn server(test: &str) -> Option<Server> {
    let reason = match Server::start() {
        Ok(server) => return Some(server),
        Err(reason) => reason,
    };
    let line = format!("SKIPPED postgres::{test}: {reason}\n");
    if let Some(path) = std::env::var_os("SOMA_SKIPPED") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    }
    let _ = std::io::stderr().write_all(line.as_bytes());
    None
}

/// Opens a database of it for the home `one`.
pub(crate) async fn open(server: &Server, database: &str) -> Result<PostgresStore, StoreError> {
    PostgresStore::open(&address(server, database), "one").await
}

fn address(server: &Server, database: &str) -> Address {
    server.address(database).parse().unwrap()
}

#[tokio::test]
async fn what_was_answered_is_there_for_the_next_daemon_also_after_a_crash() {
    let Some(mut server) = server("what_was_answered_is_there") else { return };
    let store = open(&server, "postgres").await.unwrap();
    store.put_lease(&running(1)).await.unwrap();
    store.put_key(&key("ci", "one")).await.unwrap();
    server.stop();
    server.resume();
    let again = open(&server, "postgres").await.unwrap();
    assert_eq!(again.leases(&LeaseQuery::default()).await.unwrap().items, [running(1)]);
    assert_eq!(again.key(&key("ci", "one").hash).await.unwrap(), Some(key("ci", "one")));
    store.close().await;
    let error = store.put_lease(&lease(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_went_away_is_said_and_used_again_when_it_is_back() {
    let Some(mut server) = server("a_server_that_went_away") else { return };
    let store = open(&server, "postgres").await.unwrap();
    store.put_lease(&lease(1)).await.unwrap();
    server.stop();
    let error = store.put_lease(&lease(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("see that its server runs"), "{error}");
    assert!(!format!("{error} {error:?} {store:?}").contains(PASSWORD));
    server.resume();
    store.put_lease(&lease(3)).await.unwrap();
    assert_eq!(found(&store, LeaseQuery::default()).await, (ids([3, 1]), 2));
}

#[tokio::test]
async fn a_database_of_another_home_is_refused_and_untouched() {
    let Some(server) = server("a_database_of_another_home") else { return };
    server.run("postgres", "CREATE DATABASE other");
    let store = open(&server, "postgres").await.unwrap();
    store.put_lease(&lease(1)).await.unwrap();
    let error = PostgresStore::open(&address(&server, "postgres"), "two").await.unwrap_err();
    assert!(matches!(error, StoreError::Taken { .. }), "{error}");
    assert!(error.to_string().contains("a database of its own"), "{error}");
    assert!(!format!("{error} {error:?}").contains(PASSWORD));
    // The same server has another one for it.
    let other = PostgresStore::open(&address(&server, "other"), "two").await.unwrap();
    assert_eq!(found(&other, LeaseQuery::default()).await.1, 0);
    assert_eq!(found(&open(&server, "postgres").await.unwrap(), LeaseQuery::default()).await.1, 1);
}

#[tokio::test]
async fn a_database_of_a_later_soma_or_of_another_program_is_refused_and_untouched() {
    let Some(server) = server("a_database_of_a_later_soma") else { return };
    drop(open(&server, "postgres").await.unwrap());
    server.run(
        "postgres",
        "INSERT INTO soma_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'to come', TRUE, '', 0); DROP TABLE lease_labels",
    );
    let error = open(&server, "postgres").await.unwrap_err();
    assert!(matches!(error, StoreError::Later { .. }), "{error}");

    server.run("postgres", "CREATE DATABASE foreign_one");
    server.run("foreign_one", "CREATE TABLE bookmarks (address TEXT)");
    let error = open(&server, "foreign_one").await.unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    for (database, tables) in [
        ("postgres", "api_keys,leases,soma_home,soma_migrations\n"),
        ("foreign_one", "bookmarks\n"),
    ] {
        let list = "SELECT string_agg(tablename, ',' ORDER BY tablename COLLATE \"C\") \
                    FROM pg_tables WHERE schemaname = 'public'";
        assert_eq!(server.run(database, list), tables);
    }

    server.run("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
    let error = open(&server, "latin").await.unwrap_err();
    assert!(error.to_string().contains("UTF8"), "{error}");
}

#[tokio::test]
async fn who_may_not_and_what_is_not_there_is_said_without_the_password() {
    let Some(server) = server("who_may_not_and_what_is_not_there") else { return };
    let wrong = server.address("postgres").replace(PASSWORD, "starfish");
    for (text, word) in [
        (wrong, "password authentication failed"),
        (server.address("nowhere"), "does not exist"),
        (server.address("postgres").replace("host=", "host=/nowhere"), "No such file"),
    ] {
        let error = PostgresStore::open(&text.parse().unwrap(), "one").await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error:?}");
        let said = format!("{error} {error:?}");
        assert!(said.contains(word), "{said}");
        assert!(!said.contains(PASSWORD) && !said.contains("starfish"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_that_open_it_at_once_make_the_tables_once() {
    let Some(server) = server("many_that_open_it_at_once") else { return };
    let server = Arc::new(server);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let server = Arc::clone(&server);
        tasks.spawn(async move { open(&server, "postgres").await.map(drop) });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap().unwrap();
    }
}

#[tokio::test]
async fn labels_larger_than_an_index_takes_are_kept_and_found() {
    let Some(server) = server("labels_larger_than_an_index_takes") else { return };
    let store = open(&server, "postgres").await.unwrap();
    // Of digits that do not repeat, for those that do are packed.
    let long: String =
        (0..1500_u32).map(|number| number.wrapping_mul(2_654_435_761).to_string()).collect();
    let mut large = lease(1);
    large.labels.insert(long.clone(), long.clone());
    large.template = long;
    store.put_lease(&large).await.unwrap();
    let query = LeaseQuery { labels: large.labels, ..LeaseQuery::default() };
    assert_eq!(found(&store, query).await, (ids([1]), 1));
}
