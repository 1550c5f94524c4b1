//! Small secrets of a home, each in a file that only its owner reads.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use domain::Token;

/// What a file has, or what was made for it because there is none, or none that could be one: such
/// a file is put aside under another name.
pub(super) fn read_or_make(
    path: &Path,
    is_good: impl Fn(&str) -> bool,
    make: impl FnOnce() -> io::Result<String>,
) -> io::Result<String> {
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) if is_good(text.trim()) => return Ok(text.trim().to_owned()),
            _ => {
                let aside = path.with_extension("damaged");
                tracing::warn!(file = %path.display(), aside = %aside.display(),
                    "a file with a secret of this home is damaged and was put aside; a new one is made");
                fs::rename(path, aside)?;
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let text = make()?;
    // Whole or not at all: a start that dies here does not keep the next one from its own.
    let new = path.with_extension("new");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(new, path)?;
    if let Some(folder) = path.parent() {
        fs::File::open(folder)?.sync_all()?;
    }
    Ok(text)
}

/// So many random bytes, spelt out.
pub(super) fn random<const N: usize>() -> io::Result<String> {
    let mut bytes = [0; N];
    let length = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if length != bytes.len() {
        return Err(io::Error::other("there are no random numbers"));
    }
    Ok(Token::from_random(&bytes).reveal().to_owned())
}

/// What ids that follow from something else are made with.
pub(super) fn secret(folder: &Path) -> io::Result<[u8; 32]> {
    let is_good =
        |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let text = read_or_make(&folder.join("secret"), is_good, random::<32>)?;
    let mut secret = [0; 32];
    for (byte, pair) in secret.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(io::Error::other)?;
        *byte = u8::from_str_radix(pair, 16).map_err(io::Error::other)?;
    }
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_secret_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let read = || secret(folder.path()).unwrap();
        let first = read();
        assert_ne!(first, [0; 32]);
        assert_eq!(read(), first);
        let mode = fs::metadata(folder.path().join("secret")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_one_is_put_aside_and_another_is_made() {
        let folder = tempfile::tempdir().unwrap();
        for damage in [&b""[..], b"too short", &[0xff; 64]] {
            fs::write(folder.path().join("secret"), damage).unwrap();
            let made = secret(folder.path()).unwrap();
            assert_eq!(secret(folder.path()).unwrap(), made);
            assert_eq!(fs::read(folder.path().join("secret.damaged")).unwrap(), damage);
        }
    }
}
