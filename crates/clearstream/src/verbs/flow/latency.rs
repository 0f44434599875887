//! Round trips before a flow and beside it, by a second pair of agents.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_flow::FlowError;
use clearstream_schema::{
    TimeSpan,
    flow::{FlowConfig, FlowSummary},
    probe::{DelayStats, ProbeConfig},
};

use crate::{
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
};

/// Shortest flow beside which a series is measured.
pub(super) const SHORTEST: TimeSpan = TimeSpan::from_seconds(1);
/// Round trips of the idle path.
const IDLE_COUNT: u32 = 100;
/// Time between two, and the shortest beside a flow.
const INTERVAL: TimeSpan = TimeSpan::from_millis(10);
/// Most round trips beside a flow.
const LOADED_MOST: u64 = 20_000;
/// Percentage of the measured time that a series takes, so that it ends first.
const SERIES_PERCENT: u64 = 90;
/// Interval at which a waiting series checks for cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The agents that probe.
#[derive(Debug)]
pub(super) struct Latency {
    ends: Endpoints,
    loaded: ProbeConfig,
    warm_up: Duration,
}

/// What a flow gave, and the series beside it.
type Beside = (Result<FlowSummary, FlowError>, Result<Option<DelayStats>, CommandError>);

impl Latency {
    /// Starts agents beside those of the flow.
    ///
    /// # Errors
    /// As [`Endpoints::open`].
    pub(super) fn open(
        host: Option<&str>,
        path: &PathArgs,
        flow: &Endpoints,
        config: &FlowConfig,
    ) -> Result<Self, CommandError> {
        // The lab is up by now, perhaps from a file: by its name it is found running.
        let lab = flow.lab_name().map(str::to_owned).or_else(|| path.lab.clone());
        let ends = Endpoints::open(host, &PathArgs { lab, ..path.clone() })?;
        Ok(Self { ends, loaded: loaded(config), warm_up: config.warm_up.to_std() })
    }

    /// The path without the flow.
    pub(super) fn idle(&mut self, stop: &AtomicBool) -> Result<DelayStats, CommandError> {
        let config = ProbeConfig { count: IDLE_COUNT, interval: INTERVAL, ..ProbeConfig::default() };
        let found = series(&mut self.ends, &config, stop)?;
        found.ok_or_else(|| {
            CommandError::Partial("no UDP round trip before the flow: is UDP let through?".to_owned())
        })
    }

    /// Runs a flow, which calls what it is given when its connections are
    /// there, with a series beside it from the end of the warm-up on. Nothing
    /// when the flow ended before its time.
    pub(super) fn beside(
        &mut self,
        stop: &AtomicBool,
        flow: impl FnOnce(&dyn Fn()) -> Result<FlowSummary, FlowError>,
    ) -> Beside {
        let cancelled = AtomicBool::new(false);
        let (start, started) = mpsc::channel();
        let (ends, config, warm_up, cancel) = (&mut self.ends, &self.loaded, self.warm_up, &cancelled);
        thread::scope(|scope| {
            let beside = scope.spawn(move || {
                // A closed channel: data never flowed.
                if started.recv().is_err() || !waited(warm_up, cancel) {
                    return Ok(None);
                }
                series(ends, config, cancel)
            });
            let result = flow(&|| {
                // The series may have ended already, by a fault.
                let _ = start.send(());
            });
            drop(start);
            if result.is_err() || stop.load(Ordering::Relaxed) {
                cancelled.store(true, Ordering::Relaxed);
            }
            let found = beside.join().unwrap_or_else(|_| {
                Err(CommandError::Partial("the probe beside the flow ended by a fault".to_owned()))
            });
            match cancelled.load(Ordering::Relaxed) {
                true => (result, Ok(None)),
                false => (result, found),
            }
        })
    }
}

/// Waits for the end of the warm-up; false when cancelled.
fn waited(time: Duration, cancel: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if cancel.load(Ordering::Relaxed) {
            return false;
        }
        thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())));
    }
    true
}

fn series(
    ends: &mut Endpoints,
    config: &ProbeConfig,
    stop: &AtomicBool,
) -> Result<Option<DelayStats>, CommandError> {
    Ok(clearstream_probe::round_trips_on(&mut ends.hosts()?, config, stop)?.udp)
}

/// As many round trips as end before the flow does.
fn loaded(config: &FlowConfig) -> ProbeConfig {
    let room = config.duration.0 / 100 * SERIES_PERCENT;
    let interval = TimeSpan(INTERVAL.0.max(room / LOADED_MOST));
    let count = u32::try_from(room / interval.0).unwrap_or(u32::MAX).max(1);
    ProbeConfig { count, interval, ..ProbeConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_ends_before_the_flow_whatever_its_length() {
        for seconds in [1, 10, 3600, 86_400] {
            let flow = FlowConfig { duration: TimeSpan::from_seconds(seconds), ..FlowConfig::default() };
            let config = loaded(&flow);
            let takes = u64::from(config.count) * config.interval.0;
            assert!(takes < flow.duration.0 && takes > flow.duration.0 / 2, "{seconds} s: {config:?}");
            assert!(u64::from(config.count) <= LOADED_MOST && config.interval >= INTERVAL);
        }
    }
}
