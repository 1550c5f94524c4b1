//! Who may ask.
//!
//! Once the engine told a token ([`super::init`]), every request has to show it in the header
//! `X-Access-Token`. Three are let through without it: whether the guest is there, `/init`, which
//! checks for itself, and a download or upload whose address is signed with the token, which is
//! how a link to a file is given to somebody who must not have the token.
//!
//! Tokens and signatures are compared by their hashes and without stopping at the first
//! difference, so the time of an answer tells nothing about them.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use sha2::{Digest as _, Sha256};

use super::HttpError;
use super::query::parameter;
use crate::state::State;

const HEADER: &str = "x-access-token";

/// What callers have to show. It is never shown itself.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// A token, unless the text is empty.
    pub(crate) fn new(text: String) -> Option<Self> {
        (!text.is_empty()).then_some(Self(text))
    }

    /// Whether the text is this token.
    pub(crate) fn is(&self, text: &[u8]) -> bool {
        is_equal(self.0.as_bytes(), text)
    }

    /// Whether a request shows this token in its header.
    pub(crate) fn is_shown(&self, headers: &HeaderMap) -> bool {
        headers.get(HEADER).is_some_and(|shown| self.is(shown.as_bytes()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token")
    }
}

/// Lets a request pass, or says what it lacks.
pub(super) fn check(head: &Parts, state: &State) -> Result<(), HttpError> {
    let Some(token) = state.token() else { return Ok(()) };
    match (head.uri.path(), &head.method) {
        ("/health", &Method::GET | &Method::HEAD) | ("/init", &Method::POST) => Ok(()),
        ("/files", &Method::GET | &Method::HEAD) => check_file(head, &token, "read"),
        ("/files", &Method::POST) => check_file(head, &token, "write"),
        _ if token.is_shown(&head.headers) => Ok(()),
        _ => Err(refused("the access token is missing or wrong; send it as X-Access-Token")),
    }
}

/// A file may be asked for with the token or with a signed address.
fn check_file(head: &Parts, token: &Token, operation: &str) -> Result<(), HttpError> {
    if head.headers.contains_key(HEADER) {
        return if token.is_shown(&head.headers) {
            Ok(())
        } else {
            Err(refused("access token present in header but does not match"))
        };
    }
    let asked = |name| parameter(head.uri.query(), name);
    let Some(signature) = asked("signature")? else {
        return Err(refused("missing signature query parameter"));
    };
    let expiration = asked("signature_expiration")?.map(|text| text.parse::<i64>()).transpose();
    let expiration = expiration
        .map_err(|_| HttpError::bad_request("'signature_expiration' is a number of seconds"))?;
    if expiration.is_some_and(|expiration| expiration < now()) {
        return Err(refused("signature is already expired"));
    }
    let path = asked("path")?.unwrap_or_default();
    let user = asked("username")?.unwrap_or_default();
    let expected = sign(&path, operation, &user, token, expiration);
    if is_equal(expected.as_bytes(), signature.as_bytes()) {
        Ok(())
    } else {
        Err(refused("invalid signature"))
    }
}

fn sign(path: &str, operation: &str, user: &str, token: &Token, expiration: Option<i64>) -> String {
    let until = expiration.map_or(String::new(), |expiration| format!(":{expiration}"));
    let text = format!("{path}:{operation}:{user}:{}{until}", token.0);
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
}

fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let pairs = Sha256::digest(one).into_iter().zip(Sha256::digest(other));
    let difference = pairs.fold(0, |all, (one, other)| all | (one ^ other));
    std::hint::black_box(difference) == 0
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

pub(super) fn refused(message: &str) -> HttpError {
    HttpError::new(StatusCode::UNAUTHORIZED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_what_e2b_makes() {
        // Made with get_signature of E2B's Python SDK.
        let token = Token::new("token".to_owned()).unwrap();
        assert_eq!(sign("a b.txt", "read", "", &token, None), SIGNED_READ);
        assert_eq!(sign("/x", "write", "root", &token, Some(2_000_000_000)), SIGNED_WRITE);
    }

    const SIGNED_READ: &str = "v1_VtvWmRAG//CWNEQmqUFXjEg3/AjstLtRw1GeOQ95t44";
    const SIGNED_WRITE: &str = "v1_aXVyj1c7EY1G015DovbVaEsxODyJqWcrGsqjShUfJek";

    #[test]
    fn a_token_is_equal_to_itself_alone_and_not_shown() {
        let token = Token::new("secret".to_owned()).unwrap();
        assert!(token.is(b"secret"));
        for other in [&b""[..], b"secre", b"secret ", b"SECRET"] {
            assert!(!token.is(other));
        }
        assert!(!format!("{token:?}").contains("secret"));
        assert!(Token::new(String::new()).is_none());
    }
}
