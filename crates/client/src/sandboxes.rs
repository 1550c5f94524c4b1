//! Calls on sandboxes.

use std::fmt::Write as _;

use api_v1::life::Reconciled;
use api_v1::sandboxes::{Create, Limits, Listed, Lived, Query, Sandbox, Timeout};
use guest_proto::GuestClient;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::connection::ThroughDaemon;
use crate::{Client, ClientError};

/// A sandbox that the daemon deletes when this is dropped, or when this process dies.
#[derive(Debug)]
pub struct Held {
    /// The sandbox.
    pub sandbox: Sandbox,
    /// The answer that stays open.
    _body: Incoming,
}

impl Client {
    /// Makes a sandbox.
    pub async fn create(&self, wish: &Create) -> Result<Sandbox, ClientError> {
        self.ask(Method::POST, "/v1/sandbox", Some(wish)).await
    }

    /// Makes a sandbox that lives as long as what is returned.
    pub async fn create_held(&self, wish: &Create) -> Result<Held, ClientError> {
        let wish = Create { lifetime: Lived::Connection, ..wish.clone() };
        let mut body = self.send(Method::POST, "/v1/sandbox", Some(&wish)).await?.into_body();
        // The document may come in pieces; it is complete when it can be read.
        let mut text = Vec::new();
        loop {
            let frame = body.frame().await.ok_or_else(|| self.odd(&"the answer ended"))?;
            if let Ok(bytes) = frame.map_err(|error| self.odd(&error))?.into_data() {
                text.extend_from_slice(&bytes);
            }
            match serde_json::from_slice(&text) {
                Ok(sandbox) => return Ok(Held { sandbox, _body: body }),
                Err(error) if error.is_eof() && text.len() < 1 << 20 => {}
                Err(error) => return Err(self.odd(&error)),
            }
        }
    }

    /// One sandbox.
    pub async fn get(&self, which: &str) -> Result<Sandbox, ClientError> {
        self.ask::<(), _>(Method::GET, &path(which, ""), None).await
    }

    /// One page of sandboxes.
    pub async fn list(&self, query: &Query) -> Result<Listed, ClientError> {
        let mut path = "/v1/sandboxes?".to_owned();
        let mut add = |name: &str, value: &str| {
            let _ = write!(path, "{name}={}&", escaped(value));
        };
        let fields = [
            ("state", &query.state),
            ("template", &query.template),
            ("sort", &query.sort),
            ("order-by", &query.order_by),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                add(name, value);
            }
        }
        for label in &query.label {
            add("label", label);
        }
        for (name, value) in [("page", query.page), ("page-size", query.page_size)] {
            if let Some(value) = value {
                add(name, &value.to_string());
            }
        }
        self.ask::<(), _>(Method::GET, &path, None).await
    }

    /// Every sandbox that matches, whatever its page.
    pub async fn list_all(&self, query: &Query) -> Result<Listed, ClientError> {
        let mut query = Query { page: Some(1), page_size: Some(100), ..query.clone() };
        let mut all = self.list(&query).await?;
        while (all.items.len() as u64) < all.total_items {
            query.page = query.page.map(|page| page + 1);
            let page = self.list(&query).await?;
            if page.items.is_empty() {
                break;
            }
            all.items.extend(page.items);
        }
        Ok(all)
    }

    /// Deletes a sandbox.
    pub async fn delete(&self, which: &str) -> Result<(), ClientError> {
        self.order::<()>(Method::DELETE, &path(which, ""), None).await
    }

    /// Runs a sandbox again that ended.
    pub async fn start(&self, which: &str) -> Result<Sandbox, ClientError> {
        self.ask::<(), _>(Method::POST, &path(which, "/start"), None).await
    }

    /// Ends a sandbox and keeps its files.
    pub async fn stop(&self, which: &str) -> Result<Sandbox, ClientError> {
        self.ask::<(), _>(Method::POST, &path(which, "/stop"), None).await
    }

    /// Lets a sandbox stand still; it is put on the disk after so many seconds, or as the daemon is
    /// configured.
    pub async fn pause(&self, which: &str, grace: Option<u64>) -> Result<Sandbox, ClientError> {
        let grace = grace.map(|grace| format!("?grace={grace}")).unwrap_or_default();
        self.ask::<(), _>(Method::POST, &path(which, &format!("/pause{grace}")), None).await
    }

    /// Lets a paused sandbox go on.
    pub async fn resume(&self, which: &str) -> Result<Sandbox, ClientError> {
        self.ask::<(), _>(Method::POST, &path(which, "/resume"), None).await
    }

    /// Has the daemon compare what it knows with what is there.
    pub async fn reconcile(&self) -> Result<Reconciled, ClientError> {
        self.ask::<(), _>(Method::POST, "/v1/reconcile", None).await
    }

    /// Sets when a sandbox's time is over.
    pub async fn set_timeout(&self, which: &str, seconds: u64) -> Result<Sandbox, ClientError> {
        let body = Timeout { timeout: seconds };
        self.ask(Method::POST, &path(which, "/timeout"), Some(&body)).await
    }

    /// Changes what a sandbox may use.
    pub async fn set_limits(&self, which: &str, limits: &Limits) -> Result<Sandbox, ClientError> {
        self.ask(Method::PATCH, &path(which, "/limits"), Some(limits)).await
    }

    /// What a sandbox uses now.
    pub async fn metrics(&self, which: &str) -> Result<guest_proto::client::Metrics, ClientError> {
        self.ask::<(), _>(Method::GET, &path(which, "/metrics"), None).await
    }

    /// Whether the daemon is there.
    pub async fn health(&self) -> Result<(), ClientError> {
        self.order::<()>(Method::GET, "/healthz", None).await
    }

    /// The guest of a sandbox, by its whole id.
    pub fn guest(&self, id: &str) -> Result<GuestClient, ClientError> {
        let mut headers: HeaderMap = self.headers()?;
        // The name of a user inside travels as Basic, so the key goes where nothing else does.
        if let Some(key) = headers.remove(http::header::AUTHORIZATION) {
            headers.insert("leap0-authorization", key);
        }
        let id = HeaderValue::from_str(id).map_err(|error| self.odd(&error))?;
        headers.insert("e2b-sandbox-id", id);
        Ok(GuestClient::new(ThroughDaemon(self.clone())).with_headers(headers))
    }
}

pub(crate) fn path(which: &str, rest: &str) -> String {
    format!("/v1/sandbox/{}{rest}", escaped(which))
}

pub(crate) fn escaped(text: &str) -> impl std::fmt::Display {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
