//! One thing in an archive, and the names that are acceptable.

use crate::bounds::Bounds;
use crate::error::ImageError;

/// The longest name of one file, as the kernel has it.
const LONGEST_NAME: usize = 255;

/// The longest path and the longest target of a link, as the kernel has them.
pub(crate) const LONGEST_PATH: usize = 4096;

/// One thing in an archive. What is in a file comes behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) path: Path,
    pub(crate) kind: Kind,
    /// Permissions and the three bits above them.
    pub(crate) mode: u32,
    pub(crate) user: u64,
    pub(crate) group: u64,
    /// Seconds since 1970.
    pub(crate) modified: i64,
    pub(crate) attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    File {
        size: u64,
    },
    Folder,
    /// With what it says, which is not looked at.
    Link {
        target: Vec<u8>,
    },
    HardLink {
        target: Path,
    },
    Pipe,
    /// A character device with the numbers 0 and 0: overlays mark with it what is removed.
    Whiteout,
    Device,
    Unknown,
}

/// A path below the root: names that are neither empty nor `.` nor `..`. Without any, it is the
/// root itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Path {
    bytes: Vec<u8>,
}

impl Path {
    /// The path that an archive names. A `/` in front is left out; `..` is refused, for nobody
    /// who means well writes it.
    pub(crate) fn parse(text: &[u8], bounds: &Bounds) -> Result<Self, ImageError> {
        let refused = |reason: String| Err(ImageError::refused(text, reason));
        if text.len() > LONGEST_PATH {
            return refused(format!("a path has at most {LONGEST_PATH} bytes"));
        }
        if text.contains(&0) {
            return refused("its name has a zero byte".to_owned());
        }
        let mut bytes = Vec::with_capacity(text.len());
        let mut depth = 0;
        for name in text.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => return refused("`..` may be in no path of an archive".to_owned()),
                name if name.len() > LONGEST_NAME => {
                    return refused(format!("a name has at most {LONGEST_NAME} bytes"));
                }
                name => {
                    if !bytes.is_empty() {
                        bytes.push(b'/');
                    }
                    bytes.extend_from_slice(name);
                    depth += 1;
                }
            }
        }
        if depth > bounds.depth {
            let most = bounds.depth as u64;
            return Err(ImageError::TooMuch { what: "folders within folders", most });
        }
        Ok(Self { bytes })
    }

    /// One that we wrote ourselves.
    pub(crate) fn own(text: &str) -> Self {
        Self { bytes: text.as_bytes().to_vec() }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The path of the folder that it is in, and its name there; none for the root.
    pub(crate) fn split(&self) -> Option<(Self, &[u8])> {
        if self.is_root() {
            return None;
        }
        Some(match self.bytes.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (Self { bytes: self.bytes[..slash].to_vec() }, &self.bytes[slash + 1..]),
            None => (Self::default(), &self.bytes),
        })
    }

    /// Its names, from the root on.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Something in this folder.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        let mut bytes = self.bytes.clone();
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self { bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &[u8]) -> Result<Path, ImageError> {
        Path::parse(text, &Bounds::default())
    }

    #[test]
    fn a_path_is_made_relative_and_plain() {
        for (text, path) in [
            ("usr/bin/env", "usr/bin/env"),
            ("./usr//bin/./env/", "usr/bin/env"),
            ("///etc/passwd", "etc/passwd"),
            ("./", ""),
            ("/", ""),
            ("...", "..."),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), Path::own(path), "{text}");
        }
    }

    #[test]
    fn a_path_that_leads_out_or_cannot_be_is_refused() {
        let long_name = "x".repeat(256);
        let long_path = "x/".repeat(2049);
        let deep = "x/".repeat(129);
        for text in
            ["..", "../etc", "a/../../b", "a/..", "a\0b", &long_name, &long_path, &deep, "/.."]
        {
            parse(text.as_bytes()).unwrap_err();
        }
    }
}
