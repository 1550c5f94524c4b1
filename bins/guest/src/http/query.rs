//! The part of an address after the question mark.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use percent_encoding::percent_decode_str;

use super::HttpError;

/// The value of the parameter `name`, if it is there. Of several the first counts.
pub(crate) fn parameter(query: Option<&str>, name: &str) -> Result<Option<String>, HttpError> {
    let value = raw_parameter(query, name).map(OsString::into_string).transpose();
    value.map_err(|_| HttpError::bad_request(format!("'{name}' is not UTF-8")))
}

/// The same as the bytes that were encoded, which paths are.
pub(super) fn raw_parameter(query: Option<&str>, name: &str) -> Option<OsString> {
    query.unwrap_or_default().split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decode(key) == name.as_bytes()).then(|| OsString::from_vec(decode(value)))
    })
}

/// Decodes as forms are encoded, where `+` stands for a blank.
fn decode(text: &str) -> Vec<u8> {
    let text = text.replace('+', " ");
    percent_decode_str(&text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(query: &str) -> Option<String> {
        parameter(Some(query), "path").unwrap()
    }

    #[test]
    fn the_first_value_counts_and_is_decoded_once() {
        assert_eq!(path("a=b&path=%2Fx%20y+z&path=other").as_deref(), Some("/x y z"));
        assert_eq!(path("path=%252e%252e").as_deref(), Some("%2e%2e"));
        assert_eq!(path("path=a%2Bb").as_deref(), Some("a+b"));
        assert_eq!(path("path=%F0%9F%98%80").as_deref(), Some("😀"));
        assert_eq!(path("path").as_deref(), Some(""));
        assert_eq!(path("path=100%").as_deref(), Some("100%"));
        assert_eq!(path("pathx=1&x=path"), None);
        assert_eq!(parameter(None, "path").unwrap(), None);
    }

    #[test]
    fn bytes_that_are_not_text_are_refused_where_text_is_wanted() {
        assert!(parameter(Some("path=%ff"), "path").is_err());
        let raw = raw_parameter(Some("path=a%ff+"), "path").unwrap();
        assert_eq!(raw.into_vec(), b"a\xff ");
    }
}
