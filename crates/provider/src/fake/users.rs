//! The users of a sandbox in memory: `root` and `user`.

use base64::Engine as _;
use connectrpc::{ConnectError, RequestContext};

/// The home of the user whom a request names, or of `user` when it names none.
pub(super) fn home_of(context: &RequestContext) -> Result<&'static str, ConnectError> {
    let Some(header) = context.header("authorization") else { return Ok("/home/user") };
    let name = header
        .to_str()
        .ok()
        .and_then(|words| words.strip_prefix("Basic "))
        .and_then(|words| base64::engine::general_purpose::STANDARD.decode(words).ok())
        .and_then(|words| String::from_utf8(words).ok())
        .unwrap_or_default();
    home(name.split(':').next().unwrap_or_default()).map_err(ConnectError::unauthenticated)
}

pub(super) fn home(user: &str) -> Result<&'static str, String> {
    match user {
        "user" => Ok("/home/user"),
        "root" => Ok("/root"),
        _ => Err(format!("invalid username: '{user}'")),
    }
}
