//! Key and value pairs that a caller keeps with a file.
//!
//! They come as `X-Metadata-<key>` headers of an upload and lie in the extended attributes
//! `user.e2b.<key>`, so that programs in the sandbox can read and set them as well.

use std::fs::File;
use std::path::Path;

use http::HeaderMap;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::error::FileError;

const HEADER: &str = "x-metadata-";
const ATTRIBUTE: &str = "user.e2b.";

/// The kernel allows 255 bytes for a name, and `user.e2b.` takes nine of them.
const LONGEST_KEY: usize = 246;

/// What the keys and values of one file may take together.
const LARGEST_SET: usize = 4096;

/// The most that the kernel keeps as the list of a file's attributes, or as one value.
const LARGEST_ATTRIBUTE: usize = 65536;

/// Pairs in the order in which they came.
pub(crate) type Metadata = Vec<(String, String)>;

/// The metadata that an upload's headers carry.
pub(crate) fn in_headers(headers: &HeaderMap) -> Result<Metadata, FileError> {
    let mut set = Metadata::new();
    let mut size = 0;
    for (name, value) in headers {
        // Header names arrive in lower case.
        let Some(key) = name.as_str().strip_prefix(HEADER) else { continue };
        if key.is_empty() || key.len() > LONGEST_KEY {
            return Err(FileError::invalid(format!(
                "a metadata key has 1 to {LONGEST_KEY} bytes: '{key}'"
            )));
        }
        let value = value.as_bytes();
        if !value.iter().all(|byte| (0x20..0x7f).contains(byte)) {
            return Err(FileError::invalid(format!(
                "the metadata value of '{key}' is not printable ASCII"
            )));
        }
        size += key.len() + value.len();
        if size > LARGEST_SET {
            return Err(FileError::invalid(format!("metadata takes at most {LARGEST_SET} bytes")));
        }
        set.push((key.to_owned(), String::from_utf8_lossy(value).into_owned()));
    }
    Ok(set)
}

/// Writes metadata to a file that has none yet.
pub(crate) fn write(file: &File, set: &Metadata, path: &Path) -> Result<(), FileError> {
    for (key, value) in set {
        let name = format!("{ATTRIBUTE}{key}");
        rustix::fs::fsetxattr(file, name.as_str(), value.as_bytes(), XattrFlags::empty()).map_err(
            |errno| match errno {
                Errno::OPNOTSUPP => {
                    let path = path.display();
                    FileError::invalid(format!("the file system of '{path}' keeps no metadata"))
                }
                other => FileError::from_errno(other, path),
            },
        )?;
    }
    Ok(())
}

/// The metadata of what `path` names; a link is not followed. What cannot be read is left out.
pub(crate) fn of_path(path: &Path) -> Metadata {
    let mut found = Metadata::new();
    // Nearly no file has attributes, so the first question is only how long the list would be.
    if rustix::fs::llistxattr_query(path).unwrap_or(0) == 0 {
        return found;
    }
    let mut list = vec![0; LARGEST_ATTRIBUTE];
    let length = rustix::fs::llistxattr(path, list.as_mut_slice()).unwrap_or(0);
    for name in list[..length].split(|byte| *byte == 0) {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let Some(key) = name.strip_prefix(ATTRIBUTE) else { continue };
        let mut value = vec![0; LARGEST_SET];
        if let Ok(length) = rustix::fs::lgetxattr(path, name, value.as_mut_slice()) {
            value.truncate(length);
            found.push((key.to_owned(), String::from_utf8_lossy(&value).into_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_metadata_headers_are_taken() {
        let set = in_headers(&headers(&[("content-type", "x"), ("X-Metadata-Author", "me")]));
        assert_eq!(set.unwrap(), [("author".to_owned(), "me".to_owned())]);
    }

    #[test]
    fn keys_and_sets_that_do_not_fit_an_attribute_are_refused() {
        let long = format!("x-metadata-{}", "k".repeat(LONGEST_KEY + 1));
        assert!(in_headers(&headers(&[(&long, "v")])).is_err());
        assert!(in_headers(&headers(&[("x-metadata-", "v")])).is_err());
        assert!(in_headers(&headers(&[("x-metadata-k", &"v".repeat(LARGEST_SET))])).is_err());
        let fits = format!("x-metadata-{}", "k".repeat(LONGEST_KEY));
        assert!(in_headers(&headers(&[(&fits, "v")])).is_ok());
    }

    #[test]
    fn a_value_that_is_not_printable_is_refused() {
        let mut headers = HeaderMap::new();
        headers.insert("x-metadata-k", http::HeaderValue::from_bytes(b"\xc3\xa9").unwrap());
        assert!(in_headers(&headers).is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let file = File::create(&path).unwrap();
        let set = vec![("author".to_owned(), "me".to_owned())];
        if write(&file, &set, &path).is_ok() {
            assert_eq!(of_path(&path), set);
        }
        assert_eq!(of_path(folder.path()), Metadata::new());
    }
}
