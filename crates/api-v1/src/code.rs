//! Code in kernels: contexts that remember, and executions that outlive who asked for them.
//!
//! All of it is the guest's work. Requests and answers pass as they are, because the guest speaks
//! these words itself; only its refusals are put into the shape that they have here.

mod contexts;
mod executions;
mod packages;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use control::Control;
use futures::TryStreamExt as _;
use http::{HeaderMap, Uri, header};
use sync_wrapper::SyncStream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ApiError;
use crate::extract::{Asking, Which};

/// The most that is read of what a refusal says.
const LARGEST_REFUSAL: usize = 64 << 10;

/// The headers that mean something to the guest.
const PASSED_ON: [header::HeaderName; 2] = [header::CONTENT_TYPE, header::CONTENT_LENGTH];

pub(crate) fn described() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(contexts::create, contexts::list))
        .routes(routes!(contexts::get, contexts::delete))
        .routes(routes!(contexts::restart))
        .routes(routes!(contexts::interrupt))
        .routes(routes!(contexts::complete))
        .routes(routes!(executions::execute))
        .routes(routes!(executions::execute_stream))
        .routes(routes!(executions::begin, executions::list))
        .routes(routes!(executions::follow, executions::cancel))
        .routes(routes!(executions::answer))
        .routes(routes!(packages::install))
}

/// What the guest answered. To take it from a request is to pass the request on.
struct Passed(Response);

impl FromRequest<Control> for Passed {
    type Rejection = ApiError;

    async fn from_request(request: Request, control: &Control) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        let Asking(caller) =
            <Asking as FromRequestParts<_>>::from_request_parts(&mut parts, control).await?;
        let Which(which) = Which::from_request_parts(&mut parts, control).await?;
        let guest = control.guest(&caller, &which).await?;
        parts.uri = inside(&parts.uri)?;
        let mut headers = HeaderMap::new();
        for name in PASSED_ON {
            if let Some(value) = parts.headers.remove(&name) {
                headers.insert(name, value);
            }
        }
        parts.headers = headers;
        let body = body.into_data_stream().map_err(guest_proto::client::BoxError::from);
        let request = http::Request::from_parts(parts, SyncStream::new(body));
        let answer = guest.forward(request).await?.map(Body::new);
        if answer.status().is_client_error() || answer.status().is_server_error() {
            return Err(refusal(answer).await);
        }
        Ok(Self(answer.into_response()))
    }
}

impl IntoResponse for Passed {
    fn into_response(self) -> Response {
        self.0
    }
}

/// The guest's own address of what a request is about: everything from `/code` on.
fn inside(address: &Uri) -> Result<Uri, ApiError> {
    let whole = address.path_and_query().map_or("", |path| path.as_str());
    // `/v1/sandbox/{id}/code/...`: an id holds no slash.
    let at = whole.match_indices('/').nth(3).map_or(whole.len(), |(at, _)| at);
    whole[at..].parse().map_err(|_| ApiError::invalid("the address cannot be passed on"))
}

/// A guest's refusal, in the words of this API.
async fn refusal(answer: Response) -> ApiError {
    let status = answer.status();
    let bytes = axum::body::to_bytes(answer.into_body(), LARGEST_REFUSAL).await;
    let message = bytes.ok().and_then(|bytes| {
        let body: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        Some(body.get("message")?.as_str()?.to_owned())
    });
    ApiError::new(status, message.unwrap_or_else(|| format!("the sandbox answered {status}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_sees_what_follows_the_sandbox() {
        for (whole, inside_it) in [
            ("/v1/sandbox/abc/code/contexts", "/code/contexts"),
            (
                "/v1/sandbox/abc/code/executions/1?from=2&follow=true",
                "/code/executions/1?from=2&follow=true",
            ),
        ] {
            assert_eq!(inside(&whole.parse().unwrap()).unwrap().to_string(), inside_it);
        }
    }
}
