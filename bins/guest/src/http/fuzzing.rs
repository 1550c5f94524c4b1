//! The doors to this folder's parsers for `fuzz/`.

use http::{HeaderMap, HeaderValue, header};

use super::multipart::{Event, Parser};
use super::range::{Version, Wanted, wanted};

/// Reads bytes as each of the parsers here would.
pub fn parsers(bytes: &[u8]) {
    query_and_range(bytes);
    multipart(bytes);
}

fn query_and_range(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for name in ["path", "username"] {
        let _ = super::query::parameter(Some(&text), name);
    }
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let names = [header::RANGE, header::IF_RANGE, header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE];
    let modified = std::time::UNIX_EPOCH;
    for name in names {
        for size in [0, 1, 1000, u64::MAX] {
            let file = Version { tag: "\"1-2-3\"".to_owned(), modified, size };
            let headers = HeaderMap::from_iter([(name.clone(), value.clone())]);
            if let Wanted::Part { start, length } = wanted(&headers, &file) {
                assert!(length > 0 && start.checked_add(length).is_some_and(|end| end <= size));
            }
        }
    }
}

/// The same bytes whole and in pieces have the same meaning.
fn multipart(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else { return };
    let whole = read(body, body.len().max(1));
    let pieces = read(body, usize::from(*first).max(1));
    assert_eq!(whole, pieces);
}

/// A part's name and its content.
type Read = (Option<String>, Vec<u8>);

/// The parts, and whether the form was complete.
fn read(body: &[u8], piece: usize) -> (Vec<Read>, bool) {
    let mut parts = Vec::new();
    let Ok(mut parser) = Parser::new("multipart/form-data; boundary=x") else {
        return (parts, false);
    };
    for piece in body.chunks(piece) {
        parser.push(piece);
        loop {
            match parser.next() {
                Ok(Event::NeedMore) => break,
                Ok(Event::Part(part)) => parts.push((part.name, Vec::new())),
                Ok(Event::Data(data)) => {
                    if let Some((_, content)) = parts.last_mut() {
                        content.extend_from_slice(&data);
                    }
                }
                Ok(Event::PartEnd) => {}
                Ok(Event::End) => return (parts, true),
                Err(_) => return (parts, false),
            }
        }
    }
    (parts, false)
}
