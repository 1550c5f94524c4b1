//! Finds names in a tree.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use guest_proto::soma::guest::v1::GlobResponse;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::FileError;
use super::pattern::Patterns;
use super::walk::{self, Search};

/// As many names as are told, unless asked otherwise, and at most.
const USUAL_LIMIT: u32 = 10_000;
const LARGEST_LIMIT: u32 = 100_000;

/// As many bytes of names as are told. The answer is one message.
pub(super) const MOST_TEXT: usize = 12 << 20;

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// What is looked for.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) pattern: String,
    pub(crate) exclude: Vec<String>,
    pub(crate) limit: Option<u32>,
}

/// Finds what is below the folder `path`; a link in place of the folder is followed.
pub(crate) fn glob(path: &Path, wanted: &Wanted) -> Result<GlobResponse, FileError> {
    let search = Search {
        wanted: Patterns::from_top(&wanted.pattern)?,
        excluded: Patterns::anywhere(wanted.exclude.iter().map(String::as_str))?,
        deadline: Instant::now() + walk::LONGEST,
    };
    let limit = limit(wanted.limit, USUAL_LIMIT, LARGEST_LIMIT)?;
    let (mut paths, mut text) = (Vec::new(), 0);
    let found = walk::walk(open(path)?, &search, |found| {
        if paths.len() >= limit || text > MOST_TEXT {
            return ControlFlow::Break(());
        }
        let found = path.join(found.path).to_string_lossy().into_owned();
        text += found.len();
        paths.push(found);
        ControlFlow::Continue(())
    });
    let truncated = found.map_err(|errno| FileError::from_errno(errno, path))?;
    paths.sort_unstable();
    Ok(GlobResponse { paths, truncated, ..GlobResponse::default() })
}

/// How many are told.
pub(super) fn limit(asked: Option<u32>, usual: u32, largest: u32) -> Result<usize, FileError> {
    match asked {
        Some(asked) if asked == 0 || asked > largest => {
            Err(FileError::invalid(format!("'limit' is 1 to {largest}, not {asked}")))
        }
        asked => Ok(usize::try_from(asked.unwrap_or(usual)).unwrap_or(usize::MAX)),
    }
}

fn open(path: &Path) -> Result<OwnedFd, FileError> {
    rustix::fs::open(path, OPEN, Mode::empty()).map_err(|errno| match errno {
        Errno::NOTDIR => FileError::not_a_directory(path),
        errno => FileError::from_errno(errno, path),
    })
}
