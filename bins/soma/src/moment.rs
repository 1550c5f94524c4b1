//! Times as people say them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// The seconds since 1970 of a moment that the daemon told.
pub(crate) fn seconds_of(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// A length of time in its largest two units, such as `5m` or `2h 3m`.
pub(crate) fn spell(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (days, hours) = (seconds / 86_400, seconds % 86_400 / 3600);
    let (minutes, rest) = (seconds % 3600 / 60, seconds % 60);
    let two = |large: i64, unit: &str, small: i64, smaller: &str| match small {
        0 => format!("{large}{unit}"),
        small => format!("{large}{unit} {small}{smaller}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, minutes) => two(minutes, "m", rest, "s"),
        (0, hours, minutes) => two(hours, "h", minutes, "m"),
        (days, hours, _) => two(days, "d", hours, "h"),
    }
}

/// Whole seconds, of which there has to be one; what lies between is rounded up.
pub(crate) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_at_most_two_units() {
        for (seconds, words) in [
            (-5, "0s"),
            (59, "59s"),
            (60, "1m"),
            (299, "4m 59s"),
            (7380, "2h 3m"),
            (86_400 * 366, "366d"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(spell(seconds), words);
        }
        assert_eq!(seconds_of("1970-01-01T00:00:07.500Z"), Some(7));
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
    }
}
