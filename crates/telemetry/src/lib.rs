//! What the daemon tells about itself: logs, traces and figures.
//!
//! [`start`] sets up the logs and, where a collector is named, the traces; what it returns sends
//! the last of them. [`TraceId`] joins a request to its caller's trace. [`Metrics`] counts.
//!
//! Nothing here can be made to grow by whoever sends requests: queues, headers and label values
//! are bounded.

mod logs;
mod metrics;
mod options;
mod trace_id;
mod traces;

pub use logs::start;
pub use metrics::{Metrics, Outcome};
pub use options::{Format, Options, TelemetryError, UnknownFormat};
pub use trace_id::{InvalidTraceparent, TraceId};
pub use traces::Telemetry;
