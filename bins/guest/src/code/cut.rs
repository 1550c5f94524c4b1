//! Keeps output within its limit: the head is told, all of it goes to a file.

use std::fmt::Write as _;
use std::sync::Arc;

use super::frame::Stream;
use super::spool::{Spool, Spools};
use super::text::{self, Decoder};

/// As much of the head as is held in memory, in bytes. A limit above it lets the file begin
/// earlier.
const HELD: usize = 256 << 10;

/// One stream of one execution.
#[derive(Debug)]
pub(super) struct Cut {
    decoder: Decoder,
    stream: Stream,
    /// In characters; none is without end.
    limit: Option<u64>,
    seen: u64,
    /// The head as long as it is not in a file.
    held: String,
    file: File,
    spools: Arc<Spools>,
    execution: String,
}

#[derive(Debug)]
enum File {
    NotYet,
    Open(Spool),
    /// There is none, or it has ended early, because of this.
    Failed(String),
}

/// What is to be told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    /// Text of the stream.
    pub(super) text: String,
    /// Something beside it.
    pub(super) note: Option<String>,
}

impl Cut {
    /// A stream of which nothing has come yet.
    pub(super) fn new(
        stream: Stream,
        limit: Option<u64>,
        spools: Arc<Spools>,
        execution: String,
    ) -> Self {
        Self {
            decoder: Decoder::default(),
            stream,
            limit: limit.filter(|limit| *limit > 0),
            seen: 0,
            held: String::new(),
            file: File::NotYet,
            spools,
            execution,
        }
    }

    /// Takes the next bytes.
    pub(super) async fn take(&mut self, bytes: &[u8]) -> Told {
        let text = self.decoder.decode(bytes);
        self.take_text(text).await
    }

    /// The end: what was left of a character, and how much was cut.
    pub(super) async fn finish(&mut self) -> Told {
        let rest = self.decoder.finish();
        let mut told = self.take_text(rest).await;
        let file = std::mem::replace(&mut self.file, File::NotYet);
        self.held = String::new();
        let seen = std::mem::take(&mut self.seen);
        let Some(limit) = self.limit.filter(|limit| seen > *limit) else {
            if let File::Open(spool) = file {
                spool.discard().await;
            }
            return told;
        };
        let place = match &file {
            File::Open(spool) => format!("all of it is in {}", spool.path().display()),
            File::Failed(why) => format!("the rest is lost: {why}"),
            File::NotYet => "the rest is lost".to_owned(),
        };
        let name = self.name();
        // Writing to a text does not fail.
        let _ = writeln!(told.text, "\n[{name} cut: {seen} characters, {limit} kept; {place}]");
        told
    }

    async fn take_text(&mut self, text: String) -> Told {
        let Some(limit) = self.limit else { return Told { text, note: None } };
        if text.is_empty() {
            return Told::default();
        }
        let left = limit.saturating_sub(self.seen);
        let (kept, count) = text::head(&text, left);
        let kept = kept.to_owned();
        let was_within = self.seen <= limit;
        self.seen += count;
        let crossed = was_within && self.seen > limit;
        let mut note = None;
        if matches!(self.file, File::NotYet) {
            self.held.push_str(&text);
            if self.seen > limit || self.held.len() > HELD {
                let held = std::mem::take(&mut self.held);
                self.begin().await;
                note = self.write(held).await;
            }
        } else {
            note = self.write(text).await;
        }
        if crossed {
            let name = self.name();
            let place = match &self.file {
                File::Open(spool) => format!("all of it goes to {}", spool.path().display()),
                File::Failed(why) => format!("the rest is lost: {why}"),
                File::NotYet => String::new(),
            };
            note = Some(format!("{name} is over its limit of {limit} characters; {place}"));
        }
        Told { text: kept, note }
    }

    async fn begin(&mut self) {
        let begun = Spool::begin(Arc::clone(&self.spools), self.execution.clone(), self.stream);
        self.file = begun.await.map_or_else(File::Failed, File::Open);
    }

    /// Writes to the file; a failure is told once.
    async fn write(&mut self, text: String) -> Option<String> {
        let File::Open(spool) = &mut self.file else { return None };
        let error = spool.write(text).await.err()?;
        let path = spool.path();
        let note = format!("{} ends early: {error}", path.display());
        self.file = File::Failed(format!("{error} (what was written is in {})", path.display()));
        Some(note)
    }

    fn name(&self) -> &'static str {
        match self.stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        }
    }
}

/// A text up to its limit, with a word on what is missing.
pub(super) fn cut_text(text: String, limit: Option<u64>) -> String {
    let Some(limit) = limit.filter(|limit| *limit > 0) else { return text };
    let (head, count) = text::head(&text, limit);
    if count <= limit {
        return text;
    }
    format!("{head}\n[cut: {count} characters, {limit} kept]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(limit: u64) -> (Cut, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let spools = Arc::new(Spools::new(folder.path().join("code")));
        (Cut::new(Stream::Stdout, Some(limit), spools, "ab".to_owned()), folder)
    }

    #[tokio::test]
    async fn the_head_is_told_and_all_is_in_the_file() {
        let (mut cut, folder) = cut(5);
        assert_eq!(cut.take("äöü".as_bytes()).await.text, "äöü");
        let told = cut.take(b"abcdef").await;
        assert_eq!(told.text, "ab");
        assert!(told.note.unwrap().contains("over its limit of 5"));
        assert_eq!(cut.take(b"gh").await, Told::default());
        let end = cut.finish().await.text;
        assert!(end.contains("11 characters, 5 kept; all of it is in"), "{end}");
        let text = std::fs::read_to_string(folder.path().join("code/ab/stdout.txt")).unwrap();
        assert_eq!(text, "äöüabcdefgh");
    }

    #[tokio::test]
    async fn what_fits_leaves_no_file() {
        let (mut cut, folder) = cut(10 << 20);
        for _ in 0..8 {
            cut.take(&vec![b'x'; 100_000]).await;
        }
        assert!(folder.path().join("code/ab/stdout.txt").exists());
        assert_eq!(cut.finish().await, Told::default());
        assert!(!folder.path().join("code/ab").exists());
    }

    #[test]
    fn a_text_is_cut_at_characters() {
        assert_eq!(cut_text("äöü".to_owned(), Some(2)), "äö\n[cut: 3 characters, 2 kept]");
        assert_eq!(cut_text("äöü".to_owned(), Some(3)), "äöü");
        assert_eq!(cut_text("äöü".to_owned(), Some(0)), "äöü");
    }
}
