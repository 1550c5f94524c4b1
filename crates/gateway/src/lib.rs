//! The door: listeners, who is asking, which dialect, and the way to sandboxes' own addresses.
//!
//! ```text
//! TCP, unix socket ──► trace ──► host and origin ──► a sandbox's address? ──► guest (proxy.rs)
//!                                                      │ no
//!                                                      ▼
//!                                              who is asking (access.rs)
//!                                                      │
//!                                                      ▼
//!                                              /v1, E2B's paths ──► control
//! ```
//!
//! Start at [`Gateway::serve`]. What is not here: what requests mean (`api-*`), and whether they
//! may be done (`policy`, asked by `control`).

mod access;
mod address;
mod answer;
mod bodies;
mod documents;
mod guard;
mod health;
mod listen;
mod proxy;
mod trace;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware;
use control::Control;
use store::Store;
use telemetry::Metrics;
use tower_http::catch_panic::CatchPanicLayer;

pub use address::Addresses;
pub use listen::{ListenError, Listener, Peer, Serving};

/// Everything behind the door.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
}

struct Shared {
    /// When a request came last.
    active: Mutex<Instant>,
    control: Control,
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    addresses: Addresses,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Gateway").finish_non_exhaustive()
    }
}

impl Gateway {
    /// A door to these sandboxes.
    pub fn new(
        control: Control,
        store: Arc<dyn Store>,
        metrics: Arc<Metrics>,
        addresses: Addresses,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                active: Mutex::new(Instant::now()),
                control,
                store,
                metrics,
                addresses,
            }),
        }
    }

    /// How long ago the last request came.
    pub fn idle(&self) -> Duration {
        self.shared.active.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Answers whoever comes to these listeners, until it is told to end.
    pub fn serve(&self, listeners: Vec<Listener>) -> Serving {
        listen::serve(&self.router(), listeners)
    }

    /// All routes. Layers that are added later run earlier.
    fn router(&self) -> Router {
        let shared = &self.shared;
        let guarded = api_v1::router(shared.control.clone())
            .merge(
                api_e2b::router(shared.control.clone())
                    .route_layer(middleware::from_fn(bodies::hold)),
            )
            .merge(health::guarded(self.clone()))
            .route_layer(middleware::from_fn(trace::note_route))
            .fallback(answer::no_such_path)
            .method_not_allowed_fallback(answer::no_such_method)
            .layer(middleware::from_fn_with_state(self.clone(), access::find_caller))
            .layer(middleware::from_fn(answer::in_our_shape));
        documents::router()
            .merge(health::open(self.clone()))
            .route_layer(middleware::from_fn(trace::note_route))
            .fallback_service(guarded)
            .layer(middleware::from_fn_with_state(self.clone(), proxy::divert))
            .layer(middleware::from_fn_with_state(self.clone(), guard::refuse_strangers))
            .layer(CatchPanicLayer::custom(answer::of_panic))
            .layer(middleware::from_fn_with_state(self.clone(), trace::follow))
    }
}
