//! What POSIX and GNU write in front of an entry that its header has no room for.

use crate::error::ImageError;

/// More attributes than this has no file.
const MOST_ATTRIBUTES: usize = 128;

/// What was said about the next entry.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) path: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) user: Option<u64>,
    pub(super) group: Option<u64>,
    pub(super) modified: Option<i64>,
    pub(super) attributes: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) is_sparse: bool,
}

impl Extensions {
    /// Reads records such as `30 mtime=1350244992.023960108\n`; the number is the record's length.
    pub(super) fn read_pax(&mut self, mut bytes: &[u8]) -> Result<(), ImageError> {
        // Some writers fill up with zeroes.
        while !bytes.is_empty() && bytes.iter().any(|byte| *byte != 0) {
            let (key, value, rest) =
                record(bytes).ok_or_else(|| ImageError::damaged("a pax header is damaged"))?;
            self.take(key, value)?;
            bytes = rest;
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), ImageError> {
        let number = || {
            let text = std::str::from_utf8(value).ok();
            text.and_then(|text| text.parse().ok())
                .ok_or_else(|| ImageError::damaged("a number in a pax header is none"))
        };
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.target = Some(value.to_vec()),
            b"size" => self.size = Some(number()?),
            b"uid" => self.user = Some(number()?),
            b"gid" => self.group = Some(number()?),
            b"mtime" => {
                let seconds = value.split(|byte| *byte == b'.').next().unwrap_or_default();
                let text = std::str::from_utf8(seconds).unwrap_or_default();
                self.modified = text.parse().ok();
            }
            key if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
            key => {
                if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                    if self.attributes.len() >= MOST_ATTRIBUTES {
                        let most = MOST_ATTRIBUTES as u64;
                        let what = "extended attributes of one file";
                        return Err(ImageError::TooMuch { what, most });
                    }
                    self.attributes.push((name.to_vec(), value.to_vec()));
                }
            }
        }
        Ok(())
    }
}

/// The first record, as key and value, and what is behind it.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..blank]).ok()?.parse().ok()?;
    let inner = bytes.get(blank + 1..length)?.strip_suffix(b"\n")?;
    let equals = inner.iter().position(|byte| *byte == b'=')?;
    Some((&inner[..equals], &inner[equals + 1..], &bytes[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_and_damaged_ones_refused() {
        let mut extensions = Extensions::default();
        extensions.read_pax(b"12 path=abc\n10 uid=70\n24 SCHILY.xattr.user.a=\n\0\0").unwrap();
        assert_eq!(extensions.path.as_deref(), Some(&b"abc"[..]));
        assert_eq!(extensions.user, Some(70));
        assert_eq!(extensions.attributes, [(b"user.a".to_vec(), vec![])]);
        for damaged in [
            &b"13 path=abc\n"[..],
            b"11 path=abc\n",
            b"0 path=abc\n",
            b"2 \n",
            b"99999999999999999999 path=abc\n",
            b"path=abc\n",
            b"-1 path=abc\n",
            b"11 size=xyz\n",
        ] {
            Extensions::default().read_pax(damaged).unwrap_err();
        }
    }
}
