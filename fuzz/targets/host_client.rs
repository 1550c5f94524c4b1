//! Answers of a guest that means harm, into the client on the host.
//!
//! The first byte chooses the call and whether the answer begins with a proper head; the rest is
//! what the guest says, on every connection.
#![no_main]

use std::cell::OnceCell;
use std::sync::Mutex;
use std::time::Duration;

use guest_proto::client::{BoxError, PortsEvent, StartOptions};
use guest_proto::{ByteStream, Dial, GuestClient};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

/// Nothing here waits for anything: what takes longer hangs.
const LONGEST: Duration = Duration::from_secs(5);

/// Says the same to everybody, but for the first, who may get something else.
struct Parrot {
    first: Mutex<Option<Vec<u8>>>,
    answer: Vec<u8>,
}

#[async_trait::async_trait]
impl Dial for Parrot {
    async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError> {
        let first = self.first.lock().ok().and_then(|mut first| first.take());
        let answer = first.unwrap_or_else(|| self.answer.clone());
        let (near, mut far) = tokio::io::duplex(1 << 20);
        tokio::spawn(async move {
            let mut asked = [0; 4096];
            let _ = far.read(&mut asked).await;
            let _ = far.write_all(&answer).await;
        });
        Ok(Box::new(near))
    }
}

const UNARY: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\nconnection: close\r\n\r\n";
const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/connect+proto\r\nconnection: close\r\n\r\n";
/// Protocol 2 with the feature `ports`.
const VERSION: &[u8] = b"\x08\x02\x12\x05ports";

fn guest(kind: u8, head: &[u8], answer: &[u8]) -> GuestClient {
    let head = if kind & 0x80 == 0 { head } else { b"" };
    let first = (kind & 0x40 != 0).then(|| [UNARY, VERSION].concat());
    GuestClient::new(Parrot { first: Mutex::new(first), answer: [head, answer].concat() })
}

async fn call(kind: u8, answer: &[u8]) {
    let unary = || guest(kind & 0x80, UNARY, answer);
    match kind & 0x0f {
        0 => {
            let guest = guest(kind & 0x80, STREAM, answer);
            let options = StartOptions { cmd: "true".to_owned(), ..StartOptions::default() };
            if let Ok(mut running) = guest.start(options).await {
                while let Ok(Some(_)) = running.next().await {}
            }
        }
        1 => {
            let guest = guest(kind | 0x40, STREAM, answer);
            if let Ok(mut ports) = guest.ports().await {
                while let Ok(event) = ports.next().await {
                    if let PortsEvent::Snapshot(ports) = event {
                        let names = ports.iter().filter_map(|port| port.holder.as_ref());
                        assert!(names.into_iter().all(|held| !held.name.contains('\u{1b}')));
                    }
                }
            }
        }
        2 => drop(unary().metrics().await),
        3 => drop(unary().version().await),
        4 => drop(unary().list().await),
        5 => drop(unary().list_dir("/", 1, None).await),
        6 => drop(unary().stat("/", None).await),
        7 => drop(unary().environment().await),
        8 => {
            if let Ok(mut download) = unary().download("/x", None).await {
                while let Ok(Some(_)) = download.next().await {}
            }
        }
        9 => drop(unary().health().await),
        _ => drop(unary().remove("/x", None).await),
    }
}

thread_local! {
    static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((kind, answer)) = bytes.split_first() else { return };
    RUNTIME.with(|runtime| {
        let runtime = runtime.get_or_init(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime")
        });
        let called = runtime.block_on(async {
            tokio::time::timeout(LONGEST, call(*kind, answer)).await
        });
        assert!(called.is_ok(), "it hangs");
    });
});
