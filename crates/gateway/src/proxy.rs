//! The way to a sandbox's own address: requests are passed to its guest as they are.
//!
//! A sandbox is named by the host name, or, where the host is the daemon's own, by the headers
//! that E2B's clients send. A signed file address may carry neither; its signature tells.
//!
//! Who may pass: whoever shows the sandbox's token, a key or the unix socket; anybody where the
//! sandbox asks for no token. A signature is the guest's to check, so such a request is passed on
//! without the token.
//!
//! The guest answers on two ports: E2B's agent and E2B's code interpreter. At a sandbox's own name
//! without a port, Leap0's code interpreter is there beside the agent.

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use control::{ControlError, Fault, Reference};
use domain::{SandboxId, Token};
use futures::TryStreamExt as _;
use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri, header};
use http_body_util::Limited;
use percent_encoding::percent_decode_str;
use policy::Caller;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use sync_wrapper::SyncStream;

use crate::Gateway;
use crate::address::{AGENT, Host, INTERPRETER};

/// Headers that concern one connection, or that are not the guest's to see.
const NOT_PASSED_ON: [&str; 15] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-access-token",
    "x-api-key",
    "leap0-authorization",
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "traceparent",
];

/// The most that whoever shows nothing may send.
const LARGEST_OF_STRANGERS: usize = 64 << 10;

/// What only the host tells a guest.
const INTERNAL: [&str; 7] =
    ["/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"];

/// Passes requests for sandboxes to their guests, and leaves the others alone.
pub(crate) async fn divert(
    State(gateway): State<Gateway>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    match gateway.target(&parts) {
        Some(target) => gateway.pass(target, parts, body).await,
        None => next.run(Request::from_parts(parts, body)).await,
    }
}

/// Which sandbox a request is for.
struct Target {
    id: String,
    /// Its default port when unset.
    port: Option<u16>,
    /// It carries a signature that the sandbox's token made.
    signer: Option<Caller>,
}

impl Gateway {
    fn target(&self, request: &Parts) -> Option<Target> {
        let host = request.extensions.get::<Host>()?;
        if let Host::Sandbox { id, port } = host {
            return Some(Target { id: id.to_string(), port: *port, signer: None });
        }
        let text = |name: &str| request.headers.get(name)?.to_str().ok();
        if let Some(id) = text("e2b-sandbox-id") {
            let port = text("e2b-sandbox-port").and_then(|port| port.parse().ok());
            let port = Some(port.unwrap_or(AGENT));
            return Some(Target { id: id.to_owned(), port, signer: None });
        }
        if request.uri.path() != "/files" {
            return None;
        }
        let signed = Signed::read(request)?;
        let found = self.shared.control.caller_with_signature(|token| signed.is_made_with(token));
        let (id, caller) = found?;
        Some(Target { id: id.to_string(), port: Some(AGENT), signer: Some(caller) })
    }

    async fn pass(&self, target: Target, mut request: Parts, body: Body) -> Response {
        let which = Reference::from(target.id.as_str());
        let Ok(id) = target.id.parse::<SandboxId>() else { return not_found(&target.id) };
        if INTERNAL.contains(&request.uri.path()) {
            let message = "this path is between the daemon and the guest";
            return (StatusCode::NOT_FOUND, Json(json!({ "code": 404, "message": message })))
                .into_response();
        }
        if !self.shared.control.is_there(&id) {
            return not_found(&target.id);
        }
        // Only files have signed addresses.
        let is_signed = target.signer.is_some()
            || (request.uri.path() == "/files" && Signed::read(&request).is_some());
        let mut body = body;
        let caller = match target.signer {
            Some(signer) => signer,
            None => match self.visitor(&id, &request).await {
                Some(caller) => caller,
                None if is_signed || is_asking_for_life(&request) => Caller::soma(),
                None if is_about_contexts(target.port, &request) => {
                    body = Body::new(Limited::new(body, LARGEST_OF_STRANGERS));
                    Caller::soma()
                }
                None => return self.turned_away(&request).await,
            },
        };
        let control = &self.shared.control;
        let guest = if is_signed {
            control.guest_without_token(&caller, &which).await
        } else {
            control.guest(&caller, &which).await
        };
        let guest = match guest {
            Ok(guest) => guest,
            Err(error) => return refused(&target.id, &error),
        };
        let Some(address) = inside(target.port, &request.uri) else {
            return port_closed(&target.id, target.port.unwrap_or(AGENT));
        };
        request.uri = address;
        strip(&mut request.headers);
        let body = body.into_data_stream().map_err(guest_proto::client::BoxError::from);
        let request = http::Request::from_parts(request, SyncStream::new(body));
        match guest.forward(request).await {
            Ok(answer) => answer.map(Body::new).into_response(),
            Err(error) => refused(&target.id, &error.into()),
        }
    }

    /// What somebody hears who may not come in. A key that cannot be checked now may be right.
    async fn turned_away(&self, request: &Parts) -> Response {
        match self.caller(request).await {
            Err(refusal) if refusal.is_passing() => refusal.into_response(),
            _ => unauthorized(),
        }
    }

    /// Who comes to a sandbox's address.
    async fn visitor(&self, id: &SandboxId, request: &Parts) -> Option<Caller> {
        let control = &self.shared.control;
        if let Some(token) = request.headers.get("x-access-token") {
            // A wrong one is not made up for by anything else.
            return control.caller_with_token(id, token.to_str().ok()?);
        }
        if let Ok(caller) = self.caller(request).await {
            return Some(caller);
        }
        control.caller_of_open_sandbox(id)
    }
}

/// Anybody may ask whether a guest lives, as with E2B: clients do when something failed.
fn is_asking_for_life(request: &Parts) -> bool {
    request.method == http::Method::GET && request.uri.path() == "/health"
}

/// E2B's clients show no token when they make or end contexts. What is run in them is another
/// matter: that has to be shown to.
fn is_about_contexts(port: Option<u16>, request: &Parts) -> bool {
    let path = request.uri.path();
    let is_context = path == "/contexts" || path.starts_with("/contexts/");
    port == Some(INTERPRETER) && is_context && !request.headers.contains_key("x-access-token")
}

/// Where the guest answers for a port of its sandbox; `None` where nobody does.
fn inside(port: Option<u16>, address: &Uri) -> Option<Uri> {
    let path = address.path();
    let below = |place: &str| {
        path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let door = match port {
        Some(INTERPRETER) => "/code/e2b",
        None if ["/healthz", "/contexts", "/execute"].into_iter().any(below) => "/code",
        None | Some(AGENT) => "",
        Some(_) => return None,
    };
    let whole = address.path_and_query().map_or("/", |path| path.as_str());
    format!("{door}{whole}").parse().ok()
}

/// Takes off what is not the guest's.
fn strip(headers: &mut HeaderMap) {
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    for name in NOT_PASSED_ON.iter().copied().chain(named.iter().map(String::as_str)) {
        headers.remove(name);
    }
    // Basic names a user inside; everything else in this header is a key of ours.
    let is_user = |value: &http::HeaderValue| {
        value.as_bytes().get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "))
    };
    let user = headers.get_all(header::AUTHORIZATION).iter().find(|value| is_user(value)).cloned();
    headers.remove(header::AUTHORIZATION);
    if let Some(user) = user {
        headers.insert(header::AUTHORIZATION, user);
    }
}

/// What a signed file address says.
struct Signed {
    words: String,
    signature: String,
}

impl Signed {
    fn read(request: &Parts) -> Option<Self> {
        let mut fields = [const { None }; 4];
        for pair in request.uri.query()?.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let place = match name {
                "path" => 0,
                "username" => 1,
                "signature" => 2,
                "signature_expiration" => 3,
                _ => continue,
            };
            let value = value.replace('+', " ");
            fields[place] = Some(percent_decode_str(&value).decode_utf8().ok()?.into_owned());
        }
        let [path, user, signature, expiration] = fields;
        let operation = if request.method == http::Method::GET { "read" } else { "write" };
        let (path, user) = (path.unwrap_or_default(), user.unwrap_or_default());
        let mut words = format!("{path}:{operation}:{user}:TOKEN");
        if let Some(expiration) = expiration {
            words = format!("{words}:{expiration}");
        }
        // The place of the token, found from behind: the path may hold anything.
        Some(Self { words, signature: signature? })
    }

    fn is_made_with(&self, token: &Token) -> bool {
        let Some(place) = self.words.rfind(":TOKEN") else { return false };
        let (before, after) = self.words.split_at(place);
        let text = format!("{before}:{}{}", token.reveal(), &after[":TOKEN".len()..]);
        let hash = Sha256::digest(text.as_bytes());
        let hash = base64::engine::general_purpose::STANDARD_NO_PAD.encode(hash);
        Token::new(format!("v1_{hash}")).matches(&self.signature)
    }
}

fn refused(id: &str, error: &ControlError) -> Response {
    match error.fault() {
        Fault::NotFound | Fault::Conflict | Fault::Forbidden => not_found(id),
        _ => {
            let message = format!("the sandbox cannot be reached: {error}");
            let body = json!({ "sandboxId": id, "message": message, "code": 502 });
            (StatusCode::BAD_GATEWAY, Json(body)).into_response()
        }
    }
}

fn not_found(id: &str) -> Response {
    let id = crate::answer::harmless(id);
    let body = json!({ "sandboxId": id, "message": "The sandbox was not found", "code": 502 });
    (StatusCode::BAD_GATEWAY, Json(body)).into_response()
}

fn port_closed(id: &str, port: u16) -> Response {
    let message = "The sandbox is running but port is not open";
    let body = json!({ "sandboxId": id, "message": message, "port": port, "code": 502 });
    (StatusCode::BAD_GATEWAY, Json(body)).into_response()
}

fn unauthorized() -> Response {
    let message = "the sandbox wants to see its token: send it as `X-Access-Token`, or an API key";
    (StatusCode::UNAUTHORIZED, Json(json!({ "code": 401, "message": message }))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ports_lead_to_the_guest_and_no_other() {
        let cases = [
            (Some(AGENT), "/files?path=a", Some("/files?path=a")),
            (Some(INTERPRETER), "/execute", Some("/code/e2b/execute")),
            (Some(INTERPRETER), "/contexts/1?x=y", Some("/code/e2b/contexts/1?x=y")),
            (None, "/contexts/1", Some("/code/contexts/1")),
            (None, "/execute/async", Some("/code/execute/async")),
            (None, "/executed", Some("/executed")),
            (None, "/files", Some("/files")),
            (Some(8080), "/", None),
        ];
        for (port, path, expected) in cases {
            let inside = inside(port, &path.parse().unwrap()).map(|address| address.to_string());
            assert_eq!(inside.as_deref(), expected, "{port:?} {path}");
        }
    }
}
