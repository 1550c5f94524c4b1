//! Keeps strangers' pages out.
//!
//! A browser on this machine reaches the daemon for any page that it shows. Such a page comes
//! with its own name as `Host` when it had its name point here, and with its own `Origin`
//! otherwise; neither is served.

use api_v1::ApiError;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};

use crate::address::Host;
use crate::answer::harmless;
use crate::{Gateway, Peer};

/// Refuses requests of foreign pages and for foreign names; says what host it is for the others.
pub(crate) async fn refuse_strangers(
    State(gateway): State<Gateway>,
    mut request: Request,
    next: Next,
) -> Response {
    // No page reaches the unix socket, and whoever does may call the daemon what they like.
    if matches!(request.extensions().get(), Some(Peer::Local { .. })) {
        request.extensions_mut().insert(Host::Daemon);
        return next.run(without_trailing_slash(request)).await;
    }
    let addresses = &gateway.shared.addresses;
    let authority = authority(&request);
    let Some(host) = addresses.find(&authority) else {
        let message = format!(
            "nobody here is called `{}`: add the name to `hosts` in the configuration if it is \
             this machine's",
            harmless(&authority)
        );
        return ApiError::new(StatusCode::MISDIRECTED_REQUEST, message).into_response();
    };
    if let Some(origin) = foreign_origin(request.headers())
        && !addresses.allows_origin(origin, &authority)
    {
        let message = format!(
            "pages of `{}` may not call this API: add it to `origins` in the configuration \
                 if they shall",
            harmless(origin)
        );
        return ApiError::new(StatusCode::FORBIDDEN, message).into_response();
    }
    request.extensions_mut().insert(host);
    next.run(without_trailing_slash(request)).await
}

/// The name that the client wanted to reach.
fn authority(request: &Request) -> String {
    if let Some(authority) = request.uri().authority() {
        return authority.to_string();
    }
    let host = request.headers().get(header::HOST);
    host.and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned()
}

/// The origin of the page that makes this request, if it is one that must be asked about.
fn foreign_origin(headers: &HeaderMap) -> Option<&str> {
    match headers.get(header::ORIGIN) {
        Some(origin) => Some(origin.to_str().unwrap_or("?")),
        // Some requests of pages carry no origin, but browsers say that they are a page's.
        None => match headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes) {
            Some(b"cross-site" | b"same-site") => Some("another site"),
            _ => None,
        },
    }
}

/// Clients differ about the slash at the end of a path; it means nothing here.
fn without_trailing_slash(mut request: Request) -> Request {
    let uri = request.uri();
    let path = uri.path();
    if path.len() > 1 && path.ends_with('/') {
        let path = path.trim_end_matches('/');
        let path = if path.is_empty() { "/" } else { path };
        let text = match uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        if let Ok(uri) = text.parse() {
            *request.uri_mut() = uri;
        }
    }
    request
}
