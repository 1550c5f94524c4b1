//! Which of the places is in a sandbox.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In a sandbox.
    Sandbox {
        /// Its id, its name, or the beginning of either.
        which: String,
        /// Where in it; empty for the user's home.
        path: Vec<u8>,
    },
    /// A path on this machine.
    Here(PathBuf),
    /// Standard input or output.
    Stream,
}

impl Place {
    /// Reads a place as it was typed. Names of files are bytes, those of sandboxes are text.
    pub(super) fn parse(typed: OsString) -> Result<Self, String> {
        let bytes = typed.as_bytes();
        if bytes == b"-" {
            return Ok(Self::Stream);
        }
        if bytes.is_empty() {
            return Err("a place has a name".to_owned());
        }
        let colon = bytes.iter().position(|byte| *byte == b':');
        match colon.map(|colon| (&bytes[..colon], &bytes[colon + 1..])) {
            // No sandbox is called like this, and many a file is.
            Some((which, _)) if which.contains(&b'/') || which.starts_with(b".") => {}
            Some((b"", _)) => return Err("there is no sandbox without a name".to_owned()),
            Some((_, path)) if path.contains(&0) => {
                return Err("no path has a NUL in it".to_owned());
            }
            Some((which, path)) => {
                let which = str::from_utf8(which).map_err(|_| "no sandbox is called so")?;
                return Ok(Self::Sandbox { which: which.to_owned(), path: path.to_owned() });
            }
            None => {}
        }
        Ok(Self::Here(PathBuf::from(typed)))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_colon_says_that_it_is_in_a_sandbox_unless_a_slash_comes_first() {
        let parse = |typed: &[u8]| Place::parse(OsStr::from_bytes(typed).to_owned());
        let sandbox = |which: &str, path: &[u8]| {
            Ok(Place::Sandbox { which: which.to_owned(), path: path.to_owned() })
        };
        assert_eq!(parse(b"box:/etc"), sandbox("box", b"/etc"));
        assert_eq!(parse(b"box:"), sandbox("box", b""));
        assert_eq!(parse(b"box:a:b"), sandbox("box", b"a:b"));
        assert_eq!(parse(b"box:a\xff"), sandbox("box", b"a\xff"));
        for here in [&b"./a:b"[..], b"/tmp/a:b", b"file", b".", b"..", b".hidden:x", b"\xff"] {
            assert_eq!(parse(here), Ok(Place::Here(OsStr::from_bytes(here).into())), "{here:?}");
        }
        assert_eq!(parse(b"-"), Ok(Place::Stream));
        assert!(parse(b":/etc").is_err() && parse(b"").is_err() && parse(b"\xff:x").is_err());
    }
}
