//! A moment of the wall clock, as it is stored and shown.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment: milliseconds since 1970, whole and sortable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment so much later.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let milliseconds = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(milliseconds))
    }

    /// Reads a moment as RFC 3339 has it.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>().ok().map(|moment| Self(moment.as_millisecond()))
    }

    /// Whole seconds since 1970.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }
}

impl fmt::Display for Timestamp {
    /// As RFC 3339 with milliseconds, in UTC.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(moment) => write!(formatter, "{moment:.3}"),
            // Before the year -9999 or after 9999.
            Err(_) => write!(formatter, "{} ms", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_as_rfc_3339_has_it() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        let moment = Timestamp(1_763_251_200_123).after(Duration::from_secs(1));
        assert_eq!(moment.to_string(), "2025-11-16T00:00:01.123Z");
        assert_eq!(moment.seconds(), 1_763_251_201);
        assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        assert_eq!(Timestamp::parse("soon"), None);
    }
}
