//! Certificates that the sandbox is told to trust.
//!
//! They come as one text of PEM blocks. It is laid where the tools of the distributions look for
//! local certificates, and added to the file that most programs read, between two lines by which
//! it is found again: telling the same or another text later replaces it.

use std::io::{Read as _, Write as _};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::files::{FileError, temporary_name};

/// Where local certificates lie, for when the file of all is made anew.
const LOCAL: &str = "usr/local/share/ca-certificates/soma.crt";

/// The file of all certificates; left alone where it is missing.
const ALL: &str = "etc/ssl/certs/ca-certificates.crt";

const BEGIN: &str = "# Certificates that this sandbox was told to trust begin here.\n";
const END: &str = "# Certificates that this sandbox was told to trust end here.\n";

/// The largest text, and the largest file that it is added to.
const LARGEST: usize = 256 << 10;
const LARGEST_FILE: u64 = 8 << 20;

/// Whether a text can be certificates at all.
pub(super) fn is_sensible(bundle: &str) -> bool {
    bundle.len() <= LARGEST
        && bundle.contains("-----BEGIN CERTIFICATE-----")
        && ![BEGIN, END].into_iter().any(|mark| bundle.contains(mark.trim_end()))
        && !bundle.contains('\0')
}

/// Makes the system below `root` trust these certificates. Blocks.
pub(super) fn install(root: &Path, bundle: &str) -> Result<(), FileError> {
    let bundle = format!("{}\n", bundle.trim_end());
    let local = root.join(LOCAL);
    if let Some(folder) = local.parent() {
        std::fs::create_dir_all(folder).map_err(|error| FileError::from_io(&error, folder))?;
    }
    replace(&local, &bundle)?;
    let all = root.join(ALL);
    let Some(text) = read(&all)? else { return Ok(()) };
    let wanted = with_block(&text, &bundle);
    if wanted == text { Ok(()) } else { replace(&all, &wanted) }
}

/// The text with our block at its end, and nowhere else.
fn with_block(text: &str, bundle: &str) -> String {
    let mut rest = text.to_owned();
    while let Some(begin) = rest.find(BEGIN) {
        let end = rest[begin..].find(END).map_or(rest.len(), |end| begin + end + END.len());
        rest.replace_range(begin..end, "");
    }
    if !rest.is_empty() && !rest.ends_with('\n') {
        rest.push('\n');
    }
    rest + BEGIN + bundle + END
}

fn read(path: &Path) -> Result<Option<String>, FileError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => std::fs::File::from(file),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(errno) => return Err(FileError::from_errno(errno, path)),
    };
    let mut bytes = Vec::new();
    let read = file.take(LARGEST_FILE + 1).read_to_end(&mut bytes);
    read.map_err(|error| FileError::from_io(&error, path))?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(FileError::invalid(format!("'{}' is too large", path.display())));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Puts a file in the place of another, as a whole: programs read it at any time.
fn replace(path: &Path, text: &str) -> Result<(), FileError> {
    let failed = |error: std::io::Error| FileError::from_io(&error, path);
    // A link stays one, and what it leads to is replaced.
    let target = std::fs::read_link(path).map_or_else(
        |_| path.to_owned(),
        |link| path.parent().unwrap_or(Path::new("/")).join(link),
    );
    let temporary = target.with_file_name(temporary_name("trust".as_ref()));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, &temporary, flags, Mode::from_raw_mode(0o644))
        .map_err(|errno| FileError::from_errno(errno, path))?;
    let written = std::fs::File::from(file)
        .write_all(text.as_bytes())
        .and_then(|()| std::fs::rename(&temporary, &target));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&temporary);
    }
    written.map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const ONE: &str = "-----BEGIN CERTIFICATE-----\none\n-----END CERTIFICATE-----";
    const TWO: &str = "-----BEGIN CERTIFICATE-----\ntwo\n-----END CERTIFICATE-----\n\n";

    #[test]
    fn told_twice_it_is_there_once_and_another_takes_its_place() {
        let root = tempfile::tempdir().unwrap();
        let all = root.path().join(ALL);
        fs::create_dir_all(all.parent().unwrap()).unwrap();
        fs::write(&all, "system").unwrap();
        install(root.path(), ONE).unwrap();
        let once = fs::read_to_string(&all).unwrap();
        assert!(once.starts_with("system\n#") && once.contains("one"));
        install(root.path(), ONE).unwrap();
        assert_eq!(fs::read_to_string(&all).unwrap(), once);
        install(root.path(), TWO).unwrap();
        let other = fs::read_to_string(&all).unwrap();
        assert!(other.starts_with("system\n#") && other.contains("two") && !other.contains("one"));
        assert_eq!(fs::read_to_string(root.path().join(LOCAL)).unwrap().trim(), TWO.trim());
        assert_eq!(fs::read_dir(all.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_system_without_the_file_of_all_gets_none() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), ONE).unwrap();
        assert!(!root.path().join(ALL).exists());
        assert!(root.path().join(LOCAL).exists());
    }

    #[test]
    fn what_cannot_be_certificates_is_told() {
        assert!(is_sensible(ONE) && is_sensible(TWO));
        for text in ["", "hello", &format!("{ONE}\0"), &ONE.repeat(10_000), &format!("{ONE}{END}")]
        {
            assert!(!is_sensible(text));
        }
    }
}
