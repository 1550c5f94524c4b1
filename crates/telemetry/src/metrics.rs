//! What is counted, in the words of `OpenMetrics`.
//!
//! Every label's values come from a set that no client can add to: what is not in it is counted
//! as `other`.

mod labels;

use std::sync::Mutex;
use std::time::Duration;

use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use labels::{Creation, Request, Route, Routes, STATES, Sandboxes};

/// How long requests take: from a list of sandboxes to a command that is waited for.
const REQUEST_BUCKETS: [f64; 13] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

/// How long sandboxes take to be made: from one that was prepared to one on a slow disk.
const CREATE_BUCKETS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// The daemon's figures. Counting waits for nobody for long, from any task.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    routes: Mutex<Routes>,
    requests: Family<Request, Counter>,
    request_seconds: Family<Route, Histogram, fn() -> Histogram>,
    sandboxes: Family<Sandboxes, Gauge>,
    creates: Family<Creation, Counter>,
    create_seconds: Histogram,
    executions: Counter,
}

/// How the making of a sandbox came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It runs.
    Created,
    /// It was not allowed, or asked for what there is not.
    Refused,
    /// It broke.
    Failed,
}

impl Metrics {
    /// Nothing counted yet. The version is that of this program.
    pub fn new(version: &str) -> Self {
        let request_buckets: fn() -> Histogram = || Histogram::new(REQUEST_BUCKETS);
        let mut metrics = Self {
            registry: Registry::default(),
            routes: Mutex::default(),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(request_buckets),
            sandboxes: Family::default(),
            creates: Family::default(),
            create_seconds: Histogram::new(CREATE_BUCKETS),
            executions: Counter::default(),
        };
        metrics.register(version);
        // A figure that is there from the start can be told from one that nobody collects.
        metrics.set_sandboxes(&[]);
        for outcome in [Outcome::Created, Outcome::Refused, Outcome::Failed] {
            let _ = metrics.creates.get_or_create(&Creation { outcome: outcome.name() });
        }
        metrics
    }

    /// Counts an answered request. The route is its template, such as `/v1/sandboxes/{id}`, never
    /// the path that was asked for; a request that met no route has none.
    pub fn request(&self, method: &str, route: Option<&str>, status: u16, duration: Duration) {
        let route = match self.routes.lock() {
            Ok(mut routes) => routes.known(route),
            Err(poisoned) => poisoned.into_inner().known(route),
        };
        let request = Request {
            method: labels::method(method),
            route: route.clone(),
            status: labels::status(status),
        };
        self.requests.get_or_create(&request).inc();
        self.request_seconds.get_or_create(&Route { route }).observe(duration.as_secs_f64());
    }

    /// Sets how many sandboxes there are in each state, by its name. In a state that is not named
    /// there are none.
    pub fn set_sandboxes(&self, counts: &[(&str, u64)]) {
        for state in STATES.into_iter().chain([labels::OTHER]) {
            let matching = counts.iter().filter(|(name, _)| labels::state(name) == state);
            let count = matching.fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.sandboxes.get_or_create(&Sandboxes { state }).set(count);
        }
    }

    /// Counts a sandbox that was asked for. How long it took counts where one was made.
    pub fn created(&self, outcome: Outcome, duration: Duration) {
        self.creates.get_or_create(&Creation { outcome: outcome.name() }).inc();
        if outcome == Outcome::Created {
            self.create_seconds.observe(duration.as_secs_f64());
        }
    }

    /// Counts a command or a piece of code that was started in a sandbox.
    pub fn executed(&self) {
        self.executions.inc();
    }

    /// All of it as `OpenMetrics` text, to be served as
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut text, &self.registry);
        text
    }

    fn register(&mut self, version: &str) {
        let registry = &mut self.registry;
        registry.register("http_requests", "Answered requests", self.requests.clone());
        registry.register_with_unit(
            "http_request",
            "How long requests took to be answered",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        registry.register("sandboxes", "Sandboxes in each state", self.sandboxes.clone());
        registry.register("sandbox_creates", "Sandboxes asked for", self.creates.clone());
        registry.register_with_unit(
            "sandbox_create",
            "How long sandboxes took to be made",
            Unit::Seconds,
            self.create_seconds.clone(),
        );
        registry.register("executions", "Commands and code started", self.executions.clone());
        let version = [("version".to_owned(), version.to_owned())].to_vec();
        registry.register("build", "This program", Info::new(version));
    }
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests;
