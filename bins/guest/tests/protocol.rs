//! A guest of an earlier protocol, driven by the client of today.
//!
//! The guest is today's, told to act as the earlier one: the routes and the fields that came
//! later are not there. `proto/golden` holds what is on the wire in between.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod harness;

use futures::stream;
use guest_proto::client::{Event, StartOptions};
use guest_proto::version::{FEATURES, FIRST, PORTS, PROTOCOL, RAW_PATHS};
use guest_proto::{GuestClient, GuestError};
use harness::Guest;

/// What every guest since the first can do: processes, files, metrics.
async fn drive(client: &GuestClient) {
    client.health().await.unwrap();
    let root = Some("root");
    let options = StartOptions {
        cmd: "sh".to_owned(),
        args: vec!["-c".to_owned(), "read line; echo got $line; exit 3".to_owned()],
        user: Some("root".to_owned()),
        cwd: Some("/".to_owned()),
        stdin: true,
        ..StartOptions::default()
    };
    let mut running = client.start(options).await.unwrap();
    let Some(Event::Started { pid }) = running.next().await.unwrap() else { panic!("no start") };
    assert!(client.list().await.unwrap().iter().any(|process| process.pid == pid));
    client.send_input(pid, b"it\n".to_vec()).await.unwrap();
    let mut output = Vec::new();
    let ended = loop {
        match running.next().await.unwrap().unwrap() {
            Event::Stdout(bytes) => output.extend_from_slice(&bytes),
            Event::Ended(ended) => break ended,
            _ => {}
        }
    };
    assert_eq!((output.as_slice(), ended.code), (&b"got it\n"[..], 3));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file").to_str().unwrap().to_owned();
    let body = stream::iter([Ok(bytes::Bytes::from_static(b"content"))]);
    client.upload(&file, root, body).await.unwrap();
    assert_eq!(client.stat(&file, root).await.unwrap().size, 7);
    let mut download = client.download(&file, root).await.unwrap();
    assert_eq!(download.next().await.unwrap().unwrap(), "content");
    client.remove(&file, root).await.unwrap();
    assert!(matches!(client.stat(&file, root).await, Err(GuestError::NotFound { .. })));

    let metrics = client.metrics().await.unwrap();
    assert!(metrics.mem_total > 0 && metrics.disk_total > 0);
}

#[tokio::test]
async fn an_older_guest_does_what_it_can_and_the_rest_fails_at_once() {
    let guest = Guest::start_as(&["--protocol", "1"]);
    let client = guest.client();
    drive(&client).await;
    assert_eq!(client.metrics().await.unwrap().cpu, None);
    assert_eq!(client.version().await.unwrap().protocol, FIRST);
    let error = client.ports().await.unwrap_err();
    assert!(
        matches!(error, GuestError::TooOld { needs, has } if needs == PORTS && has == FIRST),
        "{error:?}"
    );
    assert_eq!(
        error.to_string(),
        "the guest of this sandbox speaks protocol 1 and has no `ports`, which came with \
         protocol 2: a sandbox that is made now has it"
    );
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_guest_of_today_has_everything() {
    let guest = Guest::start();
    let client = guest.client();
    drive(&client).await;
    let version = client.version().await.unwrap();
    assert_eq!((version.protocol, version.features.as_slice()), (PROTOCOL, FEATURES));
    let metrics = client.metrics().await.unwrap();
    assert!(metrics.cpu.is_some() && metrics.uptime_seconds.is_some());
    client.ports().await.unwrap();
}

#[tokio::test]
async fn a_path_that_is_no_text_is_not_sent_to_a_guest_that_knows_only_text() {
    let root = Some("root");
    let older = Guest::start_as(&["--protocol", "4"]);
    let client = older.client();
    for error in [
        client.stat(b"/tmp/\xff", root).await.unwrap_err(),
        client.list_dir(b"/tmp/\xff", 1, root).await.unwrap_err(),
        client.make_dir(b"/tmp/\xff", root).await.unwrap_err(),
        client.make_link(b"/tmp/x", b"y", root).await.unwrap_err(),
    ] {
        assert!(matches!(error, GuestError::TooOld { needs, .. } if needs == RAW_PATHS), "{error}");
    }
    let today = Guest::start();
    let client = today.client();
    let folder = tempfile::tempdir().unwrap();
    let below = |name: &[u8]| [folder.path().as_os_str().as_encoded_bytes(), b"/", name].concat();
    client.make_dir(&below(b"\xff"), root).await.unwrap();
    client.make_link(&below(b"\xff/link"), b"to \xfe", root).await.unwrap();
    let listed = client.list_dir(&below(b"\xff"), 1, root).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].path_bytes.as_deref(), Some(below(b"\xff/link").as_slice()));
    assert_eq!(listed[0].link_text.as_deref(), Some(&b"to \xfe"[..]));
    assert_eq!(client.stat(&below(b""), root).await.unwrap().path_bytes, None);
}

#[tokio::test]
async fn the_version_is_asked_once_and_again_only_where_nobody_answered() {
    let guest = Guest::start();
    let client = guest.client();
    assert_eq!(client.version().await.unwrap().protocol, PROTOCOL);
    drop(guest);
    // Known by now, so nobody is asked.
    assert_eq!(client.version().await.unwrap().protocol, PROTOCOL);
    let gone = Guest::start();
    let client = gone.client();
    drop(gone);
    for _ in 0..2 {
        let error = client.version().await.unwrap_err();
        assert!(matches!(error, GuestError::Unavailable { .. }), "{error:?}");
    }
}
