//! The part of an address after the question mark.

use percent_encoding::percent_decode_str;

use super::HttpError;

/// The value of the parameter `name`, if it is there. Of several the first counts.
pub(super) fn parameter(query: Option<&str>, name: &str) -> Result<Option<String>, HttpError> {
    for pair in query.unwrap_or_default().split('&') {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decode(key).as_deref() == Some(name) {
            return match decode(value) {
                Some(value) => Ok(Some(value)),
                None => Err(HttpError::bad_request(format!("'{name}' is not UTF-8"))),
            };
        }
    }
    Ok(None)
}

/// Decodes as forms are encoded, where `+` stands for a blank.
fn decode(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    percent_decode_str(&text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
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
    fn bytes_that_are_not_text_are_refused() {
        assert!(parameter(Some("path=%ff"), "path").is_err());
    }
}
