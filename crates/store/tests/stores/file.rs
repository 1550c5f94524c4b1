//! The file of SQLite: whose it is, what becomes of a damaged one, and what is left alone.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use store::StoreError;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A closed store with enough in it to have a middle.
async fn filled(place: &Place) -> Vec<u8> {
    let store = place.open().await;
    store.put_key(&key("ci", "one")).await.unwrap();
    for number in 0..200 {
        store.put_lease(&lease(number)).await.unwrap();
    }
    store.close().await;
    fs::read(place.path()).unwrap()
}

/// Runs SQL in the file, as another program would.
async fn run(path: &Path, sql: impl Into<String>) {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql.into())).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn nobody_else_can_read_it_whatever_the_mode_was() {
    let place = Place::new();
    let store = place.open().await;
    store.put_lease(&lease(1)).await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&place.folder.path().join(format!("soma.db{suffix}"))), 0o600);
    }
    store.close().await;
    fs::set_permissions(place.path(), Permissions::from_mode(0o644)).unwrap();
    let store = place.open().await;
    store.put_lease(&lease(2)).await.unwrap();
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&place.folder.path().join(format!("soma.db{suffix}"))), 0o600);
    }
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_kept() {
    type Damage = fn(&mut Vec<u8>);
    let damages: [(&str, bool, Damage); 5] = [
        ("no database", false, |bytes| {
            *bytes = b"this is not a database, not even close".repeat(99);
        }),
        ("garbage in the header", false, |bytes| bytes[..64].fill(0xa5)),
        ("garbage in the middle", true, |bytes| {
            let middle = bytes.len() / 8192 * 4096;
            bytes[middle..middle + 8192].fill(0xa5);
        }),
        ("cut in the middle", false, |bytes| bytes.truncate(bytes.len() / 8192 * 4096)),
        ("cut within a page", true, |bytes| bytes.truncate(bytes.len() - 1000)),
    ];
    for (damage, keeps, apply) in damages {
        let place = Place::new();
        let mut bytes = filled(&place).await;
        assert!(bytes.len() > 20 * 4096, "a middle is needed");
        apply(&mut bytes);
        fs::write(place.path(), &bytes).unwrap();

        let (store, opened) = SqliteStore::open(&place.path()).await.unwrap();
        let aside = opened.set_aside.unwrap_or_else(|| panic!("{damage}: was not seen"));
        // Where the file can be read at all, and its key is not in what was struck.
        let is_kept = store.key(&key("ci", "one").hash).await.unwrap().is_some();
        assert_eq!((opened.keys, is_kept), if keeps { (1, true) } else { (0, false) }, "{damage}");
        let name = aside.file_name().unwrap().to_str().unwrap();
        let seconds = name.strip_prefix("soma.db.damaged-").unwrap();
        assert!(seconds.parse::<u64>().unwrap() > 1_700_000_000, "{damage}: {name}");
        assert_eq!(fs::read(&aside).unwrap(), bytes, "{damage}: what was there is changed");
        assert_eq!(mode(&aside), 0o600, "{damage}");
        // The empty one works, and is taken for whole at the next start.
        assert_eq!(found(&store, LeaseQuery::default()).await, (vec![], 0), "{damage}");
        store.put_lease(&lease(1)).await.unwrap();
        store.close().await;
        assert_eq!(found(&place.open().await, LeaseQuery::default()).await.1, 1, "{damage}");
    }
}

#[tokio::test]
async fn damage_twice_in_a_second_is_kept_twice() {
    let place = Place::new();
    let mut aside = Vec::new();
    for round in 0..3 {
        fs::write(place.path(), format!("garbage {round}").repeat(500)).unwrap();
        let (store, opened) = SqliteStore::open(&place.path()).await.unwrap();
        store.close().await;
        aside.push(opened.set_aside.unwrap());
    }
    for (round, path) in aside.iter().enumerate() {
        assert!(fs::read_to_string(path).unwrap().starts_with(&format!("garbage {round}")));
    }
}

#[tokio::test]
async fn a_log_without_its_database_is_set_aside_too() {
    let place = Place::new();
    let store = place.open().await;
    store.put_lease(&lease(1)).await.unwrap();
    let log = fs::read(place.folder.path().join("soma.db-wal")).unwrap();
    assert!(!log.is_empty());
    let left = Place::new();
    fs::write(left.folder.path().join("soma.db-wal"), &log).unwrap();
    let (_store, opened) = SqliteStore::open(&left.path()).await.unwrap();
    let mut aside = opened.set_aside.unwrap().into_os_string();
    aside.push("-wal");
    assert_eq!(fs::read(aside).unwrap(), log);
}

#[tokio::test]
async fn a_garbled_log_costs_what_it_held_and_no_more() {
    let place = Place::new();
    filled(&place).await;
    fs::write(place.folder.path().join("soma.db-wal"), vec![0xa5; 10_000]).unwrap();
    assert_eq!(found(&place.open().await, LeaseQuery::default()).await.1, 200);
}

#[tokio::test]
async fn a_database_of_a_later_soma_is_refused_and_untouched() {
    let place = Place::new();
    filled(&place).await;
    run(
        &place.path(),
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'to come', TRUE, x'00', 0); DROP TABLE lease_labels;",
    )
    .await;
    let before = fs::read(place.path()).unwrap();
    let error = SqliteStore::open(&place.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::Later { .. }), "{error}");
    assert_eq!(fs::read(place.path()).unwrap(), before);
    assert_eq!(names(place.folder.path()), ["soma.db"]);
}

#[tokio::test]
async fn a_database_of_another_program_is_refused_and_untouched() {
    let place = Place::new();
    run(&place.path(), "CREATE TABLE bookmarks (address TEXT);").await;
    let before = fs::read(place.path()).unwrap();
    let error = SqliteStore::open(&place.path()).await.unwrap_err();
    assert!(error.to_string().contains("another program"), "{error}");
    assert_eq!(fs::read(place.path()).unwrap(), before);
    assert_eq!(names(place.folder.path()), ["soma.db"]);
}

#[tokio::test]
async fn what_cannot_be_reached_is_an_error_and_not_damage() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    let error = SqliteStore::open(&place.path()).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
    assert_eq!(names(place.folder.path()), ["soma.db"]);

    let nowhere = place.folder.path().join("nowhere/soma.db");
    let error = SqliteStore::open(&nowhere).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
}

#[tokio::test]
async fn damage_while_it_is_open_is_said_and_an_empty_one_with_all_keys_takes_its_place() {
    let place = Place::new();
    let length = u64::try_from(filled(&place).await.len()).unwrap();
    let store = place.open().await;
    store.put_key(&key("ci", "one")).await.unwrap();
    store.put_lease(&lease(1)).await.unwrap();
    let file = fs::OpenOptions::new().write(true).open(place.path()).unwrap();
    for page in 1..length / 4096 {
        file.write_all_at(&[0xa5; 4096], page * 4096).unwrap();
    }
    let (all, few) =
        (LeaseQuery::default(), LeaseQuery { limit: Some(9), ..LeaseQuery::default() });
    let (one, two) = tokio::join!(store.leases(&all), store.leases(&few));
    for error in [one.unwrap_err(), two.unwrap_err()] {
        let StoreError::Lost { aside, .. } = &error else { panic!("{error}") };
        assert!(aside.exists() && error.to_string().contains("ask again"), "{error}");
    }
    let count = names(place.folder.path()).iter().filter(|name| name.contains("damaged")).count();
    assert!(count >= 1, "nothing was set aside");
    assert_eq!(store.key(&key("ci", "one").hash).await.unwrap(), Some(key("ci", "one")));
    assert_eq!(found(&store, LeaseQuery::default()).await, (vec![], 0));
    store.put_lease(&lease(1)).await.unwrap();
    store.close().await;
    let again = place.open().await;
    assert_eq!(found(&again, LeaseQuery::default()).await, (ids([1]), 1));
    assert_eq!(again.key(&key("ci", "one").hash).await.unwrap(), Some(key("ci", "one")));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_named_not_shown_and_hides_no_other() {
    let place = Place::new();
    let store = place.open().await;
    for number in 1..=4 {
        store.put_lease(&lease(number)).await.unwrap();
    }
    store.close().await;
    for damage in [
        "'{\"version\":1,\"id\":\"a-secret\"}'",
        // A bit that flipped in a text may make it none.
        "CAST(x'7bff7d' AS TEXT)",
        // The whole record of another.
        "(SELECT record FROM leases WHERE created_at = 3)",
    ] {
        let update = format!("UPDATE leases SET record = {damage} WHERE created_at = 2;");
        run(&place.path(), update).await;
        let store = place.open().await;
        let page = store.leases(&LeaseQuery::default()).await.unwrap();
        let items: Vec<_> = page.items.iter().map(|lease| lease.id.clone()).collect();
        assert_eq!((items, page.total), (ids([4, 3, 1]), 4), "{damage}");
        let [unreadable] = page.unreadable.as_slice() else { panic!("{:?}", page.unreadable) };
        assert_eq!(unreadable.id, id(2).as_str(), "{damage}");
        assert!(!unreadable.reason.contains("a-secret"), "{}", unreadable.reason);
        store.put_lease(&lease(2)).await.unwrap();
        assert_eq!(found(&store, LeaseQuery::default()).await, (ids([4, 3, 2, 1]), 4));
        store.close().await;
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_read_opens_nothing() {
    let place = Place::new();
    let store = place.open().await;
    store.put_key(&key("ci", "one")).await.unwrap();
    store.close().await;
    run(&place.path(), "UPDATE api_keys SET owner = CAST(x'ff' AS TEXT);").await;
    assert_eq!(place.open().await.key(&key("ci", "one").hash).await.unwrap(), None);
}

/// Whatever bit flips, the store opens, and what is whole in it or beside it works.
#[tokio::test]
async fn whatever_bit_flips_it_opens_and_works() {
    let place = Place::new();
    let store = place.open().await;
    for number in 0..12 {
        let mut lease = running(number);
        lease.labels.insert("part".into(), number.to_string());
        store.put_lease(&lease).await.unwrap();
    }
    store.put_key(&key("ci", "one")).await.unwrap();
    store.close().await;
    let whole = fs::read(place.path()).unwrap();
    let seed: usize =
        std::env::var("SOMA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    // Every byte of what is read first, and a choice of the rest.
    let every = if std::env::var_os("SOMA_LONG").is_some() { 61 } else { 997 };
    let places = (0..100).chain((100 + seed % every..whole.len()).step_by(every));
    let (mut aside, mut with_key, mut count) = (0, 0, 0);
    for (turn, at) in places.enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << ((turn + seed) % 8);
        let place = Place::new();
        fs::write(place.path(), &bytes).unwrap();
        let opened = SqliteStore::open(&place.path()).await;
        let (store, opened) = opened.unwrap_or_else(|error| panic!("byte {at}: {error}"));
        count += 1;
        aside += usize::from(opened.set_aside.is_some());
        with_key += usize::from(store.key(&key("ci", "one").hash).await.unwrap().is_some());
        // As at every start of a daemon: what is found in the folders is written over it.
        for number in 0..12 {
            let lease = running(number);
            store.put_lease(&lease).await.unwrap_or_else(|error| panic!("byte {at}: {error}"));
        }
        store.put_key(&key("ci", "one")).await.unwrap();
        let listed = found(&store, LeaseQuery::default()).await;
        assert_eq!(listed.0.len(), 12, "byte {at}: {listed:?}");
        for number in 0..12 {
            store.remove_lease(&id(number)).await.unwrap();
        }
        assert_eq!(found(&store, LeaseQuery::default()).await.1, 0, "byte {at}");
        store.close().await;
    }
    println!("{count} bits: {aside} set aside, the key was kept in {with_key}");
    assert!(aside > 0, "no damage was ever seen");
    assert!(with_key * 10 > count * 8, "keys are lost: {with_key} of {count}");
}

#[tokio::test]
async fn what_was_answered_is_there_when_the_process_ends_at_once() {
    let place = Place::new();
    let store = place.open().await;
    store.put_lease(&running(1)).await.unwrap();
    store.put_key(&key("ci", "one")).await.unwrap();
    // What a killed process leaves: the files as they are this moment, without its memory, and
    // the shared index is memory.
    let left = Place::new();
    for suffix in ["", "-wal"] {
        let name = format!("soma.db{suffix}");
        let from = place.folder.path().join(&name);
        fs::copy(from, left.folder.path().join(name)).unwrap();
    }
    let again = left.open().await;
    assert_eq!(again.leases(&LeaseQuery::default()).await.unwrap().items, [running(1)]);
    assert_eq!(again.key(&key("ci", "one").hash).await.unwrap(), Some(key("ci", "one")));
}

#[tokio::test]
async fn a_store_that_was_closed_is_one_file_and_opens_again() {
    let place = Place::new();
    let store = place.open().await;
    store.put_lease(&lease(1)).await.unwrap();
    store.close().await;
    assert_eq!(names(place.folder.path()), ["soma.db"]);
    let error = store.put_lease(&lease(2)).await.unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
    let again = place.open().await;
    assert_eq!(found(&again, LeaseQuery::default()).await, (ids([1]), 1));
}
