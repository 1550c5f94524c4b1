//! Log lines as they are written, and traces as a collector gets them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::*;
use crate::TraceId;

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn options(level: &str, format: Format) -> Options {
    Options { level: level.to_owned(), format, otlp_endpoint: None }
}

/// What is logged by one piece of work.
fn logged(options: &Options, is_terminal: bool, colours: bool) -> String {
    let kept = Kept::default();
    let writer = kept.clone();
    let (subscriber, _telemetry) =
        build(options, move || writer.clone(), is_terminal, colours).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        let span = tracing::info_span!("request", request_id = "abc", route = "/v1/sandboxes");
        let _entered = span.entered();
        tracing::info!(sandbox = "s1", "it was made\nlevel=fake \x1b[31m");
        tracing::debug!("not at this level");
    });
    kept.text()
}

#[test]
fn a_json_line_has_level_message_target_and_the_fields_of_its_span() {
    for (format, is_terminal) in [(Format::Json, true), (Format::Auto, false)] {
        let text = logged(&options("info", format), is_terminal, is_terminal);
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["message"], "it was made\nlevel=fake \x1b[31m");
        assert_eq!(line["target"], "telemetry::logs::tests");
        assert_eq!(line["sandbox"], "s1");
        assert_eq!(line["span"]["name"], "request");
        assert_eq!(line["span"]["request_id"], "abc");
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }
}

#[test]
fn a_person_gets_text_and_colours_only_on_a_terminal() {
    for (format, is_terminal) in [(Format::Text, false), (Format::Auto, true)] {
        let plain = logged(&options("info", format), is_terminal, false);
        assert!(plain.contains("INFO") && plain.contains("request_id=\"abc\""), "{plain}");
        assert!(!plain.contains('\x1b'), "{plain}");
    }
    let coloured = logged(&options("info", Format::Auto), true, true);
    assert!(coloured.contains('\x1b') && !coloured.contains("\x1b[31mn"), "{coloured:?}");
}

#[test]
fn directives_choose_what_is_logged() {
    assert_eq!(logged(&options("off", Format::Json), false, false), "");
    assert_eq!(logged(&options("warn", Format::Json), false, false), "");
    for level in [
        "debug",
        "DEBUG",
        "warn,telemetry=debug",
        "warn, telemetry::logs=debug",
        "[request{route}]=debug",
    ] {
        let text = logged(&options(level, Format::Json), false, false);
        assert_eq!(text.lines().count(), 2, "{level}: {text}");
    }
}

#[test]
fn a_bad_level_is_refused_and_said() {
    let long = "info,".repeat(10_000);
    for level in ["", "loud", "infoo", "soma=loud", "info,,warn", "info,sqlx", "=", "[", &long] {
        let outcome = build(&options(level, Format::Json), io::sink, false, false);
        let error = outcome.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("is no log level") && error.len() < 300, "{level:?}: {error}");
    }
}

#[test]
fn formats_are_words() {
    assert_eq!("auto".parse(), Ok(Format::Auto));
    assert_eq!("text".parse(), Ok(Format::Text));
    assert_eq!("json".parse(), Ok(Format::Json));
    assert!("xml".parse::<Format>().is_err());
}

/// Reads one request with its body, and answers that all is well.
fn take_request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the request ended early");
        bytes.extend_from_slice(&buffer[..count]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let body = &bytes[end + 4..];
        if body.len() >= length.parse().unwrap() {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
            return (head, body.to_vec());
        }
    }
}

/// Does a piece of work that is traced, and ends. Says how long the end took, and the work's place.
fn traced(endpoint: String, trace: TraceId) -> (Duration, TraceId) {
    let options = Options { otlp_endpoint: Some(endpoint), ..options("off", Format::Json) };
    let (subscriber, telemetry) = build(&options, io::sink, false, false).unwrap();
    let place = tracing::subscriber::with_default(subscriber, || {
        let span = tracing::info_span!("a piece of work");
        let place = trace.adopt(&span);
        span.in_scope(|| tracing::info!("done"));
        place
    });
    let start = Instant::now();
    telemetry.shutdown();
    (start.elapsed(), place)
}

/// A collector that takes one request, and where it is.
fn collector() -> (String, thread::JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    (endpoint, thread::spawn(move || take_request(&mut listener.accept().unwrap().0)))
}

/// The two ids of a place, as they are sent.
fn ids(place: TraceId) -> (u128, u64) {
    let header = place.to_traceparent();
    let (trace, span) = (&header[3..35], &header[36..52]);
    (u128::from_str_radix(trace, 16).unwrap(), u64::from_str_radix(span, 16).unwrap())
}

#[test]
fn a_collector_gets_the_trace_with_our_name_and_the_callers_id() {
    let (endpoint, collector) = collector();
    let trace = TraceId::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let (taken, place) = traced(endpoint, trace);
    let (head, body) = collector.join().unwrap();
    assert!(head.starts_with("post /v1/traces http/1.1"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf"), "{head}");
    let holds = |bytes: &[u8]| body.windows(bytes.len()).any(|window| window == bytes);
    assert!(holds(b"service.name") && holds(b"soma") && holds(b"a piece of work"));
    let id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();
    assert!(holds(&id), "the trace is not the caller's");
    assert!(holds(&0x00f0_67aa_0ba9_02b7_u64.to_be_bytes()), "the span is not below the caller's");
    assert_eq!(ids(place).0.to_be_bytes(), id);
    assert!(holds(&ids(place).1.to_be_bytes()), "what is called next is not below this span");
    assert!(taken < Duration::from_secs(2), "{taken:?}");
}

#[test]
fn a_request_that_nobody_traces_begins_a_trace_and_has_no_parent() {
    let (endpoint, collector) = collector();
    let before = TraceId::random();
    let (_, place) = traced(endpoint, before);
    let body = collector.join().unwrap().1;
    let holds = |bytes: &[u8]| body.windows(bytes.len()).any(|window| window == bytes);
    let (trace, span) = ids(place);
    assert!(holds(&trace.to_be_bytes()) && holds(&span.to_be_bytes()));
    // Field 4 of a span is its parent, of 8 bytes.
    assert!(!holds(&[0x22, 8]), "the collector is told of a parent that nobody sent");
    assert!(!holds(&ids(before).1.to_be_bytes()));
}

#[test]
fn where_no_traces_are_sent_a_request_keeps_its_id() {
    let trace = TraceId::random();
    assert_eq!(trace.adopt(&tracing::info_span!("a piece of work")), trace);
}

#[test]
fn a_collector_that_is_away_or_silent_does_not_hold_up_the_end() {
    // Nobody listens: the port was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (taken, _) = traced(format!("http://{free}"), TraceId::random());
    assert!(taken < Duration::from_millis(2500), "{taken:?}");
    // Somebody listens and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (taken, _) = traced(format!("http://{}", silent.local_addr().unwrap()), TraceId::random());
    assert!(taken < Duration::from_millis(2500), "{taken:?}");
}

#[test]
fn an_end_within_a_runtime_is_an_end_too() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (endpoint, collector) = collector();
    runtime.block_on(async { traced(endpoint, TraceId::random()) });
    assert!(collector.join().unwrap().0.starts_with("post /v1/traces"));
}

#[test]
fn logging_starts_once_in_a_process() {
    let telemetry = start(&options("off", Format::Auto)).unwrap();
    let again = start(&options("off", Format::Auto)).map(|_| ());
    assert!(matches!(again, Err(TelemetryError::Started)));
    telemetry.shutdown();
}
