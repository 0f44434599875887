//! Workload `live-traffic`: bulk flows between two hosts while an exploration of two ranks runs beside them, again and
//! again, as DiVinE did beside the flows of the 40 Gb/s report (figure 7). The samples are those of the flows, with the
//! counters of all interfaces.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use clearstream_flow::Flow;
use clearstream_mpirun::Ranks;
use clearstream_schema::{
    TimeSpan,
    control::Failure,
    exploration::Exploration,
    flow::Notice,
    live_traffic::{self, LiveTrafficConfig},
    outcome::{MetricKind, Outcome},
    study::Figure,
};
use clearstream_workload::{Context, Event, TrialError, Workload};

use crate::workload;

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct LiveTraffic;

/// Interval of checks whether the flows have ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl Workload for LiveTraffic {
    type Config = LiveTrafficConfig;

    fn name(&self) -> &'static str {
        "live-traffic"
    }

    fn title(&self) -> &'static str {
        "Bulk flows beside an application"
    }

    fn figure(&self) -> Figure {
        Figure::LiveTraffic
    }

    fn check(&self, config: &LiveTrafficConfig) -> Result<(), Failure> {
        Flow.check(&config.with_bursts())?;
        workload::check(&config.exploration())
    }

    fn time(&self, config: &LiveTrafficConfig) -> TimeSpan {
        Flow.time(&config.bulk())
    }

    fn overhead(&self) -> TimeSpan {
        // The last ranks end after the flows.
        TimeSpan(Flow.overhead().0 + 1_000_000_000)
    }

    fn metrics(&self, config: &LiveTrafficConfig) -> Vec<MetricKind> {
        config.metrics()
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &LiveTrafficConfig) -> Result<Outcome, TrialError> {
        self.check(config)?;
        let exploration = config.exploration();
        let job = workload::job(&exploration);
        let ranks = Ranks::of(context.hosts).and_then(|ranks| job.check(&ranks).map(|()| ranks));
        let ranks = match ranks {
            Ok(ranks) => ranks,
            Err(failure) => {
                let notice = stand_in(&failure);
                (context.on_event)(Event::Notice(notice.clone()));
                let mut outcome = Flow.run(context, &config.with_bursts())?;
                outcome.notices.push(notice);
                return Ok(outcome);
            }
        };
        let ended = AtomicBool::new(false);
        let (outcome, explored) = thread::scope(|scope| {
            let explore = || explore_until(&ended, &ranks, config);
            let explorations = scope.spawn(explore);
            let outcome = Flow.run(context, &config.bulk());
            ended.store(true, Ordering::Relaxed);
            (outcome, explorations.join())
        });
        let (found, failed) = explored.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let mut outcome = live_traffic::beside(outcome?, &found);
        if let Some(failure) = failed {
            let notice = not_beside(&failure, found.len());
            (context.on_event)(Event::Notice(notice.clone()));
            outcome.notices.push(notice);
        }
        Ok(outcome)
    }
}

/// Explorations one after the other until the flows have ended, and why there are no more of them.
fn explore_until(
    ended: &AtomicBool,
    ranks: &Ranks<'_>,
    config: &LiveTrafficConfig,
) -> (Vec<Exploration>, Option<Failure>) {
    let exploration = config.exploration();
    let mut found = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        match workload::explore(&exploration, ranks, ended) {
            Ok(explored) => found.extend(explored.filter(|explored| explored.complete)),
            Err(failure) => return (found, Some(failure)),
        }
        let next = Instant::now() + config.pause.to_std();
        while Instant::now() < next && !ended.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
        }
    }
    (found, None)
}

fn stand_in(failure: &Failure) -> Notice {
    Notice {
        id: "bursts-instead".to_owned(),
        message: format!(
            "flows in bursts stand in for the application, which needs MPI: {}",
            failure.message
        ),
    }
}

fn not_beside(failure: &Failure, count: usize) -> Notice {
    Notice {
        id: "application-failed".to_owned(),
        message: format!("after {count} explorations the application failed: {}", failure.message),
    }
}
