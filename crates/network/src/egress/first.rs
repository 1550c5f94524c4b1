//! Tells from the first bytes that a client sends what it speaks.

/// What a connection speaks, as far as its first bytes say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum First {
    /// TLS, or the older SSL.
    Tls,
    /// HTTP/1, or what begins as it does.
    Http,
    /// HTTP/2 without TLS, by prior knowledge.
    Http2,
    /// Something else.
    Other,
    /// It takes more bytes to say. They are not to be passed on before.
    Undecided,
}

/// A first line longer than this is none of HTTP's that we would read.
pub const LONGEST_LINE: usize = 16 * 1024;

const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n";
/// What begins so is HTTP, however the line goes on; servers take more than the standard allows.
const METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];

/// What some first bytes are the beginning of.
///
/// HTTP is told by its first line, since other protocols begin with a word and a space too, and
/// some servers skip empty lines before it. A line of which more may come decides nothing: what is
/// decided holds whatever follows, so that nobody can change it by sending in pieces.
pub fn classify(bytes: &[u8]) -> First {
    let skipped = bytes.iter().take_while(|byte| b"\r\n".contains(byte)).count();
    let text = &bytes[skipped..];
    match text {
        // Nobody sends so many empty lines; what reads HTTP will say so.
        [] if skipped > LONGEST_LINE => return First::Http,
        [] => return First::Undecided,
        // Any record of TLS; only a hello may be the first.
        // And the hello of SSL 2, in which no name can be said.
        [20..=24 | 0x80..=0xff] | [0x80..=0xff, _] if skipped == 0 => return First::Undecided,
        [20..=24, 3, ..] | [0x80..=0xff, _, 1, ..] if skipped == 0 => return First::Tls,
        _ => {}
    }
    if HTTP2.starts_with(&text[..text.len().min(HTTP2.len())]) {
        return if text.len() < HTTP2.len() { First::Undecided } else { First::Http2 };
    }
    let method = text.iter().take_while(|byte| is_of_token(**byte)).count();
    match text.get(method) {
        _ if method == 0 => return First::Other,
        None if text.len() > LONGEST_LINE => return First::Http,
        None => return First::Undecided,
        Some(b' ' | b'\t') => {}
        Some(_) => return First::Other,
    }
    if METHODS.iter().any(|known| known.eq_ignore_ascii_case(&text[..method])) {
        return First::Http;
    }
    match memchr::memchr2(b'\n', 0, text) {
        // No server reads over a zero in this line.
        Some(end) if text[end] == 0 => First::Other,
        Some(end) if has_version(&text[..end]) => First::Http,
        Some(_) => First::Other,
        // So long a line is refused as the HTTP that it may be.
        None if text.len() > LONGEST_LINE => First::Http,
        None => First::Undecided,
    }
}

/// Whether a line names a version of HTTP at its end, or nearly so.
fn has_version(line: &[u8]) -> bool {
    memchr::memmem::find(&line.to_ascii_lowercase(), b"http/").is_some()
}

fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Just, any};

    #[test]
    fn protocols_are_told_apart() {
        for (bytes, first) in [
            (&b"\x16\x03\x01\x02\x00"[..], First::Tls),
            (b"\x15\x03\x01\x00\x02", First::Tls),
            (b"\x80\x2e\x01\x03\x01", First::Tls),
            (b"GET / HTTP/1.1\r\n", First::Http),
            (b"GET /old\r\n", First::Http),
            (b"\r\n\r\nGET / HTTP/1.1\r\n", First::Http),
            (b"MADE-UP /x HTTP/1.1\r\n", First::Http),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", First::Http2),
            (b"EHLO example.com\r\n", First::Other),
            (b"SSH-2.0-OpenSSH_9.2 Debian-2\r\n", First::Other),
            (b"*1\r\n$4\r\nPING\r\n", First::Other),
            (b"\x00\x00\x00\x08\x04\xd2\x16\x2f", First::Other),
            (b"\x16", First::Undecided),
            (b"", First::Undecided),
            (b"\r\n", First::Undecided),
            (b"GE", First::Undecided),
            (b"PRI", First::Undecided),
            (b"EHLO exam", First::Undecided),
        ] {
            assert_eq!(classify(bytes), first, "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    proptest::proptest! {
        #[test]
        fn a_decision_stands_whatever_follows(
            bytes in proptest::collection::vec(
                proptest::prop_oneof![
                    Just(b"\r\n".to_vec()), Just(b"GET".to_vec()), Just(b"FOO ".to_vec()),
                    Just(b"PRI * ".to_vec()), Just(b"HTTP/2.0".to_vec()), Just(b" HTTP/1.1".to_vec()),
                    Just(vec![0x16, 3, 1]), Just(vec![0]), Just(vec![0x80]), Just(vec![b'a'; 100]),
                    proptest::collection::vec(any::<u8>(), 0..4),
                ],
                0..8,
            )
        ) {
            let bytes = bytes.concat();
            let mut decided = First::Undecided;
            for length in 0..=bytes.len() {
                let first = classify(&bytes[..length]);
                proptest::prop_assert!(decided == First::Undecided || decided == first);
                decided = first;
            }
        }
    }
}
