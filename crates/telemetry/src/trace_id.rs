//! Which trace a request belongs to: the caller's, when it names one as W3C's `traceparent` has
//! it, or one of its own.

use std::collections::hash_map::RandomState;
use std::fmt::Write;
use std::hash::BuildHasher;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceState};
use rustix::rand::{GetRandomFlags, getrandom};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// `00-`, 32 digits, `-`, 16 digits, `-`, 2 digits.
const LENGTH: usize = 55;

/// What a later version of the header may take; its rest is not read.
const LONGEST: usize = 512;

/// Sampled, and chosen at random: all that is defined, so all that is passed on.
const FLAGS: u8 = 0b11;

/// Sampled.
const SAMPLED: u8 = 0b1;

/// The trace of one request, and the request's own place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId {
    trace: [u8; 16],
    span: [u8; 8],
    caller: Option<[u8; 8]>,
    flags: u8,
}

/// Why a header names no trace. What it says is a stranger's, and is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the header `traceparent` is not as W3C has it")]
pub struct InvalidTraceparent;

impl TraceId {
    /// A new trace.
    pub fn random() -> Self {
        Self { trace: random(), span: random(), caller: None, flags: SAMPLED }
    }

    /// The caller's trace with a new place in it, from its header `traceparent`.
    pub fn parse(header: &str) -> Result<Self, InvalidTraceparent> {
        let bytes = header.as_bytes();
        if bytes.len() < LENGTH || bytes.len() > LONGEST {
            return Err(InvalidTraceparent);
        }
        let (known, rest) = bytes.split_at(LENGTH);
        let [version] = hexadecimal(&known[..2])?;
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            // A later version may say more, behind a hyphen.
            _ => rest.is_empty() || rest[0] == b'-',
        };
        if !is_whole || [known[2], known[35], known[52]] != [b'-'; 3] {
            return Err(InvalidTraceparent);
        }
        let trace: [u8; 16] = hexadecimal(&known[3..35])?;
        let caller: [u8; 8] = hexadecimal(&known[36..52])?;
        let [flags] = hexadecimal(&known[53..])?;
        if trace == [0; 16] || caller == [0; 8] {
            return Err(InvalidTraceparent);
        }
        Ok(Self { trace, span: random(), caller: Some(caller), flags: flags & FLAGS })
    }

    /// The caller's trace when its header names one, a new one otherwise.
    pub fn from_header(header: Option<&str>) -> Self {
        header.and_then(|header| Self::parse(header).ok()).unwrap_or_else(Self::random)
    }

    /// As the header `traceparent` for whoever is called next.
    pub fn to_traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.request_id(), spell(&self.span), self.flags)
    }

    /// What a request is called in answers and logs: the trace, as 32 hexadecimal digits.
    pub fn request_id(&self) -> String {
        spell(&self.trace)
    }

    /// Puts a span of ours into this trace, so that a collector shows it there, and says which
    /// place it has: below its caller's, or, where nobody calls, at the top of a trace whose id the
    /// collector's side has chosen. Changes nothing where no traces are sent. It must be done before
    /// the span is entered.
    #[must_use = "where traces are sent, the request goes by what this returns"]
    pub fn adopt(self, span: &Span) -> Self {
        if let Some(caller) = self.caller {
            let parent = SpanContext::new(
                opentelemetry::TraceId::from_bytes(self.trace),
                SpanId::from_bytes(caller),
                TraceFlags::new(self.flags),
                true,
                TraceState::default(),
            );
            // It fails where nothing listens.
            let _ = span.set_parent(Context::new().with_remote_span_context(parent));
        }
        let context = span.context();
        let place = context.span().span_context().clone();
        if !place.is_valid() {
            return self;
        }
        Self { trace: place.trace_id().to_bytes(), span: place.span_id().to_bytes(), ..self }
    }
}

/// Random bytes, at least one of which is not zero: all zero is nobody.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if !matches!(getrandom(&mut bytes, GetRandomFlags::empty()), Ok(length) if length == N) {
        // These ids guard nothing, so a lesser source does where the kernel has none.
        for chunk in bytes.chunks_mut(8) {
            let word = RandomState::new().hash_one(N).to_ne_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
    if bytes == [0; N] {
        bytes[N - 1] = 1;
    }
    bytes
}

/// Reads lowercase hexadecimal digits, two for each byte.
fn hexadecimal<const N: usize>(digits: &[u8]) -> Result<[u8; N], InvalidTraceparent> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidTraceparent),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(bytes)
}

fn spell(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_callers_trace_is_kept_and_its_span_is_not() {
        let trace = TraceId::parse(HEADER).unwrap();
        assert_eq!(trace.request_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let passed_on = trace.to_traceparent();
        assert_eq!(passed_on.len(), LENGTH);
        assert!(passed_on.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
        assert!(passed_on.ends_with("-01") && !passed_on.contains("00f067aa0ba902b7"));
        let unsampled = HEADER.replace("-01", "-00");
        assert!(TraceId::parse(&unsampled).unwrap().to_traceparent().ends_with("-00"));
        // What nobody defined is not passed on.
        let strange = HEADER.replace("-01", "-ff");
        assert!(TraceId::parse(&strange).unwrap().to_traceparent().ends_with("-03"));
    }

    #[test]
    fn a_new_trace_is_new_and_reads_back() {
        let (one, two) = (TraceId::random(), TraceId::random());
        assert_ne!(one.request_id(), two.request_id());
        assert_eq!(one.request_id().len(), 32);
        let next = TraceId::parse(&one.to_traceparent()).unwrap();
        assert_eq!(next.request_id(), one.request_id());
        assert_eq!(next.caller, Some(one.span));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for header in [HEADER.replacen("00", "cc", 1), HEADER.replacen("00", "01", 1) + "-more"] {
            let trace = TraceId::parse(&header).unwrap();
            assert!(trace.to_traceparent().starts_with("00-4bf92f35"), "{header}");
        }
    }

    #[test]
    fn what_is_no_header_is_refused_and_a_new_trace_begins() {
        let bad = [
            String::new(),
            "00".to_owned(),
            HEADER[1..].to_owned(),
            HEADER.to_owned() + "-",
            HEADER.to_owned() + "-00",
            HEADER.replacen("00", "ff", 1),
            HEADER.replacen("00", "01", 1) + "more",
            HEADER.replacen("00", "01", 1) + "-" + &"m".repeat(LONGEST),
            HEADER.to_uppercase(),
            HEADER.replace('-', "_"),
            HEADER.replace('4', "g"),
            HEADER.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            HEADER.replace("00f067aa0ba902b7", &"0".repeat(16)),
            HEADER.replacen("4b", "é", 1),
            HEADER.replacen("4b", "+b", 1),
            format!(" {}", &HEADER[..54]),
            "\0".repeat(LENGTH),
            "ü".repeat(28),
        ];
        for header in &bad {
            assert_eq!(TraceId::parse(header), Err(InvalidTraceparent), "{header:?}");
            assert_ne!(TraceId::from_header(Some(header)).trace, [0; 16]);
        }
        assert_ne!(TraceId::from_header(None), TraceId::from_header(None));
        assert!(TraceId::from_header(Some(HEADER)).request_id().starts_with("4bf9"));
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "\\PC*|[0-9a-f-]{50,60}") {
            if let Ok(trace) = TraceId::parse(&text) {
                prop_assert_eq!(&trace.request_id(), &text[3..35]);
            }
        }

        #[test]
        fn every_trace_survives_being_written_and_read(trace in 1u128.., span in 1u64.., flags: u8) {
            let header = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
            let read = TraceId::parse(&header).unwrap();
            prop_assert_eq!(read.request_id(), format!("{trace:032x}"));
            prop_assert_eq!(read.caller, Some(span.to_be_bytes()));
            prop_assert_eq!(read.flags, flags & FLAGS);
        }
    }
}
