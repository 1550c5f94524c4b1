//! The file itself: for its owner only, and moved aside when it is damaged.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Nobody but the owner: the records hold tokens.
const MODE: u32 = 0o600;

/// What SQLite keeps beside its file, in the order in which it must not be orphaned.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

/// What [`prepare`] met.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Prepared {
    /// A file that SQLite can look at.
    Ready,
    /// A log whose database is gone. SQLite would delete it, and with it what it holds.
    LogWithoutDatabase,
}

/// Makes the file when it is not there, and takes it away from everybody but its owner.
///
/// SQLite gives its companions the mode of the file, whatever the umask.
pub(super) fn prepare(path: &Path) -> io::Result<Prepared> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE)
        .open(path)?;
    narrow(&file)?;
    let mut log = 0;
    for companion in COMPANIONS.map(|suffix| beside(path, suffix)) {
        match File::open(&companion) {
            Ok(file) => {
                narrow(&file)?;
                log = log.max(file.metadata()?.len());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let is_empty = file.metadata()?.len() == 0;
    Ok(if is_empty && log > 0 { Prepared::LogWithoutDatabase } else { Prepared::Ready })
}

/// Moves a damaged file with its companions to a name that nothing has, and says which.
///
/// The database goes first: without its log it would look whole and lack the last writes, while
/// a log alone is recognised at the next start.
pub(super) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut seconds = now;
    let target = loop {
        let candidate = beside(path, &format!(".damaged-{seconds}"));
        if !candidate.try_exists()? {
            break candidate;
        }
        seconds += 1;
    };
    fs::rename(path, &target)?;
    for suffix in COMPANIONS {
        match fs::rename(beside(path, suffix), beside(&target, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(target)
}

/// A copy of a file with its log, which goes with this.
pub(super) struct Copy(PathBuf);

impl Copy {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        for suffix in [""].into_iter().chain(COMPANIONS) {
            let _ = fs::remove_file(beside(&self.0, suffix));
        }
    }
}

/// Copies a file with its log to the name beside it that ends in `.reading`.
pub(super) fn copy(path: &Path) -> io::Result<Copy> {
    let copy = Copy(beside(path, ".reading"));
    // The mode goes along.
    fs::copy(path, copy.path())?;
    match fs::copy(beside(path, COMPANIONS[0]), beside(copy.path(), COMPANIONS[0])) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(copy),
    }
}

fn narrow(file: &File) -> io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o777 == MODE {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(MODE))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
