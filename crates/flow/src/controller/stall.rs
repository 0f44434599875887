//! Stalls: time in which an agent took no samples because it did not run (stopped, suspended with its host,
//! or starved). Its next interval then covers several.

use std::time::Duration;

use clearstream_schema::flow::{FlowConfig, SideInterval};
use clearstream_schema::notice::Notice;

use super::Side;
use crate::agent::notice;

/// Lateness below which a sampler on a loaded host is not considered stalled.
const LATE: Duration = Duration::from_secs(1);

/// Missing samples of both sides.
#[derive(Debug)]
pub(super) struct Stalls {
    interval_ns: u64,
    /// Maximum length of an interval.
    limit_ns: u64,
    client: Missing,
    server: Missing,
}

#[derive(Debug, Default)]
struct Missing {
    sample_count: u64,
    nanos: u64,
}

impl Stalls {
    pub(super) fn new(config: &FlowConfig) -> Self {
        let interval_ns = config.interval.0.max(1);
        let late = u64::try_from(LATE.as_nanos()).unwrap_or(u64::MAX);
        let limit_ns = interval_ns.saturating_mul(2).saturating_add(late);
        Self { interval_ns, limit_ns, client: Missing::default(), server: Missing::default() }
    }

    /// Checks the next interval of both sides.
    pub(super) fn add(&mut self, sides: [(Side, &SideInterval); 2]) {
        for (side, interval) in sides {
            let nanos = interval.end_ns.saturating_sub(interval.start_ns);
            if nanos < self.limit_ns {
                continue;
            }
            let missing = match side {
                Side::Client => &mut self.client,
                Side::Server => &mut self.server,
            };
            missing.sample_count += nanos / self.interval_ns - 1;
            missing.nanos += nanos - self.interval_ns;
        }
    }

    pub(super) fn any(&self) -> bool {
        self.client.sample_count + self.server.sample_count > 0
    }

    /// Notice with the stalled agents, durations and consequence.
    pub(super) fn notice(&self) -> Option<Notice> {
        let of = |name: &str, missing: &Missing| {
            let seconds = missing.nanos as f64 / 1e9;
            (missing.sample_count > 0)
                .then(|| format!("the {name}'s agent for {seconds:.1} s ({} samples)", missing.sample_count))
        };
        let parts: Vec<String> =
            [of("client", &self.client), of("server", &self.server)].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| {
            notice(
                "samples-missing",
                format!(
                    "samples are missing: {} did not run (stopped, suspended or starved); the figures are means \
                     over that time too",
                    parts.join(" and ")
                ),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::TimeSpan;

    use super::*;

    fn side(start_ms: u64, end_ms: u64) -> SideInterval {
        SideInterval { start_ns: start_ms * 1_000_000, end_ns: end_ms * 1_000_000, ..SideInterval::default() }
    }

    #[test]
    fn interval_that_covers_several_means_missing_samples() {
        let config = FlowConfig { interval: TimeSpan::from_millis(200), ..FlowConfig::default() };
        let mut found = Stalls::new(&config);
        // A loaded host: late by two intervals.
        found.add([(Side::Client, &side(0, 1000)), (Side::Server, &side(0, 210))]);
        assert!(!found.any() && found.notice().is_none());
        found.add([(Side::Client, &side(1000, 1200)), (Side::Server, &side(210, 2410))]);
        assert!(found.any());
        let text = found.notice().unwrap().message;
        assert!(text.contains("the server's agent for 2.0 s (10 samples)"), "{text}");
        assert!(!text.contains("client"), "{text}");
    }
}
