//! `POST /init`: what the engine tells the guest about its sandbox.
//!
//! It comes after the start and again after every resume. A field that is missing changes
//! nothing; fields that we do not know are for other versions and are passed over, and so are
//! `hyperloopIP`, `volumeMounts` and `lifecycleID`, which nothing here needs.
//!
//! Who may tell: the guest takes connections from outside of the sandbox alone, and gateways do
//! not pass this route on, so the first one to tell a token is the engine. From then on the token
//! itself is the proof: every later message has to show it, in `X-Access-Token` or as its own
//! `accessToken`. So another token is taken only from who knows the one before; a newer time is no
//! proof, because anybody can say a time.
//!
//! A message that is older than the last one changes nothing and is no error: the engine may
//! have sent two, and they may have met on the way.
//!
//! The clock is not set, though E2B's agent does: a sandbox shares the clock of its machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use buffa_types::google::protobuf::Timestamp;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Incoming;
use serde::Deserialize;

use super::access::{Token, refused};
use super::{HttpError, renewed, trust};
use crate::files::{FileError, blocking};
use crate::server::Body;
use crate::state::{LimitsTold, State};

/// The version of E2B's agent whose behaviour this guest has.
const VERSION: HeaderValue = HeaderValue::from_static("0.6.13");

/// As large as the message may be.
const LARGEST: usize = 1 << 20;

/// As long as a token may be.
const LONGEST_TOKEN: usize = 4096;

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Told {
    env_vars: Option<BTreeMap<String, String>>,
    access_token: Option<String>,
    timestamp: Option<Timestamp>,
    ca_bundle: Option<String>,
    default_user: Option<String>,
    default_workdir: Option<String>,
    limits: Option<Limits>,
    sudo: Option<bool>,
    machine_id: Option<String>,
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
pub(super) async fn init(
    head: &Parts,
    body: Incoming,
    state: &State,
) -> Result<Response<Body>, HttpError> {
    let mut told = parse(&super::whole(body, LARGEST).await?)?;
    if accept(head, &told, state)? {
        let bundle = told.ca_bundle.take().filter(|bundle| !bundle.is_empty());
        let machine = told.machine_id.take();
        apply(told, state);
        if let Some(id) = machine {
            let place = Path::new("/etc/machine-id");
            let identify = move || {
                renewed::identify(Path::new("/"), &id)
                    .map_err(|error| FileError::from_io(&error, place))
            };
            blocking::short(identify).await?;
        }
        if let Some(bundle) = bundle {
            blocking::short(move || trust::install(Path::new("/"), &bundle)).await?;
        }
    }
    let mut response = super::empty(StatusCode::NO_CONTENT);
    response.headers_mut().insert("x-envd-version", VERSION);
    Ok(response)
}

/// Whether the message counts; an error when its sender does not show the token.
fn accept(head: &Parts, told: &Told, state: &State) -> Result<bool, HttpError> {
    let mut access = state.access();
    if let Some(token) = &access.token {
        let is_told = told.access_token.as_ref().is_some_and(|told| token.is(told.as_bytes()));
        if !is_told && !token.is_shown(&head.headers) {
            return Err(refused("the guest has an access token already, and this is not it"));
        }
    }
    let told_at = told.timestamp.as_ref().map(|time| (time.seconds, time.nanos));
    if told_at.is_some() && told_at < access.told_at {
        return Ok(false);
    }
    access.told_at = told_at.or(access.told_at);
    if let Some(token) = told.access_token.clone().and_then(Token::new) {
        access.token = Some(token);
    }
    Ok(true)
}

fn parse(body: &[u8]) -> Result<Told, HttpError> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Told::default());
    }
    // Where it makes no sense is told and not what stands there: that may be the token.
    let told: Told = serde_json::from_slice(body).map_err(|error| {
        HttpError::bad_request(format!(
            "the message makes no sense at line {}, column {}",
            error.line(),
            error.column()
        ))
    })?;
    for (name, value) in told.env_vars.iter().flatten() {
        // Such a variable would make every later command fail, far from who set it.
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(HttpError::bad_request(format!("'{name}' cannot be a variable")));
        }
    }
    if told.default_workdir.as_ref().is_some_and(|workdir| workdir.contains('\0')) {
        return Err(HttpError::bad_request("the default folder holds a NUL byte"));
    }
    if told.access_token.as_ref().is_some_and(|token| !is_header(token)) {
        return Err(HttpError::bad_request("the access token cannot be sent in a header"));
    }
    if told.machine_id.as_ref().is_some_and(|id| !renewed::is_sensible(id)) {
        return Err(HttpError::bad_request("'machineId' is not 32 hexadecimal digits"));
    }
    let bundle = told.ca_bundle.as_deref().unwrap_or_default();
    if !bundle.is_empty() && !trust::is_sensible(bundle) {
        return Err(HttpError::bad_request("'caBundle' holds no certificates, or too many"));
    }
    Ok(told)
}

fn is_header(text: &str) -> bool {
    text.len() <= LONGEST_TOKEN && text.bytes().all(|byte| (0x21..0x7f).contains(&byte))
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
    if let Some(sudo) = told.sudo {
        defaults.sudo = sudo;
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
            br#"{"envVars":{"A":"b"},"defaultUser":null,"accessToken":null,"lifecycleID":1,
                 "timestamp":"2026-01-02T03:04:05.678+01:00","volumeMounts":[{}],
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
            br#"{"timestamp":"yesterday"}"#,
            br#"{"accessToken":"a b"}"#,
            br#"{"accessToken":"secret\u00e9"}"#,
            br#"{"accessToken":["secret"]}"#,
            br#"{"caBundle":"secret"}"#,
            br#"{"machineId":"secret"}"#,
            b"[",
        ] {
            let Err(error) = parse(body) else { panic!("{body:?}") };
            assert_eq!(error.status, StatusCode::BAD_REQUEST, "{body:?}");
            assert!(!error.message.contains("secret"), "{error:?}");
        }
    }
}
