//! Reads `multipart/form-data` as it arrives.
//!
//! [`Parser`] does no I/O: it is fed with [`Parser::push`] and asked with [`Parser::next`] until
//! it needs more. It holds what arrived and was not asked for yet, and the little that may be the
//! beginning of a boundary; data of any length passes through.
//!
//! ```text
//! Preamble ──► Delimiter ──► Headers ──► Data ──► Delimiter ... ──► End
//! ```

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::memmem::Finder;

/// As long as the headers of one part may be. A path has at most 4096 bytes.
const LONGEST_HEADERS: usize = 16 << 10;

/// As long as a boundary may be. The standard says 70.
const LONGEST_BOUNDARY: usize = 200;

/// As many parts as one form may have.
const MOST_PARTS: usize = 100_000;

/// A form that cannot be read, with the reason.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

/// The next thing in a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A part begins.
    Part(Part),
    /// More of the part's content, never empty.
    Data(Bytes),
    /// The part is complete.
    PartEnd,
    /// The form is complete. What follows does not count.
    End,
    /// What arrived so far says no more.
    NeedMore,
}

/// What the headers of a part say about it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The name of the field.
    pub(super) name: Option<String>,
    /// The name of the file, exactly as it was sent.
    pub(super) filename: Option<String>,
}

/// Reads one form.
#[derive(Debug)]
pub(super) struct Parser {
    delimiter: Finder<'static>,
    arrived: BytesMut,
    state: State,
    parts: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Preamble,
    /// Right behind a delimiter.
    Delimiter,
    Headers,
    Data,
    End,
}

impl Parser {
    /// A parser for the form that a content type announces.
    pub(super) fn new(content_type: &str) -> Result<Self, Malformed> {
        let boundary = parameters(content_type)
            .find_map(|(name, value)| name.eq_ignore_ascii_case("boundary").then_some(value))
            .ok_or(Malformed("the content type names no boundary"))?;
        if boundary.is_empty() || boundary.len() > LONGEST_BOUNDARY {
            return Err(Malformed("the boundary has no sensible length"));
        }
        let delimiter = Finder::new(&format!("\r\n--{boundary}")).into_owned();
        // The first boundary has no line end before it when the body begins with it.
        Ok(Self { delimiter, arrived: BytesMut::from("\r\n"), state: State::Preamble, parts: 0 })
    }

    /// Adds what arrived.
    pub(super) fn push(&mut self, data: &[u8]) {
        if self.state != State::End {
            self.arrived.extend_from_slice(data);
        }
    }

    /// The next thing that what arrived says.
    pub(super) fn next(&mut self) -> Result<Event, Malformed> {
        match self.state {
            State::Preamble => match self.content(false) {
                Content::Ended => {
                    self.state = State::Delimiter;
                    self.next()
                }
                Content::Data(_) | Content::NeedMore => Ok(Event::NeedMore),
            },
            State::Delimiter => self.after_delimiter(),
            State::Headers => self.headers(),
            State::Data => Ok(match self.content(true) {
                Content::Data(data) => Event::Data(data),
                Content::Ended => {
                    self.state = State::Delimiter;
                    Event::PartEnd
                }
                Content::NeedMore => Event::NeedMore,
            }),
            State::End => Ok(Event::End),
        }
    }

    /// Takes content up to the next delimiter, and the delimiter itself once all before it was
    /// taken. Content that nobody keeps is only dropped.
    fn content(&mut self, keep: bool) -> Content {
        let length = self.delimiter.needle().len();
        let mut from = 0;
        let safe = loop {
            let Some(found) = self.delimiter.find(&self.arrived[from..]) else {
                // All but the tail, in which a delimiter may have begun.
                break self.arrived.len().saturating_sub(length - 1).max(from);
            };
            let at = from + found;
            match self.arrived.get(at + length) {
                // Only a line that ends here is a delimiter: another boundary may begin alike.
                Some(b'-' | b' ' | b'\t' | b'\r') if at == 0 || !keep => {
                    self.arrived.advance(at + length);
                    return Content::Ended;
                }
                Some(b'-' | b' ' | b'\t' | b'\r') | None => break at,
                Some(_) => from = at + length,
            }
        };
        if safe == 0 {
            return Content::NeedMore;
        }
        let content = self.arrived.split_to(safe);
        if keep { Content::Data(content.freeze()) } else { Content::NeedMore }
    }

    /// Reads the rest of a delimiter's line: `--` ends the form.
    fn after_delimiter(&mut self) -> Result<Event, Malformed> {
        if self.arrived.len() < 2 {
            return Ok(Event::NeedMore);
        }
        if self.arrived.starts_with(b"--") {
            self.state = State::End;
            self.arrived.clear();
            return Ok(Event::End);
        }
        let blanks = self.arrived.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match self.arrived[blanks..] {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] if blanks < LONGEST_BOUNDARY => return Ok(Event::NeedMore),
            _ => return Err(Malformed("a boundary is followed by something else on its line")),
        }
        self.arrived.advance(blanks);
        self.state = State::Headers;
        self.headers()
    }

    /// Reads the headers. The line end of the delimiter is still there, so that an empty line
    /// looks the same after headers and without any.
    fn headers(&mut self) -> Result<Event, Malformed> {
        let within = &self.arrived[..self.arrived.len().min(LONGEST_HEADERS)];
        let Some(end) = memchr::memmem::find(within, b"\r\n\r\n") else {
            return if self.arrived.len() < LONGEST_HEADERS {
                Ok(Event::NeedMore)
            } else {
                Err(Malformed("the headers of a part are too long"))
            };
        };
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return Err(Malformed("the form has too many parts"));
        }
        let headers = self.arrived.split_to(end);
        self.arrived.advance(4);
        let headers = str::from_utf8(&headers)
            .map_err(|_| Malformed("the headers of a part are not UTF-8"))?;
        self.state = State::Data;
        Ok(Event::Part(Part::read(headers)))
    }
}

/// What [`Parser::content`] found.
enum Content {
    Data(Bytes),
    Ended,
    NeedMore,
}

impl Part {
    fn read(headers: &str) -> Self {
        let mut part = Self::default();
        let disposition = headers.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        });
        for (name, value) in parameters(disposition.unwrap_or_default()) {
            if name.eq_ignore_ascii_case("name") {
                part.name = Some(value);
            } else if name.eq_ignore_ascii_case("filename") {
                part.filename = Some(value);
            }
        }
        part
    }
}

/// The parameters of a header such as `form-data; name="file"; filename="a b"`.
///
/// In quotes a backslash only escapes a quote or a backslash: some clients send names of files
/// with backslashes as they are.
fn parameters(header: &str) -> impl Iterator<Item = (&str, String)> {
    let mut rest = header.split_once(';').map_or("", |(_, rest)| rest);
    std::iter::from_fn(move || {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim_matches([' ', '\t', ';']);
        let after = after.trim_start();
        let Some(quoted) = after.strip_prefix('"') else {
            let (value, next) = after.split_once(';').unwrap_or((after, ""));
            rest = next;
            return Some((name, value.trim().to_owned()));
        };
        let mut value = String::new();
        let mut letters = quoted.char_indices().peekable();
        rest = "";
        while let Some((at, letter)) = letters.next() {
            match (letter, letters.peek()) {
                ('"', _) => {
                    rest = &quoted[at + 1..];
                    break;
                }
                ('\\', Some((_, escaped @ ('"' | '\\')))) => {
                    value.push(*escaped);
                    letters.next();
                }
                _ => value.push(letter),
            }
        }
        Some((name, value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parts with their content, or why there are none, when `body` arrives in the given pieces.
    fn read(boundary: &str, pieces: &[&[u8]]) -> Result<Vec<(Part, Vec<u8>)>, Malformed> {
        let mut parser = Parser::new(&format!("multipart/form-data; boundary=\"{boundary}\""))?;
        let mut parts = Vec::new();
        let mut pieces = pieces.iter();
        loop {
            match parser.next()? {
                Event::Part(part) => parts.push((part, Vec::new())),
                Event::Data(data) => {
                    assert!(!data.is_empty());
                    parts.last_mut().unwrap().1.extend_from_slice(&data);
                }
                Event::PartEnd => {}
                Event::End => return Ok(parts),
                Event::NeedMore => match pieces.next() {
                    Some(piece) => parser.push(piece),
                    None => return Err(Malformed("cut off")),
                },
            }
        }
    }

    fn one(disposition: &str) -> Part {
        let body = format!("--b\r\nContent-Disposition: {disposition}\r\n\r\nx\r\n--b--\r\n");
        read("b", &[body.as_bytes()]).unwrap().remove(0).0
    }

    #[test]
    fn names_of_files_are_kept_exactly() {
        for (sent, meant) in [
            (r#"form-data; name="file"; filename="a b.txt""#, "a b.txt"),
            ("form-data; name=file; filename=\"/home/😀 \u{202e}é\"", "/home/😀 \u{202e}é"),
            (r#"form-data; name="file"; filename="C:\dir\file""#, r"C:\dir\file"),
            (r#"form-data; name="file"; filename="a\"b\\c; d=e""#, r#"a"b\c; d=e"#),
            ("form-data; name=file;filename=plain; x=y", "plain"),
            (r#"form-data; filename="f"; name="file"; filename*=utf-8''other"#, "f"),
            (r#"form-data; name="file"; FileName="%22""#, "%22"),
            (r#"form-data; name="file"; filename="""#, ""),
        ] {
            let part = one(sent);
            assert_eq!(part.filename.as_deref(), Some(meant), "{sent}");
            assert_eq!(part.name.as_deref(), Some("file"), "{sent}");
        }
    }

    #[test]
    fn a_part_may_have_no_headers_no_name_and_no_content() {
        let body = b"preamble\r\n--b \t\r\n\r\n\r\n--b\r\nX: y\r\n\r\n\r\n--b--epilogue";
        let parts = read("b", &[body]).unwrap();
        assert_eq!(parts, [(Part::default(), vec![]), (Part::default(), vec![])]);
    }

    #[test]
    fn content_that_looks_like_a_boundary_is_content() {
        let content = b"\r\n--bx\r\n--\r\n-b\r\r\n--b.\n--b\r\n";
        let body = [b"--b\r\n\r\n", &content[..], b"\r\n--b--"].concat();
        assert_eq!(read("b", &[&body]).unwrap()[0].1, content);
    }

    #[test]
    fn forms_that_make_no_sense_are_refused() {
        for (body, reason) in [
            (&b""[..], "cut off"),
            (b"--b", "cut off"),
            (b"--b\r\n\r\ncontent", "cut off"),
            (b"--b\r\n\r\ncontent\r\n--b", "cut off"),
            (b"--b-x", "a boundary is followed by something else on its line"),
            (b"--b x\r\n", "a boundary is followed by something else on its line"),
            (b"--b\r\nX: \xff\r\n\r\n", "the headers of a part are not UTF-8"),
        ] {
            assert_eq!(read("b", &[body]), Err(Malformed(reason)), "{body:?}");
        }
        let long = [b"--b\r\nX: ".as_slice(), &[b'y'; LONGEST_HEADERS]].concat();
        assert_eq!(read("b", &[&long]), Err(Malformed("the headers of a part are too long")));
        let blanks = [b"--b".as_slice(), &[b' '; 1000]].concat();
        assert_ne!(read("b", &[&blanks]), Err(Malformed("cut off")));
    }

    #[test]
    fn a_boundary_is_needed_and_bounded() {
        for kind in ["multipart/form-data", "multipart/form-data; boundary=", "m/f; x=y"] {
            assert!(Parser::new(kind).is_err(), "{kind}");
        }
        assert!(Parser::new(&format!("m; boundary={}", "b".repeat(LONGEST_BOUNDARY + 1))).is_err());
        assert!(Parser::new(&format!("m; Boundary={}", "b".repeat(70))).is_ok());
    }

    #[test]
    fn no_more_is_held_than_may_be_a_boundary() {
        let mut parser = Parser::new("m; boundary=b").unwrap();
        parser.push(b"--b\r\n\r\n");
        assert!(matches!(parser.next(), Ok(Event::Part(_))));
        for _ in 0..100 {
            parser.push(&[b'\r'; 10_000]);
            while parser.next() != Ok(Event::NeedMore) {}
            assert!(parser.arrived.len() < 10);
        }
    }

    proptest! {
        #[test]
        fn every_form_is_read_back_however_it_is_cut(
            contents in prop::collection::vec("[-\r\nbx ]{0,40}", 0..4),
            cuts in prop::collection::vec(1_usize..9, 0..60),
        ) {
            let holds_boundary =
                |content: &String| format!("\r\n{content}\r\n").contains("\r\n--bb");
            prop_assume!(!contents.iter().any(holds_boundary));
            let mut body = String::new();
            for content in &contents {
                body += "--bb\r\nContent-Disposition: x; name=\"n\"\r\n\r\n";
                body += content;
                body += "\r\n";
            }
            body += "--bb--\r\n";
            let mut rest = body.as_bytes();
            let mut pieces = Vec::new();
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            let found = read("bb", &pieces).unwrap();
            let found: Vec<_> = found.into_iter().map(|(_, content)| content).collect();
            let sent: Vec<_> = contents.into_iter().map(String::into_bytes).collect();
            prop_assert_eq!(found, sent);
        }

        #[test]
        fn no_bytes_break_the_parser(body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read("b", &[b"--b\r\n", &body, b"\r\n--b--"]);
        }
    }
}
