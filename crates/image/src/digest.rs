//! SHA-256, as images name their parts by it.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{self, Read};
use std::rc::Rc;

use sha2::{Digest as _, Sha256};

use crate::error::{ImageError, shown};

/// A digest that is named somewhere: 64 digits of the one kind that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digest(String);

impl Digest {
    /// Reads `sha256:0123...`.
    pub(crate) fn parse(text: &str) -> Result<Self, ImageError> {
        let digits = text.strip_prefix("sha256:").unwrap_or("");
        let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        if digits.len() == 64 && digits.chars().all(is_hex) {
            return Ok(Self(digits.to_owned()));
        }
        let shown = shown(text.as_bytes());
        Err(ImageError::damaged(format!("`{shown}` is no digest: only sha256 is known")))
    }

    /// The digits alone: the name of a blob.
    pub(crate) fn digits(&self) -> &str {
        &self.0
    }

    /// As it is written elsewhere.
    pub(crate) fn to_text(&self) -> String {
        format!("sha256:{}", self.0)
    }
}

/// A stream whose bytes are summed up while they are read.
#[derive(Debug)]
pub(crate) struct Summed<R> {
    stream: R,
    sum: Sum,
}

/// The sum of what was read of a [`Summed`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Sum(Rc<RefCell<Sha256>>);

impl<R: Read> Summed<R> {
    pub(crate) fn new(stream: R) -> (Self, Sum) {
        let sum = Sum::default();
        (Self { stream, sum: sum.clone() }, sum)
    }
}

impl Sum {
    /// The digest of all that was read so far.
    pub(crate) fn digest(&self) -> Digest {
        let bytes = self.0.borrow().clone().finalize();
        let mut digits = String::with_capacity(64);
        for byte in bytes {
            let _ = write!(digits, "{byte:02x}");
        }
        Digest(digits)
    }
}

impl<R: Read> Read for Summed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(into)?;
        self.sum.0.borrow_mut().update(&into[..read]);
        Ok(read)
    }
}
