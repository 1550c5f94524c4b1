//! The metadata service of a sandbox, at 169.254.169.254: what it may know of itself.
//!
//! A reader first asks for a token with `PUT /latest/api/token`, which says how long it is good
//! for; requests that pages or redirects can make do not get that far. Then
//! `/latest/meta-data/leap0` and what is below it can be read, as JSON for who accepts that and as
//! a listing otherwise.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;

use super::names::RESOLVER;
use super::sandbox::Sandbox;
use crate::{Authority, Rules};

/// A sandbox has no more tokens at a time; the one that ends first makes room.
const MOST_TOKENS: usize = 256;
const LONGEST_SECONDS: u64 = 21600;
const PATIENCE: Duration = Duration::from_mins(1);
/// What others call the same headers is understood too.
const SECONDS: [&str; 2] = ["x-metadata-token-ttl-seconds", "x-aws-ec2-metadata-token-ttl-seconds"];
const TOKEN: [&str; 2] = ["x-metadata-token", "x-aws-ec2-metadata-token"];

/// The tokens of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<String, Instant>>);

/// Serves one connection.
pub(crate) async fn serve(sandbox: &Arc<Sandbox>, stream: TcpStream) {
    let service = service_fn(|request: Request<Incoming>| async move {
        Ok::<_, Infallible>(answer(
            sandbox,
            request.method(),
            request.uri().path(),
            request.headers(),
        ))
    });
    // Whatever the client did wrong is its own affair.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn answer(
    sandbox: &Sandbox,
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Response<Full<Bytes>> {
    let path = path.trim_end_matches('/');
    if path == "/latest/api/token" {
        if method != Method::PUT {
            return text(StatusCode::METHOD_NOT_ALLOWED, "ask for a token with PUT\n");
        }
        let seconds = header(headers, &SECONDS).and_then(|text| text.parse().ok());
        let seconds = seconds.filter(|seconds| (1..=LONGEST_SECONDS).contains(seconds));
        return match seconds.and_then(|seconds| sandbox.tokens.give(seconds)) {
            Some(token) => text(StatusCode::OK, &token),
            None => text(
                StatusCode::BAD_REQUEST,
                "X-metadata-token-ttl-seconds must be a number from 1 to 21600\n",
            ),
        };
    }
    if method != Method::GET && method != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "metadata is read with GET\n");
    }
    if !header(headers, &TOKEN).is_some_and(|token| sandbox.tokens.is_good(token)) {
        return text(
            StatusCode::UNAUTHORIZED,
            "X-metadata-token must be a token from PUT /latest/api/token\n",
        );
    }
    let whole = document(&sandbox.rules().rules);
    let Some(found) = find(&whole, path) else {
        return text(StatusCode::NOT_FOUND, "there is no such metadata\n");
    };
    let wants_json =
        |value: &HeaderValue| value.to_str().is_ok_and(|value| value.contains("application/json"));
    if headers.get(ACCEPT).is_some_and(wants_json) {
        return typed(StatusCode::OK, found.to_string(), "application/json");
    }
    text(StatusCode::OK, &listing(found))
}

/// Everything there is, as a tree.
fn document(rules: &Rules) -> Value {
    let resolver = RESOLVER.to_string();
    let certificate = rules.authority.as_ref().map(|Authority { certificate, .. }| certificate);
    let mut own = Map::new();
    own.insert("schema_version".to_owned(), json!(1));
    own.insert("sandbox".to_owned(), json!({ "id": rules.sandbox }));
    for (part, value) in &rules.metadata {
        own.insert(part.clone(), value.clone());
    }
    let network = json!({ "dns_resolvers": [resolver], "ca_cert_pem": certificate });
    own.insert("network".to_owned(), network);
    json!({ "latest": { "meta-data": { "leap0": own } } })
}

fn find<'a>(whole: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('/').skip(1).try_fold(whole, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        Value::Object(parts) => parts.get(part),
        _ => None,
    })
}

/// The names below something, with a slash behind those that have more below; or what it is.
fn listing(value: &Value) -> String {
    let line = |name: String, value: &Value| {
        if value.is_object() || value.is_array() { format!("{name}/") } else { name }
    };
    match value {
        Value::Object(parts) => {
            let lines = parts.iter().map(|(name, value)| line(name.clone(), value));
            lines.collect::<Vec<_>>().join("\n")
        }
        Value::Array(items) if items.iter().all(Value::is_string) => {
            items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        Value::Array(items) => {
            let lines = items.iter().enumerate().map(|(at, value)| line(at.to_string(), value));
            lines.collect::<Vec<_>>().join("\n")
        }
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

impl Tokens {
    fn give(&self, seconds: u64) -> Option<String> {
        let mut bytes = [0; 24];
        getrandom::fill(&mut bytes).ok()?;
        let token = bytes.iter().fold(String::new(), |token, byte| token + &format!("{byte:02x}"));
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        tokens.retain(|_, until| *until > now);
        if tokens.len() >= MOST_TOKENS {
            let first = tokens.iter().min_by_key(|(_, until)| **until);
            if let Some(first) = first.map(|(token, _)| token.clone()) {
                tokens.remove(&first);
            }
        }
        tokens.insert(token.clone(), now + Duration::from_secs(seconds));
        Some(token)
    }

    fn is_good(&self, token: &str) -> bool {
        let tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(token).is_some_and(|until| *until > Instant::now())
    }
}

fn header<'a>(headers: &'a HeaderMap, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| headers.get(*name))?.to_str().ok()
}

fn text(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    typed(status, text.to_owned(), "text/plain; charset=utf-8")
}

fn typed(status: StatusCode, text: String, kind: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::log::{Log, Writer};
    use domain::SandboxId;

    fn sandbox(folder: &std::path::Path) -> Sandbox {
        let id = SandboxId::from_random([5; 15]);
        let mut rules = Rules::nothing(id.clone());
        rules.metadata.insert("exec".to_owned(), json!({"command": ["sh"], "user": "user"}));
        let log = Log::open(folder, &id, Writer::new().0);
        Sandbox::new(id, rules, log)
    }

    fn ask(
        sandbox: &Sandbox,
        method: &Method,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> (u16, String) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        let response = answer(sandbox, method, path, &map);
        let status = response.status().as_u16();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let body = http_body_util::BodyExt::collect(response.into_body());
        let body = runtime.block_on(body).unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[test]
    fn metadata_wants_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let sandbox = sandbox(folder.path());
        let path = "/latest/meta-data/leap0";
        assert_eq!(ask(&sandbox, &Method::GET, path, &[]).0, 401);
        assert_eq!(ask(&sandbox, &Method::GET, path, &[("x-metadata-token", "x")]).0, 401);
        for seconds in ["0", "21601", "x", "-1"] {
            let header = [("x-metadata-token-ttl-seconds", seconds)];
            assert_eq!(ask(&sandbox, &Method::PUT, "/latest/api/token", &header).0, 400);
        }
        let header = [("x-metadata-token-ttl-seconds", "60")];
        let (status, token) = ask(&sandbox, &Method::PUT, "/latest/api/token", &header);
        assert_eq!(status, 200);
        let token = [("x-metadata-token", token.as_str())];
        let (status, text) = ask(&sandbox, &Method::GET, path, &token);
        assert_eq!((status, text.as_str()), (200, "exec/\nnetwork/\nsandbox/\nschema_version"));
        let (_, text) = ask(&sandbox, &Method::GET, &format!("{path}/sandbox/id"), &token);
        assert_eq!(text, sandbox.id.as_str());
        let (_, text) = ask(&sandbox, &Method::GET, &format!("{path}/exec/command/"), &token);
        assert_eq!(text, "sh");
        assert_eq!(ask(&sandbox, &Method::GET, &format!("{path}/nothing"), &token).0, 404);
        let both = [token[0], ("accept", "application/json")];
        let (_, text) = ask(&sandbox, &Method::GET, path, &both);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema_version"], 1);
        assert_eq!(value["network"]["dns_resolvers"][0], "198.18.0.1");
    }

    #[test]
    fn tokens_take_bounded_room() {
        let tokens = Tokens::default();
        for _ in 0..MOST_TOKENS * 2 {
            tokens.give(60).unwrap();
        }
        assert_eq!(tokens.0.lock().unwrap().len(), MOST_TOKENS);
    }
}
