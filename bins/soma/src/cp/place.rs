//! Which of the places is in a sandbox.

use std::path::PathBuf;
use std::str::FromStr;

/// One end of a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// In a sandbox.
    Sandbox {
        /// Its id, its name, or the beginning of either.
        which: String,
        /// Where in it; empty for the user's home.
        path: String,
    },
    /// A path on this machine.
    Here(PathBuf),
    /// Standard input or output.
    Stream,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stream);
        }
        if text.is_empty() {
            return Err("a place has a name".to_owned());
        }
        match text.split_once(':') {
            // No sandbox is called like this, and many a file is.
            Some((which, _)) if which.contains('/') || which.starts_with('.') => {}
            Some(("", _)) => return Err("there is no sandbox without a name".to_owned()),
            Some((_, path)) if path.contains('\0') => {
                return Err("no path has a NUL in it".to_owned());
            }
            Some((which, path)) => {
                return Ok(Self::Sandbox { which: which.to_owned(), path: path.to_owned() });
            }
            None => {}
        }
        Ok(Self::Here(PathBuf::from(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_says_that_it_is_in_a_sandbox_unless_a_slash_comes_first() {
        let sandbox = |which: &str, path: &str| {
            Ok(Place::Sandbox { which: which.to_owned(), path: path.to_owned() })
        };
        assert_eq!("box:/etc".parse(), sandbox("box", "/etc"));
        assert_eq!("box:".parse(), sandbox("box", ""));
        assert_eq!("box:a:b".parse(), sandbox("box", "a:b"));
        for here in ["./a:b", "/tmp/a:b", "file", ".", "..", ".hidden:x"] {
            assert_eq!(here.parse(), Ok(Place::Here(here.into())), "{here}");
        }
        assert_eq!("-".parse(), Ok(Place::Stream));
        assert!(":/etc".parse::<Place>().is_err() && "".parse::<Place>().is_err());
    }
}
