//! Tells a client that it was refused, in the words of what it speaks, and soon.

use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::first::{First, classify};

/// How long a client may take to say what it speaks. Those whose server speaks first say nothing.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long the answer may take to be fetched.
const FAREWELL: Duration = Duration::from_millis(500);

/// What became of a connection that is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The rules refuse it.
    Refused,
    /// It was allowed, and could not be made.
    Failed,
}

/// Answers a client that gets no connection, and closes. `said` is what it has said already.
pub(crate) async fn refuse(mut stream: TcpStream, mut said: Vec<u8>, why: Why, text: &str) {
    let deadline = sleep(PATIENCE);
    tokio::pin!(deadline);
    let first = loop {
        let first = classify(&said);
        if first != First::Undecided || said.len() > 4096 {
            break first;
        }
        tokio::select! {
            read = stream.read_buf(&mut said) => if !matches!(read, Ok(1..)) { break First::Other },
            () = &mut deadline => break First::Other,
        }
    };
    let answer = match first {
        First::Tls => alert(why),
        First::Http => http(why, text),
        _ => {
            reset(&stream);
            return;
        }
    };
    let farewell = async {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        // What is unread when a connection is closed takes the answer with it.
        let mut rest = [0; 4096];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    // The client may leave at any time.
    let _ = timeout(FAREWELL, farewell).await;
}

/// Closes so that the client sees a reset.
pub(crate) fn reset(stream: &TcpStream) {
    let _ = sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}

/// A fatal alert in TLS: access denied, or an error of ours.
fn alert(why: Why) -> Vec<u8> {
    let kind = if why == Why::Refused { 49 } else { 80 };
    vec![21, 3, 3, 0, 2, 2, kind]
}

fn http(why: Why, text: &str) -> Vec<u8> {
    let status = if why == Why::Refused { "403 Forbidden" } else { "502 Bad Gateway" };
    let length = text.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{text}"
    )
    .into_bytes()
}
