//! `POST /init`: what the engine tells the guest about its sandbox.
//!
//! It comes after the start and again after every resume. A field that is missing changes
//! nothing; fields that we do not know are for other versions and are passed over.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde::Deserialize;

use super::HttpError;
use crate::server::Body;
use crate::state::{LimitsTold, State};

/// The version of E2B's agent whose behaviour this guest has.
const VERSION: HeaderValue = HeaderValue::from_static("0.6.13");

/// As large as the message may be.
const LARGEST: usize = 1 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    env_vars: Option<BTreeMap<String, String>>,
    default_user: Option<String>,
    default_workdir: Option<String>,
    limits: Option<Limits>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Limits {
    memory_bytes: Option<u64>,
    cpu_millis: Option<u64>,
    pids: Option<u64>,
    disk_bytes: Option<u64>,
}

/// Takes over what was told.
pub(super) async fn init(body: Incoming, state: &State) -> Result<Response<Body>, HttpError> {
    let body = Limited::new(body, LARGEST).collect().await.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let message = format!("the message is larger than {LARGEST} bytes");
            HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        } else {
            HttpError::bad_request(format!("the message broke off: {error}"))
        }
    })?;
    apply(parse(&body.to_bytes())?, state);
    let mut response = super::empty(StatusCode::NO_CONTENT);
    response.headers_mut().insert("x-envd-version", VERSION);
    Ok(response)
}

fn parse(body: &[u8]) -> Result<Told, HttpError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Told::default());
    }
    let told: Told = serde_json::from_slice(body)
        .map_err(|error| HttpError::bad_request(format!("the message makes no sense: {error}")))?;
    for (name, value) in told.env_vars.iter().flatten() {
        // Such a variable would make every later command fail, far from who set it.
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(HttpError::bad_request(format!("'{name}' cannot be a variable")));
        }
    }
    if told.default_workdir.as_ref().is_some_and(|workdir| workdir.contains('\0')) {
        return Err(HttpError::bad_request("the default folder holds a NUL byte"));
    }
    Ok(told)
}

fn apply(told: Told, state: &State) {
    let mut defaults = state.defaults();
    if let Some(variables) = told.env_vars {
        defaults.environment = variables;
    }
    if let Some(user) = told.default_user.filter(|user| !user.is_empty()) {
        defaults.user = user;
    }
    if let Some(workdir) = told.default_workdir.filter(|workdir| !workdir.is_empty()) {
        defaults.workdir = Some(PathBuf::from(workdir));
    }
    if let Some(limits) = told.limits {
        defaults.limits = Some(LimitsTold {
            memory_bytes: limits.memory_bytes,
            cpu_millis: limits.cpu_millis,
            pids: limits.pids,
            disk_bytes: limits.disk_bytes,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_nulls_and_nothing_at_all_are_fine() {
        assert!(parse(b" \n").unwrap().env_vars.is_none());
        let told = parse(
            br#"{"envVars":{"A":"b"},"defaultUser":null,"accessToken":"x","lifecycleID":1,
                 "limits":{"memoryBytes":5,"cpuMillis":1500,"other":2}}"#,
        )
        .unwrap();
        assert_eq!(told.env_vars.unwrap()["A"], "b");
        assert_eq!(told.default_user, None);
        let limits = told.limits.unwrap();
        assert_eq!((limits.memory_bytes, limits.cpu_millis), (Some(5), Some(1500)));
    }

    #[test]
    fn what_no_process_could_be_started_with_is_refused() {
        for body in [
            &br#"{"envVars":{"A=B":"c"}}"#[..],
            br#"{"envVars":{"":"c"}}"#,
            br#"{"envVars":{"A":"\u0000"}}"#,
            br#"{"defaultWorkdir":"/a\u0000"}"#,
            br#"{"envVars":[]}"#,
            br#"{"envVars":{"A":1}}"#,
            b"[",
        ] {
            assert_eq!(parse(body).unwrap_err().status, StatusCode::BAD_REQUEST, "{body:?}");
        }
    }
}
