//! Text as it comes and as it goes: UTF-8 in pieces, JSON that is ASCII, and times.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Makes text of bytes that come in pieces. A character that is cut in two waits for its rest;
/// what is no text is replaced.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    tail: Vec<u8>,
}

impl Decoder {
    /// The text of the next piece.
    pub(super) fn decode(&mut self, piece: &[u8]) -> String {
        if self.tail.is_empty() {
            let whole = piece.len() - incomplete(piece);
            self.tail.extend_from_slice(&piece[whole..]);
            return lossy(&piece[..whole]);
        }
        let mut joined = std::mem::take(&mut self.tail);
        joined.extend_from_slice(piece);
        let whole = joined.len() - incomplete(&joined);
        self.tail.extend_from_slice(&joined[whole..]);
        lossy(&joined[..whole])
    }

    /// What is left at the end: a character that never became whole.
    pub(super) fn finish(&mut self) -> String {
        lossy(&std::mem::take(&mut self.tail))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// As many bytes at the end as begin a character and do not end it.
fn incomplete(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let byte = bytes[bytes.len() - back];
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

/// A value as JSON in one line of ASCII. Clients split lines at characters that JSON allows in
/// its strings, so all but ASCII is escaped.
pub(super) fn json_line(value: &impl Serialize) -> Vec<u8> {
    // Nothing that is written here can fail to be JSON: maps have texts as keys.
    ascii(serde_json::to_vec(value).unwrap_or_default())
}

/// Appends a text as a JSON string in ASCII. For output, of which there may be much: what needs no
/// escape is found eight bytes at a time and copied as it is.
pub(super) fn put_string(text: &str, line: &mut Vec<u8>) {
    line.reserve(text.len() + 2);
    line.push(b'"');
    let mut rest = text;
    loop {
        let (plain, special) = rest.split_at(plain_length(rest));
        line.extend_from_slice(plain.as_bytes());
        let mut characters = special.chars();
        let Some(character) = characters.next() else { break };
        match character {
            '"' => line.extend_from_slice(b"\\\""),
            '\\' => line.extend_from_slice(b"\\\\"),
            '\n' => line.extend_from_slice(b"\\n"),
            '\r' => line.extend_from_slice(b"\\r"),
            '\t' => line.extend_from_slice(b"\\t"),
            character => escape(character, line),
        }
        rest = characters.as_str();
    }
    line.push(b'"');
}

/// As many bytes from the start as are ASCII and need no escape in JSON.
fn plain_length(text: &str) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let bytes = text.as_bytes();
    let (words, _) = bytes.as_chunks::<8>();
    // Each of these has the high bit of a byte set that is special, or of one after such a one.
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    let is_special = |word: u64| {
        let control = word.wrapping_sub(0x20 * ONES) & !word & HIGH;
        word & HIGH | control | has_zero(word ^ (0x22 * ONES)) | has_zero(word ^ (0x5c * ONES))
    };
    let plain = words.iter().take_while(|word| is_special(u64::from_le_bytes(**word)) == 0).count();
    let start = plain * 8;
    let special = |byte: &u8| !matches!(byte, 0x20..0x80) || matches!(byte, b'"' | b'\\');
    bytes[start..].iter().position(special).map_or(bytes.len(), |at| start + at)
}

/// JSON with nothing but ASCII in it, and in one line.
pub(super) fn ascii(json: Vec<u8>) -> Vec<u8> {
    let is_plain = |byte: &u8| (0x20..0x80).contains(byte);
    if json.iter().all(is_plain) {
        return json;
    }
    let mut plain = Vec::with_capacity(json.len() + json.len() / 8);
    let text = String::from_utf8_lossy(&json);
    let mut rest = text.as_ref();
    while let Some(at) = rest.bytes().position(|byte| !is_plain(&byte)) {
        let (before, from) = rest.split_at(at);
        plain.extend_from_slice(before.as_bytes());
        let mut characters = from.chars();
        match characters.next() {
            // Between values, where JSON allows it. In its strings it is escaped already.
            Some(character) if character.is_ascii() => plain.push(b' '),
            Some(character) => escape(character, &mut plain),
            None => {}
        }
        rest = characters.as_str();
    }
    plain.extend_from_slice(rest.as_bytes());
    plain
}

fn escape(character: char, plain: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for unit in character.encode_utf16(&mut [0; 2]) {
        plain.extend_from_slice(b"\\u");
        for shift in [12, 8, 4, 0] {
            plain.push(DIGITS[usize::from(*unit >> shift) & 15]);
        }
    }
}

/// The text up to so many characters, and how many it has.
pub(super) fn head(text: &str, most: u64) -> (&str, u64) {
    // As many characters as bytes at most: a short text needs no counting.
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let count = if text.is_ascii() { text.len() } else { text.chars().count() };
    if count <= most {
        return (text, count as u64);
    }
    let end = if text.is_ascii() {
        most
    } else {
        text.char_indices().nth(most).map_or(text.len(), |(at, _)| at)
    };
    (&text[..end], count as u64)
}

/// Now, as RFC 3339 in UTC with microseconds.
pub(super) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format_time(since.as_secs(), since.subsec_micros())
}

fn format_time(seconds: u64, micros: u32) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0, whose years end with the leap day.
    let days = days + 719_468;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day_of_month:02}T{:02}:{:02}:{:02}.{micros:06}Z",
        rest / 3_600,
        rest / 60 % 60,
        rest % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(format_time(0, 0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(format_time(951_827_696, 7), "2000-02-29T12:34:56.000007Z");
        assert_eq!(format_time(4_102_444_799, 999_999), "2099-12-31T23:59:59.999999Z");
    }

    #[test]
    fn a_line_is_ascii_and_means_the_same() {
        let text = "a\u{2028}b\u{85}😀\u{b}\n\u{7f}é";
        let line = json_line(&text);
        assert!(line.iter().all(|byte| (0x20..0x80).contains(byte)), "{line:?}");
        assert!(String::from_utf8(line.clone()).unwrap().contains("\\u2028b\\u0085\\ud83d\\ude00"));
        assert_eq!(serde_json::from_slice::<String>(&line).unwrap(), text);
        assert_eq!(ascii(b"{\n \"a\": 1\r\n}".to_vec()), b"{  \"a\": 1  }");
    }

    #[test]
    fn characters_are_counted_and_not_bytes() {
        assert_eq!(head("äöü", 2), ("äö", 3));
        assert_eq!(head("abc", 2), ("ab", 3));
        assert_eq!(head("äöü", 3), ("äöü", 3));
        assert_eq!(head("", 0), ("", 0));
    }

    proptest! {
        /// Output is written by hand: it means what was written, and it is the same line that
        /// everything else would be.
        #[test]
        fn a_string_is_what_serde_makes_of_it(text in "(.|[\\x00-\\x7f]){0,40}") {
            let mut line = Vec::new();
            put_string(&text, &mut line);
            prop_assert!(line.iter().all(|byte| (0x20..0x80).contains(byte)));
            prop_assert_eq!(serde_json::from_slice::<String>(&line).unwrap(), text);
        }

        /// In whatever pieces text comes, it is the same; what is none is replaced as in one.
        #[test]
        fn pieces_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..64),
                                text in ".{0,20}", cut in 0usize..80) {
            for bytes in [bytes, text.into_bytes()] {
                let cut = cut.min(bytes.len());
                let mut decoder = Decoder::default();
                let mut decoded = decoder.decode(&bytes[..cut]);
                decoded.push_str(&decoder.decode(&bytes[cut..]));
                decoded.push_str(&decoder.finish());
                if let Ok(text) = std::str::from_utf8(&bytes) {
                    prop_assert_eq!(decoded, text);
                }
            }
        }
    }
}
