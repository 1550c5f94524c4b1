//! Our own client against the real guest: terminals, and output by offset.
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod harness;

use std::path::PathBuf;
use std::time::Duration;

use guest_proto::client::{BoxError, Event, Running, StartOptions, TerminalSize};
use guest_proto::process::Signal;
use guest_proto::{ByteStream, Dial, GuestClient, GuestError};
use harness::{Guest, numbers};
use tokio::net::UnixStream;
use tokio::time::timeout;

const SIZE: TerminalSize = TerminalSize { columns: 80, rows: 24 };

struct Socket(PathBuf);

#[async_trait::async_trait]
impl Dial for Socket {
    async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError> {
        Ok(Box::new(UnixStream::connect(&self.0).await?))
    }
}

fn client(guest: &Guest) -> GuestClient {
    GuestClient::new(Socket(guest.file("socket")))
}

fn shell(script: &str, terminal: Option<TerminalSize>) -> StartOptions {
    StartOptions {
        cmd: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        cwd: Some("/".to_owned()),
        user: Some("root".to_owned()),
        terminal,
        ..StartOptions::default()
    }
}

async fn next(running: &mut Running) -> Event {
    let next = timeout(Duration::from_secs(20), running.next()).await.unwrap();
    next.unwrap().unwrap()
}

async fn pid(running: &mut Running) -> u32 {
    let Event::Started { pid } = next(running).await else { panic!("no start") };
    pid
}

/// Reads on until this text has come.
async fn wait_for(running: &mut Running, text: &str) -> String {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(text) {
        match next(running).await {
            Event::Stdout(bytes) | Event::Terminal(bytes) => seen.extend_from_slice(&bytes),
            other => panic!("{other:?} came before {text:?}"),
        }
    }
    String::from_utf8(seen).unwrap()
}

#[tokio::test]
async fn a_terminal_is_typed_into_resized_and_joined_later() {
    let guest = Guest::start();
    let client = client(&guest);
    let script = "stty -echo; while read x; do echo \"<$x $(stty size)>\"; done; exit 6";
    let options = StartOptions { tag: Some("mine".to_owned()), ..shell(script, Some(SIZE)) };
    let mut running = client.start(options).await.unwrap();
    let pid = pid(&mut running).await;
    assert_eq!(running.offset(), Some(0));
    assert_eq!(client.list().await.unwrap()[0].tag.as_deref(), Some("mine"));

    let mut input = client.terminal_input(pid);
    for key in ["o", "n", "e", "\r"] {
        input.send(key.as_bytes()).await.unwrap();
    }
    let seen = wait_for(&mut running, "<one 24 80>\r\n").await;
    assert_eq!(running.offset(), Some(seen.len() as u64));
    client.resize(pid, TerminalSize { columns: 100, rows: 30 }).await.unwrap();
    client.send_terminal(pid, "two\r").await.unwrap();
    wait_for(&mut running, "<two 30 100>").await;
    drop(running);

    let mut again = client.connect(pid).await.unwrap();
    let Event::Started { .. } = next(&mut again).await else { panic!("no start") };
    let before = again.offset();
    let Event::Terminal(screen) = next(&mut again).await else { panic!("no screen") };
    let screen = String::from_utf8_lossy(&screen).into_owned();
    assert!(screen.contains("<one 24 80>") && screen.contains("<two 30 100>"), "{screen:?}");
    assert_eq!(again.offset(), before, "a screen is no output");

    input.send(b"\x04").await.unwrap();
    input.close().await.unwrap();
    let ended = loop {
        if let Event::Ended(ended) = next(&mut again).await {
            break ended;
        }
    };
    assert_eq!(ended.code, 6);
}

#[tokio::test]
async fn typing_into_what_is_gone_is_an_error() {
    let guest = Guest::start();
    let client = client(&guest);
    let mut input = client.terminal_input(4_000_000);
    let error = loop {
        if let Err(error) = input.send(b"x").await {
            break error;
        }
    };
    assert!(matches!(error, GuestError::NotFound { .. }), "{error:?}");
    assert!(input.send(b"x").await.is_err());

    let mut running = client.start(shell("sleep 60", Some(SIZE))).await.unwrap();
    let pid = pid(&mut running).await;
    let mut input = client.terminal_input(pid);
    input.send(b"x").await.unwrap();
    client.signal(pid, Signal::SIGNAL_SIGKILL).await.unwrap();
    while !matches!(next(&mut running).await, Event::Ended(_)) {}
    let error = loop {
        if let Err(error) = input.send(b"x").await {
            break error;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(error.to_string().contains("terminal is closed"), "{error}");
    // Its connection is not left in anybody's way.
    let begin = std::time::Instant::now();
    client.list().await.unwrap();
    assert!(begin.elapsed() < Duration::from_millis(150), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_lost_stream_is_taken_up_where_it_was() {
    let guest = Guest::start();
    let client = client(&guest);
    let script = "seq 1 1000; head -c 3000000 /dev/zero | tr '\\0' x; echo; seq 1 1000";
    let mut running = client.start(shell(script, None)).await.unwrap();
    let pid = pid(&mut running).await;
    let mut all = Vec::new();
    let Event::Stdout(bytes) = next(&mut running).await else { panic!("no output") };
    all.extend_from_slice(&bytes);
    // Every stream is given up after a few events, and the next goes on.
    'streams: loop {
        let offset = running.offset().unwrap();
        assert_eq!(offset, all.len() as u64);
        running = client.connect_from(pid, offset).await.unwrap();
        for _ in 0..40 {
            match next(&mut running).await {
                Event::Stdout(bytes) => all.extend_from_slice(&bytes),
                // Between two streams nobody holds the process up.
                Event::Dropped { from, to } => {
                    assert_eq!(from, all.len() as u64);
                    all.resize(usize::try_from(to).unwrap(), b'x');
                }
                Event::Ended(_) => break 'streams,
                _ => {}
            }
        }
    }
    let numbers = numbers(1000);
    let all = String::from_utf8(all).unwrap();
    assert!(all.starts_with(&numbers) && all.ends_with(&format!("x\n{numbers}")));
    assert_eq!(all.len(), 2 * numbers.len() + 3_000_001);

    let mut late = client.connect_from(pid, 0).await.unwrap();
    next(&mut late).await;
    let Event::Dropped { from: 0, to } = next(&mut late).await else { panic!("nothing dropped") };
    assert!(to > 1_000_000);
    let error = match client.connect_from(pid, u64::MAX).await {
        Ok(mut ahead) => ahead.next().await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(error, GuestError::InvalidArgument { .. }), "{error:?}");
}
