//! Calls on the guest itself: whether it lives, what it measures, how it is set up.

use std::collections::BTreeMap;

use bytes::Bytes;
use connectrpc::client::full_body;
use http::{Method, Request, response};
use http_body_util::{BodyExt, Limited};
use serde::{Deserialize, Serialize};

use super::error::harmless;
use super::metrics::Metrics;
use super::transport::BASE;
use super::{ANSWER_LIMIT, CALL_TIMEOUT, GuestClient, GuestError};

/// What a guest is told when its sandbox begins or wakes.
#[derive(Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Init {
    /// Variables that every process sees. They replace the earlier ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env_vars: Option<BTreeMap<String, String>>,
    /// What callers have to show from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    /// The host's time, as RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Who runs what names no user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    /// Where that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_workdir: Option<String>,
    /// Certificates that the sandbox is to trust, as PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// What the sandbox may use, for its metrics: from inside it sees the host's figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsTold>,
    /// Whether the sandbox's user may become its root with `sudo`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sudo: Option<bool>,
    /// What the sandbox is called from now on, as 32 hexadecimal digits: it is a copy of another,
    /// and nothing in it that was random is so any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
}

/// What a guest is told of its sandbox's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitsTold {
    /// Memory.
    pub memory_bytes: u64,
    /// Processors, in thousandths.
    pub cpu_millis: u64,
    /// Processes at one time.
    pub pids: u64,
    /// Disk.
    pub disk_bytes: u64,
}

impl std::fmt::Debug for Init {
    /// Variables and the token are secrets.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Init")
            .field("timestamp", &self.timestamp)
            .field("default_user", &self.default_user)
            .field("default_workdir", &self.default_workdir)
            .finish_non_exhaustive()
    }
}

impl GuestClient {
    /// Returns when the guest answers.
    pub async fn health(&self) -> Result<(), GuestError> {
        self.ask(Method::GET, "/health", Bytes::new()).await?;
        Ok(())
    }

    /// What the guest measures now.
    pub async fn metrics(&self) -> Result<Metrics, GuestError> {
        let answer = self.ask(Method::GET, "/metrics", Bytes::new()).await?;
        let mut metrics: Metrics = from_json(&answer)?;
        for interface in metrics.network.iter_mut().flatten() {
            interface.name = harmless(&interface.name);
        }
        Ok(metrics)
    }

    /// The variables that every process sees.
    pub async fn environment(&self) -> Result<BTreeMap<String, String>, GuestError> {
        let answer = self.ask(Method::GET, "/envs", Bytes::new()).await?;
        from_json(&answer)
    }

    /// Tells the guest how its sandbox is set up.
    ///
    /// A guest that has a token already wants to see it: either as [`Init::access_token`] or from
    /// a client [`GuestClient::with_token`], which is how it gets another one.
    pub async fn init(&self, init: &Init) -> Result<(), GuestError> {
        let body = serde_json::to_vec(init).map_err(|error| GuestError::InvalidArgument {
            message: format!("the set-up cannot be written: {error}"),
        })?;
        self.ask(Method::POST, "/init", body.into()).await?;
        Ok(())
    }

    /// One plain HTTP exchange with a short answer.
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Bytes, GuestError> {
        let mut request = Request::builder().method(method).uri(format!("{BASE}{path}"));
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let request = request.body(full_body(body)).map_err(|error| {
            GuestError::InvalidArgument { message: format!("no request can be made: {error}") }
        })?;
        let exchange = async {
            let answer = self.transport.exchange(request).await;
            let (head, body) = answer.map_err(|e| GuestError::unavailable(&e))?.into_parts();
            Ok::<_, GuestError>((head, short_body(body).await?))
        };
        let (head, body) = tokio::time::timeout(CALL_TIMEOUT, exchange).await.map_err(|_| {
            let message = format!("the guest did not answer within {} s", CALL_TIMEOUT.as_secs());
            GuestError::DeadlineExceeded { message }
        })??;
        accept(&head, &body)?;
        Ok(body)
    }
}

/// Reads a body that has no business being long.
pub(super) async fn short_body(body: super::transport::GuestBody) -> Result<Bytes, GuestError> {
    let collected = Limited::new(body, ANSWER_LIMIT).collect().await;
    Ok(collected.map_err(|error| GuestError::unavailable(&*error))?.to_bytes())
}

pub(super) fn accept(head: &response::Parts, body: &[u8]) -> Result<(), GuestError> {
    if head.status.is_success() {
        return Ok(());
    }
    Err(GuestError::from_answer(head.status, &head.headers, body))
}

fn from_json<'a, T: Deserialize<'a>>(answer: &'a [u8]) -> Result<T, GuestError> {
    serde_json::from_slice(answer).map_err(|error| GuestError::Refused {
        code: "internal",
        message: format!("the guest's answer cannot be read: {error}"),
    })
}
