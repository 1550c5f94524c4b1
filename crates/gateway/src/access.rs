//! Who is asking.
//!
//! Over the unix socket: whoever may also start the daemon, as the kernel says. Otherwise
//! whoever shows a key, in any of the headers in which clients send one.

use api_v1::ApiError;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use domain::Token;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use policy::Caller;
use store::KeyHash;

use crate::trace::RequestId;
use crate::{Gateway, Peer};

/// Where clients put their keys.
const HEADERS: [&str; 3] = ["authorization", "leap0-authorization", "x-api-key"];

/// No key is this long; hashing what is would only take time.
const LONGEST: usize = 512;

/// Lets only those through who are somebody.
pub(crate) async fn find_caller(
    State(gateway): State<Gateway>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    match gateway.caller(&parts).await {
        Ok(mut caller) => {
            let id = parts.extensions.get::<RequestId>();
            caller.request = id.map(|RequestId(id)| id.clone());
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

impl Gateway {
    /// Who asks, if anybody.
    pub(crate) async fn caller(&self, request: &Parts) -> Result<Caller, Refusal> {
        let is_e2b = api_e2b::is_its_path(request.uri.path());
        let keys = keys(&request.headers);
        if keys.is_empty() {
            if let Some(Peer::Local { .. }) = request.extensions.get() {
                return Ok(Caller::local());
            }
            let message = "there is no API key in the request: send it as \
                           `Authorization: Bearer KEY`; the daemon printed it at its start";
            return Err(Refusal::unknown(message, is_e2b));
        }
        for key in keys {
            let found = self.shared.store.key(&KeyHash::of(&key)).await;
            match found {
                Ok(Some(key)) => return Ok(Caller::key(key.name, key.owner)),
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "no key was checked");
                    // The key may be right: whoever is told that it is not throws it away.
                    let message = "no key can be checked now, because the daemon's database does \
                                   not answer: ask again in a moment, and if that does not help, \
                                   the daemon's log says what is wrong with it";
                    let status = StatusCode::SERVICE_UNAVAILABLE;
                    return Err(Refusal { status, message, is_e2b });
                }
            }
        }
        let message = "the API key is not known here: the daemon keeps its own in a file that \
                       it names at its start";
        Err(Refusal::unknown(message, is_e2b))
    }
}

/// The keys that a request shows.
fn keys(headers: &HeaderMap) -> Vec<Token> {
    let mut keys = Vec::new();
    for name in HEADERS {
        for value in headers.get_all(name) {
            let Ok(value) = value.to_str() else { continue };
            let bare = bare_key(value);
            // The name of a user inside a sandbox travels like this.
            let is_user = name == header::AUTHORIZATION.as_str()
                && value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("basic "));
            if !is_user && !bare.is_empty() && bare.len() <= LONGEST {
                keys.push(Token::new(bare));
            }
        }
    }
    keys
}

fn bare_key(value: &str) -> &str {
    let value = value.trim();
    match value.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("bearer ") => value[7..].trim(),
        _ => value,
    }
}

/// Why nobody is let in.
#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: &'static str,
    is_e2b: bool,
}

impl Refusal {
    /// Nobody that is known.
    fn unknown(message: &'static str, is_e2b: bool) -> Self {
        Self { status: StatusCode::UNAUTHORIZED, message, is_e2b }
    }

    /// Whether the same request may be let in later.
    pub(crate) fn is_passing(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, message, is_e2b } = self;
        if is_e2b {
            return api_e2b::error(status, message);
        }
        ApiError::new(status, message).into_response()
    }
}
