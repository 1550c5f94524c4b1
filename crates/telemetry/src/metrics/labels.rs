//! Labels, and the sets that their values come from.

use std::collections::HashSet;
use std::sync::Arc;

use prometheus_client::encoding::EncodeLabelSet;

/// What everything is that is in no set.
pub(super) const OTHER: &str = "other";

/// What sandboxes can be doing, by name.
pub(super) const STATES: [&str; 6] =
    ["starting", "running", "stopped", "deleting", "deleted", "error"];

const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// What we answer with, and what passes through us often. A program in a sandbox may answer with
/// any number at all.
const STATUSES: [&str; 34] = [
    "101", "200", "201", "202", "204", "206", "301", "302", "303", "304", "307", "308", "400",
    "401", "402", "403", "404", "405", "406", "408", "409", "410", "411", "412", "413", "415",
    "416", "422", "429", "499", "500", "502", "503", "504",
];

/// How many routes are told apart. There are fewer, unless a path is taken for its template.
pub(super) const MOST_ROUTES: usize = 256;

/// How long a route's template may be.
const LONGEST_ROUTE: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) route: Arc<str>,
    pub(super) status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Route {
    pub(super) route: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Sandboxes {
    pub(super) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Creation {
    pub(super) outcome: &'static str,
}

pub(super) fn method(method: &str) -> &'static str {
    among(&METHODS, method)
}

pub(super) fn status(status: u16) -> &'static str {
    among(&STATUSES, &status.to_string())
}

pub(super) fn state(state: &str) -> &'static str {
    among(&STATES, state)
}

fn among(set: &[&'static str], value: &str) -> &'static str {
    set.iter().find(|member| **member == value).copied().unwrap_or(OTHER)
}

/// The routes seen so far, up to a bound: they are made elsewhere, and cannot be listed here.
#[derive(Debug, Default)]
pub(super) struct Routes {
    seen: HashSet<Arc<str>>,
}

impl Routes {
    /// The label of a route.
    pub(super) fn known(&mut self, route: Option<&str>) -> Arc<str> {
        let Some(route) = route.filter(|route| route.len() <= LONGEST_ROUTE) else {
            return OTHER.into();
        };
        if let Some(seen) = self.seen.get(route) {
            return seen.clone();
        }
        if self.seen.len() >= MOST_ROUTES {
            return OTHER.into();
        }
        let route: Arc<str> = route.into();
        self.seen.insert(route.clone());
        route
    }
}
