//! The client in front of a guest that means harm, or is simply broken.
#![cfg(feature = "client")]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::time::Duration;

use async_trait::async_trait;
use guest_proto::client::{BoxError, EVENT_LIMIT, StartOptions};
use guest_proto::{ByteStream, Dial, GuestClient, GuestError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::task::TaskTracker;

/// Answers every connection with the same bytes, whatever was asked.
struct Parrot {
    answer: Vec<u8>,
    /// Says the end of the answer over and over.
    repeats: bool,
    tasks: TaskTracker,
}

#[async_trait]
impl Dial for Parrot {
    async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError> {
        let (near, mut far) = tokio::io::duplex(64 << 10);
        let (answer, repeats) = (self.answer.clone(), self.repeats);
        self.tasks.spawn(async move {
            let mut asked = [0; 4096];
            let _ = far.read(&mut asked).await;
            let _ = far.write_all(&answer).await;
            let filler = [b'x'; 4096];
            while repeats && far.write_all(&filler).await.is_ok() {}
        });
        Ok(Box::new(near))
    }
}

/// A guest that says this.
fn says(head: &str, body: &[u8]) -> Parrot {
    let mut answer = head.as_bytes().to_vec();
    answer.extend_from_slice(body);
    Parrot { answer, repeats: false, tasks: TaskTracker::new() }
}

const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\nconnection: close\r\n\r\n";

async fn first_event(parrot: Parrot) -> GuestError {
    let guest = GuestClient::new(parrot);
    let story = async {
        let options = StartOptions { cmd: "true".to_owned(), ..StartOptions::default() };
        match guest.start(options).await {
            Ok(mut running) => running.next().await.map(|_| ()),
            Err(error) => Err(error),
        }
    };
    tokio::time::timeout(Duration::from_secs(10), story).await.unwrap().unwrap_err()
}

#[tokio::test]
async fn a_length_that_is_a_lie_is_not_believed() {
    let mut body = vec![0];
    body.extend_from_slice(&u32::MAX.to_be_bytes());
    let error = first_event(says(STREAM, &body)).await;
    assert!(error.to_string().contains("limit"), "{error}");
}

#[tokio::test]
async fn an_event_without_end_is_given_up() {
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(EVENT_LIMIT + 1).unwrap().to_be_bytes());
    let parrot = Parrot { repeats: true, ..says(STREAM, &body) };
    let error = first_event(parrot).await;
    assert!(error.to_string().contains("limit"), "{error}");
}

#[tokio::test]
async fn bytes_that_are_no_message_are_an_error() {
    let error = first_event(says(STREAM, &[0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff])).await;
    assert!(matches!(error, GuestError::Refused { .. }), "{error:?}");
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_unavailable() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let error = first_event(says(head, b"100\r\nxx")).await;
    assert!(matches!(error, GuestError::Unavailable { .. }), "{error:?}");
    let error = first_event(says("", b"")).await;
    assert!(matches!(error, GuestError::Unavailable { .. }), "{error:?}");
    let error = first_event(says("SSH-2.0-x\r\n", b"")).await;
    assert!(matches!(error, GuestError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_head_without_end_is_given_up() {
    let parrot = Parrot { repeats: true, ..says("HTTP/1.1 200 OK\r\nx: ", b"") };
    let error = first_event(parrot).await;
    assert!(matches!(error, GuestError::Unavailable { .. }), "{error:?}");
    let many = "h: x\r\n".repeat(1000);
    let error = first_event(says(&format!("HTTP/1.1 200 OK\r\n{many}\r\n"), b"")).await;
    assert!(matches!(error, GuestError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_short_answer_that_is_long_is_given_up() {
    let parrot = Parrot { repeats: true, ..says("HTTP/1.1 200 OK\r\n\r\n", b"{") };
    let guest = GuestClient::new(parrot);
    let asking = tokio::time::timeout(Duration::from_secs(10), guest.metrics());
    let error = asking.await.unwrap().unwrap_err();
    assert!(matches!(error, GuestError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_guest_that_cannot_be_dialled_says_why() {
    struct Nowhere;
    #[async_trait]
    impl Dial for Nowhere {
        async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError> {
            Err("there is no such sandbox".into())
        }
    }
    let error = GuestClient::new(Nowhere).health().await.unwrap_err();
    assert_eq!(error.to_string(), "the guest cannot be reached: there is no such sandbox");
    let error = GuestClient::new(Nowhere).list().await.unwrap_err();
    assert!(matches!(error, GuestError::Unavailable { .. }), "{error:?}");
}
