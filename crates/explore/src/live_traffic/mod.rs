//! Workload `live-traffic`: bulk flows between two hosts while an exploration of two ranks runs beside them, again and
//! again, as DiVinE did beside the flows of the 40 Gb/s report (figure 7). The samples are those of the flows, with the
//! counters of all interfaces. Without its application such a trial is another one: it has failed.

pub mod document;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::document::{ExplorationTransport, Explored};
use clearstream_flow::Flow;
use clearstream_mpirun::Ranks;
use clearstream_schema::{
    TimeSpan,
    control::Failure,
    outcome::{MetricKind, Outcome},
    study::Figure,
};
use clearstream_workload::{Context, TrialError, Workload, two_sided::Started};
use document::LiveTrafficConfig;

use crate::{
    ranks::{self, RanksConfig},
    workload,
};

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
        Flow.check(&config.bulk())?;
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
        let (flows, explored) = match config.transport {
            ExplorationTransport::Tcp => beside_agents(context, config)?,
            ExplorationTransport::Mpi | ExplorationTransport::MpiIwarp => beside_job(context, config)?,
        };
        match (flows?, explored) {
            (flows, Ok(explored)) => Ok(document::beside(flows, &explored)),
            // An interruption of the operator reaches the ranks, too.
            (flows, Err(_)) if !flows.complete && context.stop.load(Ordering::Relaxed) => Ok(flows),
            (_, Err(error)) => Err(of_application(error)),
        }
    }
}

/// Results of the flows and of the application.
type Both = (Result<Outcome, TrialError>, Result<Explored, TrialError>);

/// The agents run the ranks, and meanwhile the flows.
fn beside_agents(context: &mut Context<'_, '_>, config: &LiveTrafficConfig) -> Result<Both, TrialError> {
    let exploration = RanksConfig { exploration: config.exploration(), pause: Some(config.pause) };
    let exploring = Started::start(context.hosts, &exploration).map_err(of_application)?;
    let flows = Flow.run(context, &config.bulk());
    Ok((flows, ranks::end(exploring, context.hosts)))
}

/// The site's launcher starts the ranks.
fn beside_job(context: &mut Context<'_, '_>, config: &LiveTrafficConfig) -> Result<Both, TrialError> {
    let ranks = Ranks::of(context.hosts)?;
    workload::job(&config.exploration()).check(&ranks).map_err(|failure| of_application(failure.into()))?;
    let ended = AtomicBool::new(false);
    let (flows, explored) = thread::scope(|scope| {
        let explorations = scope.spawn(|| explore_until(&ended, &ranks, config));
        let flows = Flow.run(context, &config.bulk());
        ended.store(true, Ordering::Relaxed);
        (flows, explorations.join())
    });
    let explored = explored.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok((flows, explored.map_err(TrialError::from)))
}

/// Jobs one after the other until the flows have ended.
fn explore_until(
    ended: &AtomicBool,
    ranks: &Ranks<'_>,
    config: &LiveTrafficConfig,
) -> Result<Explored, Failure> {
    let exploration = config.exploration();
    let mut explored = Explored::default();
    while !ended.load(Ordering::Relaxed) {
        if let Some(found) = workload::explore(&exploration, ranks, ended)? {
            explored.add(found);
        }
        let next = Instant::now() + config.pause.to_std();
        while Instant::now() < next && !ended.load(Ordering::Relaxed) {
            thread::sleep(POLL_INTERVAL);
        }
    }
    Ok(explored)
}

/// Names whose failure it is: the flows may have run to their end.
fn of_application(error: TrialError) -> TrialError {
    let Failure { kind, message } = error.failure;
    let message = format!("the application beside the flows failed: {message}");
    TrialError { failure: Failure { kind, message }, ..error }
}
