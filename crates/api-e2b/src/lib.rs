//! E2B's control plane, both generations: what its SDKs call to make, find and end sandboxes.
//!
//! A translation onto `control` and nothing more. Success codes are exact and errors have E2B's
//! shape, because its clients check both. On this dialect E2B's own semantics hold: a sandbox
//! whose time is over is gone.
//!
//! Start at [`router`]. What happens inside a sandbox does not pass here: `gateway` passes it to
//! the guest.

mod error;
mod list;
mod network;
mod sandboxes;
mod snapshots;
mod view;

use axum::Router;
use axum::routing::{get, post};
use control::Control;

pub use error::error;

/// The routes.
pub fn router(control: Control) -> Router {
    let one = get(sandboxes::info).delete(sandboxes::kill);
    Router::new()
        .route("/sandboxes", post(sandboxes::create_first).get(list::list))
        .route("/v2/sandboxes", post(sandboxes::create_second).get(list::list))
        .route("/sandboxes/{id}", one)
        .route("/sandboxes/{id}/connect", post(sandboxes::connect))
        .route("/v2/sandboxes/{id}/connect", post(sandboxes::connect))
        .route("/sandboxes/{id}/timeout", post(sandboxes::set_timeout))
        .route("/sandboxes/{id}/refreshes", post(sandboxes::refresh))
        .route("/sandboxes/{id}/metrics", get(sandboxes::metrics))
        .route("/sandboxes/{id}/pause", post(sandboxes::pause))
        .route("/sandboxes/{id}/resume", post(sandboxes::resume))
        .route("/sandboxes/{id}/snapshots", post(snapshots::create))
        .route("/snapshots", get(snapshots::list))
        .route("/templates/{id}", axum::routing::delete(snapshots::delete))
        .route("/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/sandboxes/{id}/network", axum::routing::put(network::replace))
        .with_state(control)
}

/// Whether a path is of this dialect, so that refusals before any route have its shape.
pub fn is_its_path(path: &str) -> bool {
    ["/sandboxes", "/v2/", "/v3/", "/templates", "/snapshots", "/volumes", "/secrets"]
        .iter()
        .any(|prefix| path.starts_with(prefix))
}
