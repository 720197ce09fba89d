//! Replaying at a rate: how many rows may go now, and when the next ones may.
//!
//! Rows are let go in small groups, some fifty a second, so that a fast replay costs no epoch per row. After a pause
//! (a restart, a stalled engine) the replay goes on from where it is; it does not rush to catch up.

use std::time::{Duration, Instant};

/// How long rows gather before a group of them goes.
const GROUP_SECONDS: f64 = 0.02;

/// The most seconds' worth of rows that can have gathered.
const GATHERED_SECONDS_MAX: f64 = 1.0;

/// A rate and the rows that it allows at the moment.
#[derive(Debug)]
pub(super) struct Pace {
    rows_per_second: f64,
    allowed: f64,
    last: Instant,
}

impl Pace {
    /// A replay of so many rows per second; the first group may go at once.
    pub(super) fn new(rows_per_second: f64) -> Self {
        Self {
            rows_per_second,
            allowed: (rows_per_second * GROUP_SECONDS).max(1.0),
            last: Instant::now(),
        }
    }

    /// How many rows may go now.
    pub(super) fn allowed(&mut self, now: Instant) -> usize {
        let seconds = now.saturating_duration_since(self.last).as_secs_f64();
        self.last = now;
        let most = (self.rows_per_second * GATHERED_SECONDS_MAX).max(1.0);
        self.allowed = (self.allowed + seconds * self.rows_per_second).min(most);
        self.allowed as usize
    }

    /// Counts rows that went.
    pub(super) fn took(&mut self, rows: usize) {
        self.allowed -= rows as f64;
    }

    /// When the next group may go.
    pub(super) fn next(&self) -> Instant {
        let group = (self.rows_per_second * GROUP_SECONDS).max(1.0);
        let seconds = ((group - self.allowed) / self.rows_per_second).max(0.0);
        self.last + Duration::from_secs_f64(seconds + 1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_go_at_the_rate_and_do_not_pile_up() {
        let mut pace = Pace::new(1000.0);
        let start = pace.last;
        let mut now = start;
        let mut gone = 0;
        while now < start + Duration::from_secs(10) {
            let allowed = pace.allowed(now);
            pace.took(allowed);
            gone += allowed;
            assert!(pace.next() > now, "an idle source is not polled in a loop");
            now = pace.next();
        }
        assert!((9_900..=10_100).contains(&gone), "{gone}");
        assert!(
            pace.allowed(now + Duration::from_secs(3600)) <= 1000,
            "a pause is not made up for"
        );
    }

    #[test]
    fn slow_rates_wait_for_a_whole_row() {
        let mut pace = Pace::new(0.5);
        let start = pace.last;
        assert_eq!(pace.allowed(start), 1);
        pace.took(1);
        assert_eq!(pace.allowed(start + Duration::from_secs(1)), 0);
        assert!(pace.next() >= start + Duration::from_millis(1999));
        assert_eq!(pace.allowed(start + Duration::from_millis(2001)), 1);
    }
}
