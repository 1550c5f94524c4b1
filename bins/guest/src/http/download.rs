//! `GET /files`: the content of a file.

use std::fs::File;
use std::path::{Path, PathBuf};

use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, LAST_MODIFIED, RANGE, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::HttpError;
use super::file_body::FileBody;
use super::gzip_body;
use super::query::{parameter, raw_parameter};
use super::range::{Version, Wanted, wanted};
use crate::files::{self, FileError, blocking};
use crate::server::Body;
use crate::state::State;

/// What stays as it is in the name of a file in a header.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Answers with the file that the request names.
pub(super) async fn download(head: &Parts, state: &State) -> Result<Response<Body>, HttpError> {
    let user = files::find_user(state, parameter(head.uri.query(), "username")?)?;
    let path = raw_parameter(head.uri.query(), "path").unwrap_or_default();
    let path = files::expand(state, &path, &user)?;
    let (file, version, path) = blocking::short(move || {
        let (file, stat) = open(&path)?;
        Ok((file, Version::new(&stat), path))
    })
    .await?;

    let mut response = super::empty(StatusCode::OK);
    describe(response.headers_mut(), &path, &version);
    let is_head = head.method == Method::HEAD;
    let headers = response.headers_mut();
    let (start, length) = match wanted(&head.headers, &version) {
        Wanted::NotModified => {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return Ok(response);
        }
        Wanted::NoSuchPart => {
            let message = format!("the file has {} bytes and no such range", version.size);
            let error = HttpError::new(StatusCode::RANGE_NOT_SATISFIABLE, message);
            let mut response = error.into_response();
            let range = HeaderValue::try_from(format!("bytes */{}", version.size));
            response.headers_mut().extend(range.ok().map(|range| (CONTENT_RANGE, range)));
            return Ok(response);
        }
        Wanted::Whole => (0, version.size),
        Wanted::Part { start, length } => {
            let range = format!("bytes {start}-{}/{}", start + length - 1, version.size);
            insert(headers, CONTENT_RANGE, &range);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            (start, length)
        }
    };
    // A part of a file is not compressed: nobody could put such parts together.
    if gzip_body::is_wanted(&head.headers) && !head.headers.contains_key(RANGE) {
        let headers = response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.remove(ACCEPT_RANGES);
        // The same content in other bytes: only a weak tag may say that it is the same.
        insert(headers, ETAG, &format!("W/{}", version.tag));
        if !is_head {
            *response.body_mut() = super::streamed(gzip_body::compressed(file));
        }
        return Ok(response);
    }
    // Files of /proc have content and tell the length 0: only the end of the file is the end.
    let length = (version.size > 0).then_some(length);
    if is_head {
        if let Some(length) = length {
            insert(response.headers_mut(), CONTENT_LENGTH, &length.to_string());
        }
    } else {
        *response.body_mut() = super::streamed(FileBody::new(file, start, length));
    }
    Ok(response)
}

/// Opens a regular file for reading.
///
/// Anything else is refused by its type before it is opened, because opening alone does
/// something to pipes and devices, and once more afterwards, because it may have been exchanged.
/// The descriptor never blocks: a file of `/proc` may have nothing to say for ever.
pub(super) fn open(path: &Path) -> Result<(File, Stat), FileError> {
    let failed = |errno| match errno {
        Errno::NOENT | Errno::NOTDIR => FileError::from_errno(Errno::NOENT, path),
        Errno::NXIO => not_a_file(path),
        errno => FileError::from_errno(errno, path),
    };
    check(&rustix::fs::stat(path).map_err(failed)?, path)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    check(&stat, path)?;
    if stat.st_size == 0 {
        // Files of /proc may refuse to be read though they let themselves be opened; that is
        // better told now than in the middle of an answer.
        rustix::io::pread(&file, &mut [0; 1], 0).map_err(failed)?;
    }
    Ok((File::from(file), stat))
}

fn check(stat: &Stat, path: &Path) -> Result<(), FileError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(FileError::from_errno(Errno::ISDIR, path)),
        _ => Err(not_a_file(path)),
    }
}

/// A pipe, a socket or a device where a file is expected.
pub(super) fn not_a_file(path: &Path) -> FileError {
    FileError::invalid(format!("path '{}' is not a regular file", path.display()))
}

/// The headers that say what the file is.
fn describe(headers: &mut HeaderMap, path: &Path, version: &Version) {
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    insert(headers, CONTENT_DISPOSITION, &disposition(&name.to_string_lossy()));
    insert(headers, ETAG, &version.tag);
    insert(headers, LAST_MODIFIED, &httpdate::fmt_http_date(version.modified));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}

/// How the file is called, in quotes where that is enough and percent-encoded where it is not.
fn disposition(name: &str) -> String {
    let is_simple = |letter: char| matches!(letter, ' '..='~') && !matches!(letter, '"' | '\\');
    if name.chars().all(is_simple) {
        format!("inline; filename=\"{name}\"")
    } else {
        format!("inline; filename*=utf-8''{}", utf8_percent_encode(name, PLAIN))
    }
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // All values here are made of printable ASCII; a header that is not is left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::files::FileErrorKind;

    #[test]
    fn what_is_not_a_file_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, mode, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        symlink("loop", at("loop")).unwrap();
        fs::write(at("file"), "").unwrap();
        for (path, kind) in [
            (at("pipe"), FileErrorKind::Invalid),
            (at("socket"), FileErrorKind::Invalid),
            (at("loop"), FileErrorKind::Invalid),
            (folder.path().to_path_buf(), FileErrorKind::IsADirectory),
            (PathBuf::from("/dev/zero"), FileErrorKind::Invalid),
            (PathBuf::from("/dev/tty"), FileErrorKind::Invalid),
            (at("none"), FileErrorKind::NotFound),
            (at("file/below"), FileErrorKind::NotFound),
            (at(&"n".repeat(256)), FileErrorKind::Invalid),
            (at(&"n/".repeat(3000)), FileErrorKind::Invalid),
        ] {
            let error = open(&path).unwrap_err();
            assert_eq!(error.kind, kind, "{error}");
        }
        open(&at("file")).unwrap();
        assert_eq!(open(Path::new("/proc/self/mem")).unwrap_err().kind, FileErrorKind::Internal);
    }

    #[test]
    fn every_name_fits_into_the_header() {
        for (name, header) in [
            ("a b.txt", "inline; filename=\"a b.txt\""),
            ("a\"b", "inline; filename*=utf-8''a%22b"),
            ("é\n", "inline; filename*=utf-8''%C3%A9%0A"),
        ] {
            assert_eq!(disposition(name), header);
        }
    }
}
