//! Which part of a file a request wants, and whether it has it already.
//!
//! One range is served. Several in one request are refused like one that does not fit: they are
//! rare in earnest, and ten thousand overlapping ones are an attack.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, RANGE};
use http::{HeaderMap, HeaderName};

/// The file as it is known to caches.
#[derive(Debug)]
pub(super) struct Version {
    /// A text that changes when the content does.
    pub(super) tag: String,
    /// When the content changed last, in whole seconds.
    pub(super) modified: SystemTime,
    /// Bytes of content.
    pub(super) size: u64,
}

impl Version {
    pub(super) fn new(stat: &rustix::fs::Stat) -> Self {
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Self {
            tag: format!("\"{:x}-{:x}-{size:x}-{:x}\"", seconds, stat.st_mtime_nsec, stat.st_ino),
            modified: UNIX_EPOCH + Duration::from_secs(seconds),
            size,
        }
    }
}

/// What to send.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it.
    Whole,
    /// So many bytes from here on.
    Part { start: u64, length: u64 },
    /// Nothing, the caller has this version.
    NotModified,
    /// Nothing, there is no such part.
    NoSuchPart,
}

/// Reads the conditions and the range of a request for `file`.
pub(super) fn wanted(headers: &HeaderMap, file: &Version) -> Wanted {
    if let Some(tags) = text(headers, &IF_NONE_MATCH) {
        let mut tags = tags.split(',').map(|tag| tag.trim().trim_start_matches("W/"));
        if tags.any(|tag| tag == "*" || tag == file.tag) {
            return Wanted::NotModified;
        }
    } else if let Some(since) = date(headers, &IF_MODIFIED_SINCE)
        && file.modified <= since
    {
        return Wanted::NotModified;
    }
    let Some(range) = text(headers, &RANGE) else { return Wanted::Whole };
    // A part only makes sense to who has the rest of the same version.
    if let Some(version) = text(headers, &IF_RANGE)
        && version != file.tag
        && date(headers, &IF_RANGE) != Some(file.modified)
    {
        return Wanted::Whole;
    }
    // Other units are to be ignored, and an empty file has no part to leave out.
    match range.strip_prefix("bytes=") {
        Some(range) if file.size > 0 => part(range.trim(), file.size).unwrap_or(Wanted::NoSuchPart),
        _ => Wanted::Whole,
    }
}

/// Reads `first-last`, `first-` or `-count`.
fn part(range: &str, size: u64) -> Option<Wanted> {
    let (first, last) = range.split_once('-')?;
    let (start, end) = match (first.trim(), last.trim()) {
        ("", count) => (size.saturating_sub(number(count)?), size - 1),
        (first, "") => (number(first)?, size - 1),
        (first, last) => (number(first)?, number(last)?.min(size - 1)),
    };
    (start <= end).then(|| Wanted::Part { start, length: end - start + 1 })
}

/// Reads a number. Larger than we can count is larger than any file.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(size: u64) -> Version {
        let modified = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        Version { tag: "\"tag\"".to_owned(), modified, size }
    }

    fn asked(pairs: &[(HeaderName, &str)], size: u64) -> Wanted {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(name, value.parse().unwrap());
        }
        wanted(&headers, &file(size))
    }

    #[test]
    fn single_ranges_are_cut_to_the_file() {
        for (range, start, length) in [
            ("bytes=0-0", 0, 1),
            ("bytes=2-5", 2, 4),
            ("bytes=5-", 5, 5),
            ("bytes=-3", 7, 3),
            ("bytes=-99", 0, 10),
            ("bytes=9-99999999999999999999999", 9, 1),
            ("bytes= 1 - 2 ", 1, 2),
        ] {
            assert_eq!(asked(&[(RANGE, range)], 10), Wanted::Part { start, length }, "{range}");
        }
    }

    #[test]
    fn ranges_that_do_not_fit_are_refused() {
        for range in [
            "bytes=10-",
            "bytes=10-11",
            "bytes=5-2",
            "bytes=-0",
            "bytes=-",
            "bytes=",
            "bytes=a-b",
            "bytes=-1-2",
            "bytes=0-1,3-4",
            "bytes=--1",
            "bytes=+1-2",
            "bytes=99999999999999999999999-",
        ] {
            assert_eq!(asked(&[(RANGE, range)], 10), Wanted::NoSuchPart, "{range}");
        }
    }

    #[test]
    fn other_units_and_empty_files_are_sent_whole() {
        assert_eq!(asked(&[(RANGE, "lines=1-2")], 10), Wanted::Whole);
        assert_eq!(asked(&[(RANGE, "bytes=0-")], 0), Wanted::Whole);
        assert_eq!(asked(&[], 10), Wanted::Whole);
    }

    #[test]
    fn a_version_that_the_caller_has_is_not_sent() {
        let (same, before) = ("Sun, 09 Sep 2001 01:46:40 GMT", "Sun, 09 Sep 2001 01:46:39 GMT");
        assert_eq!(asked(&[(IF_NONE_MATCH, "\"x\", W/\"tag\"")], 10), Wanted::NotModified);
        assert_eq!(asked(&[(IF_NONE_MATCH, "*")], 10), Wanted::NotModified);
        assert_eq!(asked(&[(IF_NONE_MATCH, "\"x\"")], 10), Wanted::Whole);
        assert_eq!(asked(&[(IF_MODIFIED_SINCE, same)], 10), Wanted::NotModified);
        assert_eq!(asked(&[(IF_MODIFIED_SINCE, before)], 10), Wanted::Whole);
        assert_eq!(asked(&[(IF_MODIFIED_SINCE, "yesterday")], 10), Wanted::Whole);
        let both = [(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, same)];
        assert_eq!(asked(&both, 10), Wanted::Whole);
    }

    #[test]
    fn a_part_of_another_version_is_not_sent() {
        let part = Wanted::Part { start: 1, length: 9 };
        assert_eq!(asked(&[(RANGE, "bytes=1-"), (IF_RANGE, "\"tag\"")], 10), part);
        assert_eq!(asked(&[(RANGE, "bytes=1-"), (IF_RANGE, "\"old\"")], 10), Wanted::Whole);
        let same = "Sun, 09 Sep 2001 01:46:40 GMT";
        assert_eq!(asked(&[(RANGE, "bytes=1-"), (IF_RANGE, same)], 10), part);
    }

    proptest! {
        #[test]
        fn no_range_leaves_the_file(text in "[bytes=0-9, -]{0,30}", size in 0_u64..100) {
            if let Ok(value) = text.parse() {
                let mut headers = HeaderMap::new();
                headers.insert(RANGE, value);
                if let Wanted::Part { start, length } = wanted(&headers, &file(size)) {
                    prop_assert!(length > 0 && start + length <= size);
                }
            }
        }
    }
}
