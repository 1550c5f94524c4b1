//! What handlers take from requests, with errors of our own shape.

use axum::extract::{
    FromRequest, FromRequestParts, OptionalFromRequestParts, Path, Query, Request,
};
use control::Reference;
use http::StatusCode;
use http::request::Parts;
use policy::Caller;
use serde::de::DeserializeOwned;

use crate::ApiError;
use crate::room::whole_body;

/// The most that a body of JSON may have.
pub const LARGEST_BODY: usize = 10 << 20;

/// Who asks. The gateway has found it out.
#[derive(Debug, Clone)]
pub struct Asking(pub Caller);

impl<S: Sync> FromRequestParts<S> for Asking {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        // Fails closed: a route that the gateway does not guard serves nobody.
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.map(Asking).ok_or_else(|| {
            ApiError::new(StatusCode::UNAUTHORIZED, "nobody said who is asking: send an API key")
        })
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for Asking {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Option<Self>, ApiError> {
        Ok(parts.extensions.get::<Caller>().cloned().map(Asking))
    }
}

/// The sandbox that a path names.
#[derive(Debug, Clone)]
pub struct Which(pub Reference);

impl<S: Send + Sync> FromRequestParts<S> for Which {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        #[derive(serde::Deserialize)]
        struct Named {
            id: String,
        }
        let path = <Path<Named> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let Path(named) = path.map_err(|error| ApiError::invalid(error.body_text()))?;
        Ok(Self(named.id.as_str().into()))
    }
}

/// The number of the process that a path names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WhichProcess(pub(crate) u32);

impl<S: Send + Sync> FromRequestParts<S> for WhichProcess {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        #[derive(serde::Deserialize)]
        struct Named {
            pid: String,
        }
        let path = <Path<Named> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let Path(named) = path.map_err(|error| ApiError::invalid(error.body_text()))?;
        let pid = named.pid.parse();
        pid.map(Self).map_err(|_| ApiError::wrong("pid", "it is not the number of a process"))
    }
}

/// What a query asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let query = <Query<T> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let Query(query) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
        Ok(Self(query))
    }
}

/// A body of JSON. None at all counts as `{}`; what kind it says it is does not matter.
#[derive(Debug, Clone)]
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = whole_body(&parts.headers, body, LARGEST_BODY).await?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        if text.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            // Fields in their order, without names, would be taken otherwise.
            return Err(ApiError::invalid("the body has to be a JSON object"));
        }
        let mut reader = serde_json::Deserializer::from_slice(text);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let (field, cause) = (error.path().to_string(), error.into_inner());
            if cause.is_data() && field != "." {
                ApiError::wrong(field, cause.to_string())
            } else {
                ApiError::invalid(format!("the body is not the JSON that belongs here: {cause}"))
            }
        })?;
        reader.end().map_err(|error| {
            ApiError::invalid(format!("something follows the JSON of the body: {error}"))
        })?;
        Ok(Self(value))
    }
}
