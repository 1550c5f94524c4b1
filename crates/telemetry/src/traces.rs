//! Traces, sent to a collector over OTLP/HTTP where one is named.
//!
//! The exporter of OpenTelemetry runs in a thread of its own without a runtime, and its HTTP
//! client needs one. So each batch is sent on a small runtime that belongs to the exporter: it
//! depends on nobody, and works also while the daemon's own is going down.

use std::fmt;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider, SpanData, SpanExporter,
};
use tokio::runtime::{Builder, Runtime};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::registry::LookupSpan;

use crate::TelemetryError;

/// How long the end may take.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// How long one batch may take, so that one which hangs leaves the end in time.
const EXPORT: Duration = Duration::from_millis(1500);

/// How many spans wait for the collector; more are dropped.
const QUEUE: usize = 1024;

/// How many go in one request.
const BATCH: usize = 256;

/// What is traced, whatever is logged. What the exporter itself does is not, or sending a trace
/// would make one.
const TRACED: &str = "info,h2=off,hyper=off,hyper_util=off,opentelemetry=off,tower=off";

/// Where the traces go below the collector's address.
const PATH: &str = "/v1/traces";

/// Logs and traces under way. Letting go of it sends what is left, for two seconds at the most.
#[derive(Debug)]
#[must_use = "letting go of it ends the traces"]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Sends what is left. Blocks, though not beyond two seconds, also when nobody takes it.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take() {
            // A collector that is away has been told of in the log.
            let _ = provider.shutdown_with_timeout(SHUTDOWN);
        }
    }
}

/// What watches spans for the collector; nothing when there is none.
#[expect(clippy::type_complexity, reason = "it is one layer, or none")]
pub(crate) fn layer<S>(
    endpoint: Option<&str>,
) -> Result<(Option<Box<dyn Layer<S> + Send + Sync>>, Telemetry), TelemetryError>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let Some(endpoint) = endpoint else {
        return Ok((None, Telemetry { provider: None }));
    };
    let exporter = Exporter::new(&address(endpoint)?)?;
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE)
        .with_max_export_batch_size(BATCH)
        .build();
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(config).build();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_resource(Resource::builder().with_service_name("soma").build())
        .build();
    let traced = EnvFilter::new(TRACED);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("soma"));
    let layer = layer.with_threads(false).with_location(false).with_filter(traced).boxed();
    Ok((Some(layer), Telemetry { provider: Some(provider) }))
}

/// The address of the traces at a collector.
fn address(endpoint: &str) -> Result<String, TelemetryError> {
    let refused = |reason: &str| TelemetryError::Endpoint { reason: reason.to_owned() };
    let host = endpoint.strip_prefix("http://").ok_or_else(|| refused("it is no plain http"))?;
    if host.is_empty() || host.starts_with(['/', ':']) {
        return Err(refused("it names no host"));
    }
    if host.contains(['@', '?', '#']) || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(refused("it holds more than a host, a port and a path"));
    }
    let base = endpoint.trim_end_matches('/');
    Ok(base.strip_suffix(PATH).unwrap_or(base).to_owned() + PATH)
}

/// An exporter with the runtime that it needs.
struct Exporter {
    inner: opentelemetry_otlp::SpanExporter,
    runtime: Option<Runtime>,
}

impl Exporter {
    fn new(address: &str) -> Result<Self, TelemetryError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| TelemetryError::Exporter(error.into()))?;
        let inner = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(address)
            .with_timeout(EXPORT)
            .with_headers([("user-agent".to_owned(), "soma".to_owned())].into())
            .build()
            .map_err(|error| TelemetryError::Exporter(error.into()))?;
        Ok(Self { inner, runtime: Some(runtime) })
    }
}

impl SpanExporter for Exporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        match &self.runtime {
            // The thread is the exporter's own, and holds nobody up.
            Some(runtime) => runtime.block_on(self.inner.export(batch)),
            None => Ok(()),
        }
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // It may be looking for a host's address, which cannot be stopped and is not waited for.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Exporter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Exporter(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_collector_gets_the_path_of_traces_once() {
        for endpoint in ["http://host:4318", "http://host:4318/", "http://host:4318/v1/traces"] {
            assert_eq!(address(endpoint).unwrap(), "http://host:4318/v1/traces");
        }
        assert_eq!(address("http://[::1]/otlp/").unwrap(), "http://[::1]/otlp/v1/traces");
    }

    #[test]
    fn an_address_that_cannot_be_used_is_refused_and_not_shown() {
        for endpoint in [
            "",
            "host:4318",
            "https://host:4318",
            "http://",
            "http:///v1/traces",
            "http://:4318",
            "http://user:hunter2@host",
            "http://host/ hunter2",
            "http://host/\r\nhunter2",
            "http://host?hunter2",
        ] {
            let error = address(endpoint).unwrap_err().to_string();
            assert!(error.contains("http://HOST:PORT") && !error.contains("hunter2"), "{error}");
        }
    }
}
