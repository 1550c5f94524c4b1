//! The figures, as whoever collects them reads them.

use std::collections::BTreeMap;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Reads the text as its format has it: `name{labels} value` on each line that is no comment.
fn read(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut series = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with("# ")) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let bare = name.split('{').next().unwrap();
        assert!(bare.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
        let twice = series.insert(name.to_owned(), value.parse().unwrap());
        assert_eq!(twice, None, "{line}");
    }
    series
}

#[test]
fn everything_that_was_counted_is_in_the_text() {
    let metrics = Metrics::new("0.1.0");
    metrics.request("GET", Some("/v1/sandboxes/{id}"), 200, SECOND);
    metrics.request("GET", Some("/v1/sandboxes/{id}"), 200, SECOND);
    metrics.request("POST", Some("/v1/sandboxes"), 201, Duration::from_millis(2));
    metrics.set_sandboxes(&[("running", 3), ("error", 1)]);
    metrics.created(Outcome::Created, Duration::from_millis(40));
    metrics.created(Outcome::Refused, SECOND);
    metrics.executed();
    let series = read(&metrics.encode());
    for (name, value) in [
        (r#"http_requests_total{method="GET",route="/v1/sandboxes/{id}",status="200"}"#, 2.0),
        (r#"http_requests_total{method="POST",route="/v1/sandboxes",status="201"}"#, 1.0),
        (r#"http_request_seconds_sum{route="/v1/sandboxes/{id}"}"#, 2.0),
        (r#"http_request_seconds_bucket{le="0.0025",route="/v1/sandboxes"}"#, 1.0),
        (r#"sandboxes{state="running"}"#, 3.0),
        (r#"sandboxes{state="error"}"#, 1.0),
        (r#"sandboxes{state="stopped"}"#, 0.0),
        (r#"sandbox_creates_total{outcome="created"}"#, 1.0),
        (r#"sandbox_creates_total{outcome="refused"}"#, 1.0),
        (r#"sandbox_creates_total{outcome="failed"}"#, 0.0),
        ("sandbox_create_seconds_count", 1.0),
        ("executions_total", 1.0),
        (r#"build_info{version="0.1.0"}"#, 1.0),
    ] {
        assert_eq!(series.get(name), Some(&value), "{name} in {series:#?}");
    }
    metrics.set_sandboxes(&[("stopped", 1)]);
    let series = read(&metrics.encode());
    assert_eq!(series.get(r#"sandboxes{state="running"}"#), Some(&0.0));
}

#[test]
fn nobody_can_make_the_figures_grow() {
    let metrics = Metrics::new("0.1.0");
    metrics.request("GET", None, 200, SECOND);
    let count = |metrics: &Metrics| read(&metrics.encode()).len();
    for number in 0..10_000_u16 {
        metrics.request(&format!("GET{number}"), None, 600 + number, SECOND);
        metrics.request("GET", Some(&"/long".repeat(100)), 200, SECOND);
        metrics.set_sandboxes(&[(&format!("state-{number}"), 1)]);
    }
    let series = read(&metrics.encode());
    let other = r#"http_requests_total{method="other",route="other",status="other"}"#;
    assert_eq!(series.get(other), Some(&10_000.0));
    assert_eq!(series.get(r#"sandboxes{state="other"}"#), Some(&1.0));
    assert!(series.len() < 60, "{}", series.len());
    // A path that is taken for its route is a mistake, and bounded too.
    for number in 0..10_000 {
        metrics.request("GET", Some(&format!("/{number}")), 200, SECOND);
    }
    let most = (labels::MOST_ROUTES + 3) * (1 + REQUEST_BUCKETS.len() + 3) + 60;
    assert!(count(&metrics) < most, "{}", count(&metrics));
}

#[test]
fn hostile_text_in_a_label_stays_in_its_quotes() {
    let metrics = Metrics::new("0.1.0\"} 7\n# EOF");
    metrics.request("GET", Some("/\"\n\\{}"), 200, SECOND);
    let text = metrics.encode();
    assert_eq!(text.matches("\n# EOF\n").count(), 1, "{text}");
    assert!(text.lines().all(|line| line.starts_with(|c: char| c == '#' || c.is_alphabetic())));
}
