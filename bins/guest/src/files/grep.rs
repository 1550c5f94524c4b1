//! Finds lines in files.
//!
//! Files that are binary (a NUL byte near their beginning) or very large are passed over, and so
//! is whatever cannot be read. A line is looked at as far as [`LONGEST_LINE`], so that no line
//! takes the guest's memory.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use guest_proto::soma::guest::v1::{GrepMatch, GrepResponse};
use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};
use rustix::fs::{FileType, Mode, OFlags};

use super::error::FileError;
use super::glob::{self, MOST_TEXT};
use super::pattern::Patterns;
use super::walk::{self, Search};

/// As many lines as are told, unless asked otherwise, and at most.
const USUAL_LIMIT: u32 = 1000;
const LARGEST_LIMIT: u32 = 10_000;

/// The largest file that is searched.
const LARGEST_FILE: u64 = 64 << 20;

/// The beginning of a file in which a NUL byte says that it is no text; also what is read at once.
const BEGINNING: usize = 8 << 10;

/// As much of a line as is looked at.
const LONGEST_LINE: usize = 1 << 20;

/// As much of a line as is told.
const LONGEST_CONTENT: usize = 4 << 10;

/// The longest expression, and the most memory for it.
const LONGEST_PATTERN: usize = 4 << 10;
const LARGEST_PROGRAM: usize = 1 << 20;

/// Lines between two looks at the clock.
const LINES_BETWEEN: u32 = 64;

const READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// What is looked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) pattern: String,
    pub(crate) include: Option<String>,
    pub(crate) exclude: Vec<String>,
    pub(crate) limit: Option<u32>,
}

/// Finds lines in the file `path`, or below the folder `path`; a link there is followed.
pub(crate) fn grep(path: &Path, wanted: &Wanted) -> Result<GrepResponse, FileError> {
    let search = Search {
        wanted: match &wanted.include {
            Some(include) => Patterns::anywhere([include.as_str()])?,
            None => Patterns::everything(),
        },
        excluded: Patterns::anywhere(wanted.exclude.iter().map(String::as_str))?,
        deadline: Instant::now() + walk::LONGEST,
    };
    let mut lines = Lines {
        expression: compile(&wanted.pattern)?,
        deadline: search.deadline,
        most: glob::limit(wanted.limit, USUAL_LIMIT, LARGEST_LIMIT)?,
        text: 0,
        found: Vec::new(),
    };
    let failed = |errno| FileError::from_errno(errno, path);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&place).map_err(failed)?;
    // By the descriptor's own name: the path may stand for a pipe by now.
    let open = |more| {
        let name = format!("/proc/self/fd/{}", place.as_raw_fd());
        rustix::fs::open(name, READ | more, Mode::empty()).map_err(failed)
    };
    let truncated = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let top = open(OFlags::DIRECTORY)?;
            let walked = walk::walk(top, &search, |found| {
                if found.kind != FileType::RegularFile {
                    return ControlFlow::Continue(());
                }
                let flags = READ | OFlags::NOFOLLOW;
                let Ok(file) = rustix::fs::openat(found.folder, found.name, flags, Mode::empty())
                else {
                    return ControlFlow::Continue(());
                };
                lines.search(file, || path.join(found.path).to_string_lossy().into_owned())
            });
            walked.map_err(failed)?
        }
        FileType::RegularFile => {
            let shown = || path.to_string_lossy().into_owned();
            lines.search(open(OFlags::empty())?, shown).is_break()
        }
        _ => {
            return Err(FileError::invalid(format!(
                "path '{}' is neither a file nor a directory",
                path.display()
            )));
        }
    };
    Ok(GrepResponse { matches: lines.found, truncated, ..GrepResponse::default() })
}

/// What a line has to hold.
enum Expression {
    /// This text: searched for without an expression, which takes a tenth of the time.
    Text(Box<Finder<'static>>),
    Regular(Regex),
}

impl Expression {
    fn is_in(&self, line: &[u8]) -> bool {
        match self {
            Self::Text(text) => text.find(line).is_some(),
            Self::Regular(regular) => regular.is_match(line),
        }
    }
}

fn compile(pattern: &str) -> Result<Expression, FileError> {
    if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
        let message = format!("a regular expression has 1 to {LONGEST_PATTERN} bytes");
        return Err(FileError::invalid(message));
    }
    if regex::escape(pattern) == pattern {
        return Ok(Expression::Text(Box::new(Finder::new(pattern).into_owned())));
    }
    let compiled = RegexBuilder::new(pattern).size_limit(LARGEST_PROGRAM).build();
    compiled.map(Expression::Regular).map_err(|error| {
        // The library draws a picture of several lines, of which the last one is the reason.
        let words = error.to_string();
        let reason = words.lines().last().unwrap_or_default().trim_start_matches("error: ");
        FileError::invalid(format!("the regular expression cannot be used: {reason}"))
    })
}

/// Lines that are found.
struct Lines {
    expression: Expression,
    deadline: Instant,
    most: usize,
    text: usize,
    found: Vec<GrepMatch>,
}

impl Lines {
    /// Searches a file; says when nothing more is to be searched.
    fn search(&mut self, file: OwnedFd, path: impl Fn() -> String) -> ControlFlow<()> {
        if !is_searched(file.as_fd()) {
            return ControlFlow::Continue(());
        }
        // A file of /proc tells no length, and one on a disk may grow meanwhile.
        let file = std::io::Read::take(File::from(file), LARGEST_FILE);
        let mut reader = BufReader::with_capacity(BEGINNING, file);
        let beginning = reader.fill_buf();
        if beginning.is_ok_and(|bytes| memchr::memchr(0, bytes).is_some()) {
            return ControlFlow::Continue(());
        }
        let (mut line, mut number) = (Vec::new(), 0_u32);
        while read_line(&mut reader, &mut line) {
            number = number.saturating_add(1);
            if number.is_multiple_of(LINES_BETWEEN) && Instant::now() >= self.deadline {
                return ControlFlow::Break(());
            }
            if self.expression.is_in(&line) {
                if self.found.len() >= self.most || self.text > MOST_TEXT {
                    return ControlFlow::Break(());
                }
                let (path, content) = (path(), told(&line));
                self.text += path.len() + content.len();
                let found = GrepMatch { path, line: number, content, ..GrepMatch::default() };
                self.found.push(found);
            }
        }
        ControlFlow::Continue(())
    }
}

fn is_searched(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            && u64::try_from(stat.st_size).is_ok_and(|size| size <= LARGEST_FILE)
    })
}

/// Reads the next line without its end, no more of it than is looked at; says no at the end of
/// the file.
fn read_line(reader: &mut impl std::io::BufRead, line: &mut Vec<u8>) -> bool {
    line.clear();
    let mut has_begun = false;
    loop {
        let bytes = match reader.fill_buf() {
            Ok(bytes) if !bytes.is_empty() => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            // What cannot be read to its end is searched as far as it can be.
            _ => break,
        };
        has_begun = true;
        let end = memchr::memchr(b'\n', bytes);
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        let wanted = LONGEST_LINE.saturating_sub(line.len()).min(piece.len());
        line.extend_from_slice(&piece[..wanted]);
        let used = end.map_or(bytes.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            break;
        }
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    has_begun
}

/// The line as it is told.
fn told(line: &[u8]) -> String {
    let cut = &line[..line.len().min(LONGEST_CONTENT)];
    let mut content = String::from_utf8_lossy(cut).into_owned();
    if cut.len() < line.len() {
        // A letter that was cut in the middle is left out. Stray bytes are shown by three.
        while content.ends_with('\u{fffd}') || content.len() > LONGEST_CONTENT {
            content.pop();
        }
    }
    content
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn lines_are_read_however_they_end_and_long_ones_are_cut() {
        let long = "x".repeat(LONGEST_LINE + 100_000);
        let text = format!("one\ntwo\r\n\n{long}\nlast");
        let mut reader = BufReader::with_capacity(BEGINNING, Cursor::new(text));
        let mut line = Vec::new();
        for expected in ["one", "two", "", &long[..LONGEST_LINE], "last"] {
            assert!(read_line(&mut reader, &mut line));
            assert!(line == expected.as_bytes());
        }
        assert!(!read_line(&mut reader, &mut line));
    }

    #[test]
    fn what_is_told_is_text_and_short() {
        assert_eq!(told(b"a\xffb"), "a\u{fffd}b");
        let cut = told("é".repeat(3000).as_bytes());
        assert_eq!(cut, "é".repeat(2048));
        let mut odd = b"x".to_vec();
        odd.extend("é".repeat(3000).bytes());
        assert_eq!(told(&odd).len(), LONGEST_CONTENT - 1);
        assert!(told(&[0xff; 5000]).len() <= LONGEST_CONTENT);
    }

    #[test]
    fn an_expression_that_makes_no_sense_or_is_too_large_is_refused() {
        for (pattern, reason) in [("(a", "unclosed group"), ("", "1 to"), ("a{1000}{1000}", "size")]
        {
            let error = compile(pattern).err().unwrap();
            assert!(error.message.contains(reason), "{pattern}: {error}");
        }
    }
}
