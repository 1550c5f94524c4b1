//! What a kernel says: frames, as `kernels/README.md` describes them.
//!
//! A cell can write to its kernel's descriptors, so everything here is bounded and whatever
//! breaks the rules is an error. Output is passed on as it comes, in pieces; all else is gathered
//! until it is whole, and what is too large for that is passed over.

use bytes::{Bytes, BytesMut};

use super::room::{COMING, Full, Held};

/// The longest first line of a frame.
const LONGEST_LINE: usize = 200;

/// The longest payload that a frame may say it has.
const LARGEST_PAYLOAD: usize = 64 << 20;

/// The longest payload with forms of a value, or with an error, that is gathered.
pub(super) const LARGEST_BUNDLE: usize = 8 << 20;

/// The same of everything else.
const LARGEST_WORD: usize = 1 << 20;

/// Where text was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// A frame, or a piece of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Frame {
    /// It can run cells.
    Ready(Bytes),
    /// A piece of output.
    Output(Stream, Bytes),
    /// The cell's value, as text.
    Text(Bytes),
    /// The cell's value.
    Result(Bytes),
    /// Something that was shown.
    Display(Bytes),
    /// Clear what was shown.
    Clear,
    /// The cell failed.
    Error(Bytes),
    /// It asks for a line.
    Input(Bytes),
    /// The cell is over.
    Done(Done, Bytes),
    /// What could stand somewhere.
    Completions(Bytes),
    /// As much of descriptors 1 and 2 comes before the next frame.
    After { out: usize, err: usize },
    /// A frame of as many bytes that was passed over, being too large, by itself or with what
    /// other kernels are saying.
    TooLarge(usize),
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    Ok,
    Error,
    Interrupted,
}

/// What a kernel wrote is no frame.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Broken {
    /// The first line has no end where it should.
    #[error("it wrote a line that is longer than any frame's")]
    Line,
    /// The first line says nothing that is known.
    #[error("it wrote something that is no frame")]
    Word,
    /// The payload would be too long.
    #[error("it announced a frame that is larger than any may be")]
    Length,
}

/// Takes frames out of bytes.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// What was read and not yet looked at. Reading goes right into it.
    pub(super) buffer: BytesMut,
    state: State,
    /// The room that the payload has that is to come.
    held: Option<Held>,
}

#[derive(Debug, Default)]
enum State {
    /// A first line is to come.
    #[default]
    Line,
    /// As much of an output is to come.
    Output(Stream, usize),
    /// A payload is to come.
    Payload(Kind, usize),
    /// As much is to be passed over, of as much.
    Skip { left: usize, whole: usize },
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Ready,
    Text,
    Result,
    Display,
    Clear,
    Error,
    Input,
    Done(Done),
    Completions,
    After { out: usize, err: usize },
}

impl Parser {
    /// The next frame, if the bytes so far make one.
    pub(super) fn next(&mut self) -> Result<Option<Frame>, Broken> {
        loop {
            match self.state {
                State::Line => {
                    if !self.line()? {
                        return Ok(None);
                    }
                }
                State::Output(_, 0) => self.state = State::Line,
                State::Output(stream, left) => {
                    let piece = self.buffer.split_to(left.min(self.buffer.len())).freeze();
                    if piece.is_empty() {
                        return Ok(None);
                    }
                    self.state = State::Output(stream, left - piece.len());
                    return Ok(Some(Frame::Output(stream, piece)));
                }
                State::Payload(kind, length) => {
                    if self.buffer.len() < length {
                        return Ok(None);
                    }
                    self.state = State::Line;
                    self.held = None;
                    return Ok(Some(kind.whole(self.buffer.split_to(length).freeze())));
                }
                State::Skip { left: 0, whole } => {
                    self.state = State::Line;
                    return Ok(Some(Frame::TooLarge(whole)));
                }
                State::Skip { left, whole } => {
                    let passed = left.min(self.buffer.len());
                    if passed == 0 {
                        return Ok(None);
                    }
                    let _ = self.buffer.split_to(passed);
                    self.state = State::Skip { left: left - passed, whole };
                }
            }
        }
    }

    /// Takes a first line, if it is whole.
    fn line(&mut self) -> Result<bool, Broken> {
        let seen = &self.buffer[..self.buffer.len().min(LONGEST_LINE)];
        let Some(end) = memchr::memchr(b'\n', seen) else {
            return if seen.len() == LONGEST_LINE { Err(Broken::Line) } else { Ok(false) };
        };
        let line = self.buffer.split_to(end + 1);
        self.state = parse(&line[..end])?;
        if let State::Payload(kind, length) = self.state {
            match COMING.take(length) {
                Ok(held) => self.held = held,
                Err(Full) if kind.may_be_left_out() => {
                    self.state = State::Skip { left: length, whole: length };
                }
                Err(Full) => {}
            }
        }
        Ok(true)
    }
}

impl Kind {
    /// As much as is gathered of it.
    fn most(self) -> usize {
        match self {
            Self::Text | Self::Result | Self::Display | Self::Error => LARGEST_BUNDLE,
            _ => LARGEST_WORD,
        }
    }

    /// Whether a cell comes to its end without it.
    fn may_be_left_out(self) -> bool {
        !matches!(self, Self::Done(_) | Self::Ready)
    }

    fn whole(self, payload: Bytes) -> Frame {
        match self {
            Self::Ready => Frame::Ready(payload),
            Self::Text => Frame::Text(payload),
            Self::Result => Frame::Result(payload),
            Self::Display => Frame::Display(payload),
            Self::Clear => Frame::Clear,
            Self::Error => Frame::Error(payload),
            Self::Input => Frame::Input(payload),
            Self::Done(how) => Frame::Done(how, payload),
            Self::Completions => Frame::Completions(payload),
            Self::After { out, err } => Frame::After { out, err },
        }
    }
}

fn parse(line: &[u8]) -> Result<State, Broken> {
    let line = std::str::from_utf8(line).map_err(|_| Broken::Word)?;
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let number = |word: &str| word.parse::<usize>().map_err(|_| Broken::Word);
    let kind = match word() {
        "stdout" => return Ok(State::Output(Stream::Stdout, length(word())?)),
        "stderr" => return Ok(State::Output(Stream::Stderr, length(word())?)),
        "ready" => Kind::Ready,
        "text" => Kind::Text,
        "result" => Kind::Result,
        "display" => Kind::Display,
        "clear" => Kind::Clear,
        "error" => Kind::Error,
        "input" => Kind::Input,
        "completions" => Kind::Completions,
        "after" => Kind::After { out: number(word())?, err: number(word())? },
        "done" => Kind::Done(match word() {
            "ok" => Done::Ok,
            "error" => Done::Error,
            "interrupted" => Done::Interrupted,
            _ => return Err(Broken::Word),
        }),
        _ => return Err(Broken::Word),
    };
    let length = length(word())?;
    if length > kind.most() {
        // Without its answer a cell would never end, and a cell that does not is not ours to
        // pass over.
        return if kind.may_be_left_out() {
            Ok(State::Skip { left: length, whole: length })
        } else {
            Err(Broken::Length)
        };
    }
    Ok(State::Payload(kind, length))
}

fn length(word: &str) -> Result<usize, Broken> {
    let length = word.parse().map_err(|_| Broken::Word)?;
    if length > LARGEST_PAYLOAD { Err(Broken::Length) } else { Ok(length) }
}

/// A frame for a kernel: its first words and its payload.
pub(super) fn encode(words: &str, payload: &[&[u8]]) -> Bytes {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    let mut frame = BytesMut::with_capacity(words.len() + 24 + length);
    frame.extend_from_slice(format!("{words} {length}\n").as_bytes());
    for part in payload {
        frame.extend_from_slice(part);
    }
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(pieces: &[&[u8]]) -> Result<Vec<Frame>, Broken> {
        let mut parser = Parser::default();
        let mut frames = Vec::new();
        for piece in pieces {
            parser.buffer.extend_from_slice(piece);
            while let Some(frame) = parser.next()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let frames = all(&[b"ready 2\n{}after 3 4 0\nstdout 5\nhello", b"text 1\n2done ok 0\n"]);
        let expected = [
            Frame::Ready(Bytes::from_static(b"{}")),
            Frame::After { out: 3, err: 4 },
            Frame::Output(Stream::Stdout, Bytes::from_static(b"hello")),
            Frame::Text(Bytes::from_static(b"2")),
            Frame::Done(Done::Ok, Bytes::new()),
        ];
        assert_eq!(frames.unwrap(), expected);
    }

    #[test]
    fn output_is_passed_on_before_it_is_whole() {
        let frames = all(&[b"stderr 10\nabc"]).unwrap();
        assert_eq!(frames, [Frame::Output(Stream::Stderr, Bytes::from_static(b"abc"))]);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        assert_eq!(all(&[b"hello 3\n"]), Err(Broken::Word));
        assert_eq!(all(&[b"done maybe 0\n"]), Err(Broken::Word));
        assert_eq!(all(&[b"stdout -1\n"]), Err(Broken::Word));
        assert_eq!(all(&[b"\n"]), Err(Broken::Word));
        assert_eq!(all(&[b"stdout 99999999999\n"]), Err(Broken::Length));
        assert_eq!(all(&[&[b'x'; 200]]), Err(Broken::Line));
    }

    #[test]
    fn a_value_that_is_too_large_is_passed_over_and_told() {
        let length = LARGEST_BUNDLE + 1;
        let head = format!("result {length}\n");
        let frames = all(&[head.as_bytes(), &vec![b' '; length], b"done ok 0\n"]).unwrap();
        assert_eq!(frames, [Frame::TooLarge(length), Frame::Done(Done::Ok, Bytes::new())]);
    }

    proptest! {
        /// In whatever pieces frames arrive: they are the same, and output is the same bytes.
        #[test]
        fn pieces_do_not_matter(cuts in prop::collection::vec(0usize..60, 0..8)) {
            let whole = b"stdout 7\nabc\ndefdisplay 2\n{}done error 0\nclear 0\nstderr 0\n";
            let mut cuts = cuts;
            cuts.extend([0, whole.len()]);
            for cut in &mut cuts {
                *cut = (*cut).min(whole.len());
            }
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|pair| &whole[pair[0]..pair[1]]).collect();
            let mut text = Vec::new();
            let mut others = Vec::new();
            for frame in all(&pieces).unwrap() {
                match frame {
                    Frame::Output(Stream::Stdout, piece) => text.extend_from_slice(&piece),
                    other => others.push(other),
                }
            }
            prop_assert_eq!(text, b"abc\ndef");
            prop_assert_eq!(others.len(), 3);
        }
    }
}
