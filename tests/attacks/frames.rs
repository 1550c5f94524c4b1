//! A guest that is not ours any more, and answers the host as it likes.
//!
//! Nothing inside can become the guest, as far as anybody knows (`escape`); should it happen all the
//! same, what is said meets the client that daemon and commands use. So that client is attacked
//! here, over a stream that says whatever a case wants, for as long as anybody listens.

use std::fmt::Write as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use guest_proto::client::{BoxError, StartOptions};
use guest_proto::{ByteStream, Dial, GuestClient};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the whole run may need in memory, in KiB. The listing of a folder is not among the calls: it
/// may have 48 MiB by itself (`LISTING_LIMIT`), takes half as much again while it grows, and its
/// entries take more (`LISTED_LIMIT`).
const MOST_MEMORY: u64 = 64 << 10;

/// What one call may read before it gives up, in bytes, and how long it may take.
const MOST_READ: u64 = 56 << 20;
const LONGEST: Duration = Duration::from_secs(45);

/// So long a stream is followed.
const MOMENT: Duration = Duration::from_millis(20);

/// So many things are taken from a stream that has no end.
const ENOUGH: u32 = 200;

/// Set for the process of its own that the cases run in, so that its memory is theirs.
const ALONE: &str = "SOMA_TEST_FRAMES";

/// What a guest answers: something first, and something else again and again, or the end.
#[derive(Debug, Clone, Default)]
struct Answer {
    first: Vec<u8>,
    again: Vec<u8>,
}

/// A connection on which that is said, once something was asked.
struct Liar {
    answer: Answer,
    said: u64,
    reads: u32,
    asked: bool,
    waiting: Option<Waker>,
}

impl AsyncRead for Liar {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.asked {
            self.waiting = Some(context.waker().clone());
            return Poll::Pending;
        }
        // As on a socket, others have their turn.
        self.reads += 1;
        if self.reads.is_multiple_of(16) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let announces = self.answer.again.starts_with(b"HTTP");
        assert!(self.said < MOST_READ || announces, "{} bytes of one answer", self.said);
        let said = usize::try_from(self.said).unwrap();
        let Answer { first, again } = &self.answer;
        let piece = match first.get(said..) {
            Some(rest) if !rest.is_empty() => rest,
            _ if again.is_empty() => &[],
            _ => &again[(said - first.len()) % again.len()..],
        };
        let length = piece.len().min(buffer.remaining());
        buffer.put_slice(&piece[..length]);
        self.said += length as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Liar {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.asked = true;
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Says the same on every connection.
struct Door(Answer);

#[async_trait::async_trait]
impl Dial for Door {
    async fn dial(&self) -> Result<Box<dyn ByteStream>, BoxError> {
        let answer = self.0.clone();
        Ok(Box::new(Liar { answer, said: 0, reads: 0, asked: false, waiting: None }))
    }
}

fn head(kind: &str, more: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{more}\r\n").into_bytes()
}

const UNARY: &str = "application/proto";
const STREAM: &str = "application/connect+proto";

/// One message of a stream: its flags, its length, itself.
fn frame(flags: u8, length: u32, message: &[u8]) -> Vec<u8> {
    [&[flags][..], &length.to_be_bytes(), message].concat()
}

fn whole(flags: u8, message: &[u8]) -> Vec<u8> {
    frame(flags, u32::try_from(message.len()).unwrap(), message)
}

/// Events of a process as they are on the wire: it began as 7, wrote `hi`, left with 3.
const BEGAN: &[u8] = b"\x0a\x04\x0a\x02\x08\x07";
const WROTE: &[u8] = b"\x0a\x06\x12\x04\x0a\x02hi";
const LEFT: &[u8] = b"\x0a\x0f\x1a\x0d\x08\x06\x10\x01\x1a\x07exit 3.";

/// What was thought of; chance makes the others out of these.
fn answers() -> Vec<Answer> {
    let mut answers = Vec::new();
    let mut add = |first: Vec<Vec<u8>>, again: &[u8]| {
        // In pieces of a usual size.
        let again = again.repeat(if again.is_empty() { 0 } else { 8192 / again.len() + 1 });
        answers.push(Answer { first: first.concat(), again });
    };
    let close = "connection: close\r\n";
    for kind in [UNARY, STREAM, "text/html"] {
        for length in [close, "content-length: 9223372036854775807\r\n"] {
            // A body without an end, of nothing and of what looks like messages.
            add(vec![head(kind, length)], &[0; 4096]);
            add(vec![head(kind, length)], b"\x0a\x7f");
            add(vec![head(kind, length)], &whole(0, WROTE));
            // A giant that never comes, or comes for ever.
            add(vec![head(kind, length), frame(0, u32::MAX, b"")], b"");
            add(vec![head(kind, length), frame(0, u32::MAX, b"")], b"x");
            add(vec![head(kind, length), frame(1, 1 << 30, b"")], b"\x1f\x8b");
        }
        // Few bytes that are many things: of every kind, and each with nothing in it.
        for empty in [b"\x0a\x00", b"\x12\x00", b"\x7a\x00"] {
            add(vec![head(kind, "content-length: 8388606\r\n")], empty);
            add(vec![head(kind, close), frame(0, 4 << 20, b"")], empty);
        }
    }
    // Out of order: the end first, twice the same beginning, another one's, an end and no end.
    for order in [
        vec![LEFT, BEGAN, WROTE],
        vec![BEGAN, BEGAN, LEFT],
        vec![WROTE, WROTE],
        vec![BEGAN, b"\x0a\x04\x0a\x02\x08\x09", LEFT],
        vec![BEGAN, LEFT, WROTE, LEFT],
        vec![b"\xff\xff\xff\xff", BEGAN],
    ] {
        let mut messages: Vec<Vec<u8>> = order.iter().map(|message| whole(0, message)).collect();
        messages.insert(0, head(STREAM, close));
        add(messages.clone(), b"");
        messages.push(whole(2, b"{}"));
        add(messages, &whole(0, WROTE));
    }
    for flags in [1, 2, 3, 0x80, 0xff] {
        add(vec![head(STREAM, close), whole(flags, b"{\"error\":{\"code\":7}}")], b"");
    }
    // The head itself.
    add(vec![b"HTTP/1.1 200 OK\r\n".to_vec()], b"x-more: y\r\n");
    add(vec![b"HTTP/1.1 ".to_vec()], b"2");
    add(vec![head(UNARY, "transfer-encoding: chunked\r\n")], b"1\r\nx\r\n");
    add(
        vec![head(UNARY, "transfer-encoding: chunked\r\n"), b"ffffffffffffffff\r\n".to_vec()],
        b"x",
    );
    add(vec![head(UNARY, "content-encoding: gzip\r\n")], b"\x1f\x8b\x08");
    add(vec![], b"");
    add(vec![], b"\0");
    answers
}

/// Makes a call, and takes what it gives. What comes of it is the call's affair, but it comes to an
/// end; of a stream, which may have none, somebody hears for a moment and goes.
async fn ask(call: u32, answer: Answer) {
    let guest = GuestClient::new(Door(answer));
    match call {
        0..=2 => drop(tokio::time::timeout(MOMENT, follow(&guest, call)).await),
        3 => drop(guest.remove("/x", None).await),
        4 => drop(guest.metrics().await),
        5 => drop(guest.list().await),
        6 => drop(guest.environment().await),
        7 => drop(guest.version().await),
        8 => drop(guest.stat("/", None).await),
        _ => drop(guest.health().await),
    }
}

async fn follow(guest: &GuestClient, call: u32) {
    match call {
        0 => {
            let options = StartOptions { cmd: "true".to_owned(), ..StartOptions::default() };
            if let Ok(mut running) = guest.start(options).await {
                for _ in 0..ENOUGH {
                    let Ok(Some(_)) = running.next().await else { break };
                }
            }
        }
        1 => {
            if let Ok(mut download) = guest.download("/x", None).await {
                for _ in 0..ENOUGH {
                    let Ok(Some(_)) = download.next().await else { break };
                }
            }
        }
        _ => {
            if let Ok(mut ports) = guest.ports().await {
                for _ in 0..ENOUGH {
                    let Ok(_) = ports.next().await else { break };
                }
            }
        }
    }
}

const CALLS: u32 = 10;

/// Numbers that follow from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }

    /// Another answer that is like this one.
    fn change(&mut self, answer: &mut Answer) {
        for _ in 0..=self.below(4) {
            let first = &mut answer.first;
            let at = self.below(first.len());
            match self.below(5) {
                0 if !first.is_empty() => first[at] = u8::try_from(self.below(256)).unwrap(),
                1 if !first.is_empty() => first[at] ^= 1 << self.below(8),
                2 => first.truncate(at),
                3 => first.extend_from_within(at..),
                _ => first.extend_from_slice(&answer.again[..answer.again.len().min(64)]),
            }
        }
        // What has no end is tried by itself; here it would take all of the time.
        answer.again.clear();
    }
}

#[test]
fn e26_a_guest_answers_with_giant_wrong_endless_and_disordered_frames() {
    if std::env::var_os(ALONE).is_some() {
        return attack_the_client();
    }
    let name =
        "attacks::frames::e26_a_guest_answers_with_giant_wrong_endless_and_disordered_frames";
    let mut alone = sys_linux::command::command(std::env::current_exe().unwrap());
    alone.args([name, "--exact", "--nocapture"]).env(ALONE, "1");
    for variable in ["SOMA_LONG", "SOMA_SEED"] {
        alone.envs(std::env::var_os(variable).map(|value| (variable, value)));
    }
    let ended = alone.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}{}", String::from_utf8_lossy(&ended.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

fn attack_the_client() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let seed = std::env::var("SOMA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(26);
    let long = std::env::var_os("SOMA_LONG").is_some();
    let answers = answers();
    let before = peak();
    let tried = |call: u32, answer: &Answer, what: &dyn Fn() -> String| {
        let asked = async { tokio::time::timeout(LONGEST, ask(call, answer.clone())).await };
        let ended = runtime.block_on(asked);
        assert!(ended.is_ok(), "call {call} hangs: {}", what());
    };
    for (number, answer) in (0..).zip(&answers) {
        // What has no end is read to the limit of a call, which takes its time: one call each.
        let is_endless = !answer.again.is_empty() && !long;
        for call in 0..CALLS {
            if call < 3 || !is_endless || call == 3 + number % (CALLS - 3) {
                tried(call, answer, &|| shown(answer));
            }
        }
    }
    if long {
        // Heads that announce another head: this ends with the time that a call has.
        let again = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(300);
        let answer = Answer { first: Vec::new(), again };
        tried(4, &answer, &|| shown(&answer));
    }
    let mut chance = Chance(seed);
    for number in 0..if long { 1_000_000 } else { 5_000 } {
        let mut answer = answers[chance.below(answers.len())].clone();
        chance.change(&mut answer);
        let call = u32::try_from(chance.below(CALLS as usize)).unwrap();
        tried(call, &answer, &|| format!("SOMA_SEED={seed}, case {number}: {}", shown(&answer)));
    }
    let grown = peak().saturating_sub(before);
    assert!(grown < MOST_MEMORY, "the client needed {grown} KiB");
}

fn shown(answer: &Answer) -> String {
    let mut text = String::new();
    for byte in answer.first.iter().take(400) {
        let _ = write!(text, "{}", byte.escape_ascii());
    }
    format!("{text} and then {:?}", answer.again.get(..answer.again.len().min(16)))
}

/// The most that this process ever had in memory, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
