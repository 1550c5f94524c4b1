//! What the client of a guest does with files besides bodies, in a real sandbox.

use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use guest_proto::client::{BoxError, Change, GuestError, Init, WatchOptions};
use guest_proto::filesystem::EventType;

use crate::support::{Home, Kept};

#[tokio::test]
async fn a_client_watches_a_folder_and_shows_its_token() {
    let home = Home::new();
    let Kept { provider, id, guest } = home.sandbox().await;

    guest.make_dir("/workspace/watched", None).await.unwrap();
    let options = WatchOptions { recursive: true, include_entry: true, ..WatchOptions::default() };
    let mut watching = guest.watch("/workspace/watched", None, options).await.unwrap();
    let body = || stream::iter([Ok::<_, BoxError>(Bytes::from_static(b"text"))]);
    guest.upload("/workspace/watched/a/new", None, body()).await.unwrap();
    let mut seen = Vec::new();
    while !seen.contains(&("a/new".to_owned(), EventType::EVENT_TYPE_WRITE)) {
        let next = tokio::time::timeout(Duration::from_secs(10), watching.next());
        match next.await.unwrap().unwrap() {
            Change::Happened { name, kind, entry } => {
                assert_eq!(entry.unwrap().path, format!("/workspace/watched/{name}"));
                seen.push((name, kind));
            }
            Change::Lost(count) => panic!("{count:?} changes were lost"),
        }
    }
    assert_eq!(seen[0], ("a".to_owned(), EventType::EVENT_TYPE_CREATE));
    let error = guest.watch("/not/there", None, options).await.unwrap_err();
    assert!(matches!(error, GuestError::NotFound { .. }), "{error}");

    let told = |token: &str| Init { access_token: Some(token.to_owned()), ..Init::default() };
    guest.init(&told("first")).await.unwrap();
    let refused = [
        guest.list().await.map(drop),
        guest.stat("/", None).await.map(drop),
        guest.environment().await.map(drop),
        guest.download("/etc/passwd", None).await.map(drop),
        guest.upload("/tmp/x", None, body()).await,
        guest.init(&told("second")).await,
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error, GuestError::Refused { code: "unauthenticated", .. }), "{error:?}");
        assert!(!format!("{error:?}").contains("first"), "{error:?}");
    }
    guest.health().await.unwrap();

    let first = guest.with_token("first").unwrap();
    assert!(!format!("{first:?}").contains("first"));
    first.list().await.unwrap();
    first.stat("/", None).await.unwrap();
    first.upload("/tmp/x", None, body()).await.unwrap();
    assert_eq!(first.download("/tmp/x", None).await.unwrap().length(), Some(4));
    first.init(&told("second")).await.unwrap();
    first.list().await.unwrap_err();
    guest.with_token("second").unwrap().list().await.unwrap();

    provider.destroy(&id).await.unwrap();
    drop((guest, first, watching, provider));
    home.assert_nothing_left();
}

#[tokio::test]
async fn what_is_uploaded_into_memory_does_not_end_the_sandbox() {
    let home = Home::new();
    let Kept { provider, id, guest } = home.sandbox().await;
    let megabytes = |count| {
        let piece = Bytes::from(vec![7; 1 << 20]);
        stream::iter((0..count).map(move |_| Ok::<_, BoxError>(piece.clone())))
    };
    // More than process 1 may have.
    // Whether the refusal is read before the connection ends under the rest is a matter of luck.
    guest.upload("/dev/shm/large", None, megabytes(400)).await.unwrap_err();
    // What was not finished is removed, so there is room again.
    let begun = std::time::Instant::now();
    while let Err(error) = guest.upload("/dev/shm/small", None, megabytes(1)).await {
        assert!(error.to_string().contains("lie in memory"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    guest.health().await.unwrap();
    guest.stat("/dev/shm/large", None).await.unwrap_err();
    guest.upload("/tmp/large", None, megabytes(400)).await.unwrap();
    assert_eq!(guest.stat("/tmp/large", None).await.unwrap().size, 400 << 20);
    provider.destroy(&id).await.unwrap();
    drop((guest, provider));
    home.assert_nothing_left();
}
