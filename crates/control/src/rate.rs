//! Rate limit for log lines that strangers can cause.

use std::time::{Duration, Instant};

/// Burst size in lines.
const BURST: u32 = 20;
/// Refill interval of one line.
const INTERVAL: Duration = Duration::from_secs(1);

/// Token bucket for log lines; those over the limit are counted.
#[derive(Debug, Clone)]
pub struct LogLimit {
    tokens: u32,
    refilled: Instant,
    suppressed_count: u64,
}

/// Decision about one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Write the line.
    Write,
    /// Only count the line.
    Suppress,
}

impl LogLimit {
    /// A limit with the whole burst available.
    pub fn new(now: Instant) -> Self {
        Self { tokens: BURST, refilled: now, suppressed_count: 0 }
    }

    /// Decides whether to write one more line.
    pub fn admit(&mut self, now: Instant) -> Admission {
        self.refill(now);
        if self.tokens == 0 || self.suppressed_count > 0 {
            self.suppressed_count += 1;
            return Admission::Suppress;
        }
        self.tokens -= 1;
        Admission::Write
    }

    /// Lines suppressed since the last report, when a report is due; it takes the place of one line. To be
    /// called periodically.
    pub fn report(&mut self, now: Instant) -> Option<u64> {
        self.refill(now);
        if self.tokens == 0 {
            return None;
        }
        let count = self.take();
        self.tokens -= u32::from(count.is_some());
        count
    }

    /// As [`Self::report`], due or not: for the end of the log.
    pub fn take(&mut self) -> Option<u64> {
        let count = std::mem::take(&mut self.suppressed_count);
        (count > 0).then_some(count)
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        let tokens = u32::try_from(passed.as_millis() / INTERVAL.as_millis()).unwrap_or(u32::MAX);
        if tokens > 0 {
            self.tokens = self.tokens.saturating_add(tokens).min(BURST);
            self.refilled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_bounded_and_every_line_is_written_or_counted() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        let (mut written, mut counted, mut reports) = (0, 0, 0);
        // A thousand lines a second for ten seconds.
        for millisecond in 0..10_000 {
            let now = start + Duration::from_millis(millisecond);
            written += u64::from(limit.admit(now) == Admission::Write);
            if let Some(count) = limit.report(now) {
                counted += count;
                reports += 1;
            }
        }
        counted += limit.take().unwrap_or(0);
        assert_eq!(written + counted, 10_000);
        assert!(written + reports <= 20 + 10, "{written} lines, {reports} reports");
        assert_eq!(limit.take(), None, "reported once");
        let later = start + Duration::from_secs(60);
        assert_eq!(limit.admit(later), Admission::Write);
    }
}
