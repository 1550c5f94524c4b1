//! The times that one contender took, and what is said about them.

use std::time::Duration;

/// The times of one contender, in no order.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The smallest time that this many of a hundred calls did not exceed; zero without samples.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * percent).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or_default()
    }

    pub(crate) fn median(&self) -> Duration {
        self.percentile(50)
    }
}

/// A time for a table, with three or more digits that mean something.
pub(crate) fn milliseconds(time: Duration) -> String {
    let value = time.as_secs_f64() * 1000.0;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let mut samples = Samples::default();
        assert_eq!(samples.percentile(99), Duration::ZERO);
        for number in (1..=200).rev() {
            samples.add(Duration::from_millis(number));
        }
        assert_eq!(samples.median(), Duration::from_millis(100));
        assert_eq!(samples.percentile(99), Duration::from_millis(198));
        assert_eq!(samples.percentile(100), Duration::from_millis(200));
    }

    #[test]
    fn times_keep_three_digits() {
        assert_eq!(milliseconds(Duration::from_micros(6234)), "6.23 ms");
        assert_eq!(milliseconds(Duration::from_micros(62340)), "62.3 ms");
        assert_eq!(milliseconds(Duration::from_micros(623_400)), "623 ms");
    }
}
