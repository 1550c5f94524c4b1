//! How long a sandbox is kept that stopped at its time.

use std::time::Duration;

use domain::{Ending, State};
use tokio::time::Instant;

use super::Task;
use crate::now;

/// What stopped before this daemon was started stays at least so long.
const GRACE: Duration = Duration::from_hours(1);

impl Task {
    /// Until when a sandbox that stopped at its time is kept; `None` for all others.
    pub(super) fn kept_from_now(&self) -> Option<Instant> {
        match &self.lease.state {
            State::Stopped(stopped) if stopped.why == Ending::TimedOut => {
                Some(Instant::now() + self.shared.retention)
            }
            _ => None,
        }
    }

    /// The same for one that stopped while an earlier daemon was there. How long ago that was only
    /// the wall clock tells, and that may be wrong by years: so nothing is removed before a while.
    pub(super) fn kept_since_earlier(&self) -> Option<Instant> {
        let latest = self.kept_from_now()?;
        let until = self.lease.changed_at.after(self.shared.retention);
        let left = u64::try_from(until.0.saturating_sub(now().0)).unwrap_or(0);
        let least = Duration::from_millis(left).max(GRACE.min(self.shared.retention));
        Some(latest.min(Instant::now() + least))
    }
}
