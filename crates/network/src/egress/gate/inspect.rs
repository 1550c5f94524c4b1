//! Looks at what a client says first, and decides whether it fits where it is connected to.
//!
//! What the server says meanwhile is passed on, since in some protocols it speaks first. What the
//! client says is not, until it is decided.

use std::io;
use std::sync::atomic::Ordering;

use domain::{NetworkPolicy, NetworkProtocol};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::egress::first::{First, classify};
use crate::egress::hello::{self, ClientHello, Hello};
use crate::egress::judge::{self, Verdict};
use crate::egress::relay::Counts;

/// What a client began with. `said` is everything that it has said so far.
#[derive(Debug)]
pub(super) enum Inspected {
    /// TLS, for a name that fits.
    Tls { said: Vec<u8>, hello: ClientHello },
    /// HTTP, of which every request is yet to be looked at.
    Http { said: Vec<u8> },
    /// Something that names nobody.
    Other { said: Vec<u8> },
    /// What may not pass.
    Refused { said: Vec<u8>, protocol: NetworkProtocol, verdict: Verdict },
}

/// Waits for what a client begins with.
pub(super) async fn inspect(
    client: &mut TcpStream,
    server: &mut TcpStream,
    policy: &NetworkPolicy,
    name: Option<&str>,
    counts: &Counts,
) -> io::Result<Inspected> {
    let (mut said, mut answer) = (Vec::new(), [0; 2048]);
    let (mut is_open, mut is_client_open, mut has_greeted) = (true, true, false);
    loop {
        if let Some(decided) = decide(&mut said, !is_client_open, policy, name) {
            return Ok(decided);
        }
        // No server of HTTP speaks before it is asked. So a client that begins with a word, and
        // whose server has greeted it, may be waiting for an answer to that word.
        if has_greeted && !said.is_empty() && classify(&said) == First::Undecided {
            return Ok(Inspected::Other { said });
        }
        tokio::select! {
            read = client.read_buf(&mut said) => if read? == 0 { is_client_open = false },
            read = server.read(&mut answer), if is_open => match read? {
                0 => {
                    is_open = false;
                    client.shutdown().await?;
                }
                length => {
                    has_greeted |= said.is_empty();
                    client.write_all(&answer[..length]).await?;
                    let length = u64::try_from(length).unwrap_or(0);
                    counts.received.fetch_add(length, Ordering::Relaxed);
                }
            },
        }
    }
}

/// What the bytes are, once they say it.
fn decide(
    said: &mut Vec<u8>,
    is_all: bool,
    policy: &NetworkPolicy,
    name: Option<&str>,
) -> Option<Inspected> {
    let refused = |said: &mut Vec<u8>, protocol, verdict| {
        Some(Inspected::Refused { said: std::mem::take(said), protocol, verdict })
    };
    match classify(said) {
        First::Undecided if !is_all => None,
        First::Undecided | First::Other => Some(Inspected::Other { said: std::mem::take(said) }),
        First::Http => Some(Inspected::Http { said: std::mem::take(said) }),
        First::Http2 => {
            let detail = "HTTP/2 without TLS is not passed on; speak HTTP/1.1 or TLS";
            refused(said, NetworkProtocol::Http, Verdict::refused("plain HTTP/2", detail))
        }
        First::Tls => match hello::read(said) {
            Hello::Part if !is_all => None,
            Hello::Whole(hello) => match judge_hello(policy, name, &hello) {
                verdict if verdict.allowed => {
                    Some(Inspected::Tls { said: std::mem::take(said), hello })
                }
                verdict => refused(said, NetworkProtocol::Tls, verdict),
            },
            Hello::Part | Hello::Wrong => {
                let detail = "what begins as TLS is no hello of a client";
                refused(said, NetworkProtocol::Tls, Verdict::refused("no hello", detail))
            }
        },
    }
}

/// Whether a client wants whom it is connected to.
fn judge_hello(policy: &NetworkPolicy, name: Option<&str>, hello: &ClientHello) -> Verdict {
    if !judge::is_strict(policy) {
        // It is looked at for a transform, and other names are as good.
        return Verdict::allowed("any name");
    }
    let is_changed = |name: &str| policy.transforms.iter().any(|it| it.domain.matches(name));
    let is_ended_here = name.is_some_and(is_changed);
    if hello.has_encrypted_hello && !is_ended_here {
        let detail = "the client encrypts whom it wants (ECH); switch that off in it";
        return Verdict::refused("encrypted name", detail);
    }
    match (&hello.server_name, name) {
        (Some(spoken), _) => judge::spoken(policy, name, spoken),
        (None, Some(_)) => {
            Verdict::refused("no server name", "the client does not say whom it wants (SNI)")
        }
        (None, None) => Verdict::allowed("no name"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> NetworkPolicy {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_hello_that_hides_its_name_passes_only_where_names_do_not_matter() {
        let hello = ClientHello {
            server_name: Some("a.example".to_owned()),
            has_encrypted_hello: true,
            ..ClientHello::default()
        };
        let rule = |policy: &NetworkPolicy| judge_hello(policy, Some("a.example"), &hello).rule;
        for strict in [
            r#"{"mode":"custom","allow_domains":["a.example"]}"#,
            r#"{"mode":"allow-all","block_domains":["b.example"]}"#,
        ] {
            assert_eq!(rule(&policy(strict)), "encrypted name");
        }
        assert_eq!(rule(&policy(r#"{"mode":"allow-all"}"#)), "any name");
        // Where TLS is ended here, what is encrypted for another cannot be read by anybody.
        let ended = r#"{"mode":"custom","transforms":[{"domain":"a.example"}]}"#;
        assert_eq!(rule(&policy(ended)), "same name");
    }

    #[test]
    fn on_a_connection_by_address_no_blocked_name_is_spoken() {
        let policy = policy(r#"{"mode":"allow-all","block_domains":["*.evil.example"]}"#);
        let hello = |name: Option<&str>| ClientHello {
            server_name: name.map(str::to_owned),
            ..ClientHello::default()
        };
        assert!(!judge_hello(&policy, None, &hello(Some("x.evil.example"))).allowed);
        assert!(judge_hello(&policy, None, &hello(Some("good.example"))).allowed);
        assert!(judge_hello(&policy, None, &hello(None)).allowed);
        assert!(!judge_hello(&policy, Some("good.example"), &hello(None)).allowed);
    }
}
