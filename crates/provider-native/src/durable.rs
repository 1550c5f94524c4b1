//! Small files that are there whole or not at all, also after the host's death, and that say so
//! themselves when a byte of them is not what was written.
//!
//! A file ends with a line that seals what is before it, and has a second copy beside it, which is
//! read when the first is damaged or gone. Files of earlier versions have neither.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::fingerprint::fingerprint;

/// No file of ours comes near it.
const LARGEST: u64 = 1 << 20;

/// How the last line begins.
const SEAL: &[u8] = b"\n#sealed ";

/// Puts a file into a folder, for our own user alone. An earlier one of that name is replaced.
///
/// That it is there is certain only once the folder is [settled](settle).
pub(crate) fn put(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let sealed = seal(bytes);
    let (new, copy) = (format!("{name}.new"), format!("{name}.copy"));
    sys_linux::files::write_out(write(folder, &new, &sealed)?)?;
    fs::rename(folder.join(&new), folder.join(name))?;
    // Nobody waits for this one: it is for the day on which the other cannot be read.
    write(folder, &new, &sealed)?;
    fs::rename(folder.join(&new), folder.join(copy))
}

/// Makes sure that what was put into a folder stays there.
pub(crate) fn settle(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Reads what was [put](put) into a folder.
pub(crate) fn read(folder: &Path, name: &str) -> io::Result<Vec<u8>> {
    let copy = || match read_one(folder, &format!("{name}.copy")) {
        Ok(Content::Sealed(bytes)) => Some(bytes),
        _ => None,
    };
    match read_one(folder, name) {
        Ok(Content::Sealed(bytes)) => Ok(bytes),
        // Whoever wrote a copy sealed the first one too.
        Ok(Content::Plain(bytes)) => Ok(copy().unwrap_or(bytes)),
        Err(error) => copy().ok_or(error),
    }
}

enum Content {
    Sealed(Vec<u8>),
    /// As earlier versions wrote it.
    Plain(Vec<u8>),
}

fn read_one(folder: &Path, name: &str) -> io::Result<Content> {
    let mut bytes = Vec::new();
    File::open(folder.join(name))?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    let damaged = |what| io::Error::new(io::ErrorKind::InvalidData, format!("`{name}` {what}"));
    if bytes.len() as u64 > LARGEST {
        return Err(damaged("is too large to be ours"));
    }
    let Some(end) = bytes.windows(SEAL.len()).rposition(|window| window == SEAL) else {
        return Ok(Content::Plain(bytes));
    };
    if seal(&bytes[..end]) != bytes {
        return Err(damaged("is damaged: its seal does not fit"));
    }
    bytes.truncate(end);
    Ok(Content::Sealed(bytes))
}

fn seal(bytes: &[u8]) -> Vec<u8> {
    let print = fingerprint(bytes.iter().copied());
    let mut sealed = bytes.to_vec();
    sealed.extend_from_slice(SEAL);
    sealed.extend_from_slice(format!("{print:016x}\n").as_bytes());
    sealed
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<File> {
    let path = folder.join(name);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage(folder: &Path, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(folder.join(name)).unwrap();
        change(&mut bytes);
        fs::write(folder.join(name), bytes).unwrap();
    }

    #[test]
    fn whatever_byte_of_a_file_is_another_it_reads_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let text = br#"{"version":5,"what":"is written"}"#;
        put(folder, "file", text).unwrap();
        let whole = fs::read(folder.join("file")).unwrap();
        for place in 0..whole.len() {
            for bit in 0..8 {
                damage(folder, "file", |bytes| bytes[place] ^= 1 << bit);
                assert_eq!(read(folder, "file").unwrap(), text, "byte {place}, bit {bit}");
                fs::write(folder.join("file"), &whole).unwrap();
            }
            damage(folder, "file", |bytes| bytes.truncate(place));
            assert_eq!(read(folder, "file").unwrap(), text, "cut off at {place}");
            fs::write(folder.join("file"), &whole).unwrap();
        }
        fs::remove_file(folder.join("file")).unwrap();
        assert_eq!(read(folder, "file").unwrap(), text);
    }

    #[test]
    fn when_both_are_damaged_that_is_said_and_nothing_is_made_up() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        put(folder, "file", b"text").unwrap();
        for name in ["file", "file.copy"] {
            damage(folder, name, |bytes| bytes[1] ^= 1);
        }
        let error = read(folder, "file").unwrap_err().to_string();
        assert!(error.contains("`file` is damaged"), "{error}");
    }

    #[test]
    fn a_file_of_an_earlier_version_has_no_seal_and_is_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "plain").unwrap();
        assert_eq!(read(folder.path(), "file").unwrap(), b"plain");
        assert_eq!(read(folder.path(), "none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
