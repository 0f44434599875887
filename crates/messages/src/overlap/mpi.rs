//! Overlap between two ranks of an MPI job, which measures by itself.

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_mpirun::{Ended, Ending, JobConfig, Line, ending_notice, network_notice, rank_arguments};
use clearstream_schema::{
    control::{Failure, FailureKind},
    outcome::Outcome,
};
use clearstream_sys::mpi::MpiProcess;
use clearstream_workload::{HostSet, TrialError, Workload as _};

use super::{
    Overlap,
    engine::{self, EngineError, RankControl, RankMessages, Session},
};
use crate::{
    ProcessCosts,
    overlap::{OverlapConfig, OverlapPoint, OverlapSideSettings, OverlapSummary, OverlapTransport},
    ranks::{Say, introduce, part, tell_results},
};

/// Time of an interval of work in addition to its own.
const POINT_GRACE: Duration = Duration::from_secs(30);
/// The ranks take at most ten durations, and the warm-up doubles its cycles.
const OVERTIME: u32 = 12;
/// Maximum of a timeout: no deadline overflows.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 86_400);

/// Runs a job and collects its results.
pub(super) fn run_on(
    hosts: &mut HostSet<'_>,
    config: &OverlapConfig,
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(&OverlapPoint),
) -> Result<Outcome, TrialError> {
    let mut points: Vec<OverlapPoint> = Vec::new();
    let job = JobConfig {
        mpirun: config.mpirun.as_deref(),
        read: Line::parse,
        over_iwarp: config.transport == OverlapTransport::MpiIwarp,
        arguments: rank_arguments(Overlap.name(), config.mpi_library.as_deref(), &of_ranks(config))?,
        point_timeout: point_timeout(config),
        awaited: "result",
    };
    let Ended { ending, job, .. } = job.run(hosts, stop, &mut |point: OverlapPoint| {
        on_point(&point);
        points.push(point);
    })?;
    let mut notices = super::notices::notices(config, &points);
    notices.extend(ending_notice(ending));
    notices.extend(points.iter().find_map(|point| {
        let sent = point.client_received_count.saturating_mul(config.size.0);
        network_notice(point.interfaces, sent, &format!("beside work of {} iterations", point.work_count))
    }));
    let side = |core| OverlapSideSettings { core, ..OverlapSideSettings::default() };
    let summary = OverlapSummary {
        complete: ending != Ending::Stopped && points.len() == config.work_counts().len(),
        client: side(config.client_core),
        server: side(config.server_core),
        mpi: job,
        points,
        notices,
        requested: config.clone(),
    };
    Ok(summary.outcome()?)
}

/// What the ranks are told: who starts them is no business of theirs.
fn of_ranks(config: &OverlapConfig) -> OverlapConfig {
    OverlapConfig { mpirun: None, mpi_library: None, ..config.clone() }
}

/// Measures as one of the two ranks of a job; rank 0 says who takes part, and the results.
///
/// # Errors
/// What this rank cannot do, or what it lost.
pub fn rank(process: &MpiProcess, config: &OverlapConfig, say: Say<'_, OverlapPoint>) -> Result<(), Failure> {
    super::check::check(config)?;
    introduce(process, [config.client_core, config.server_core], say)?;
    let size = usize::try_from(config.size.0).unwrap_or(usize::MAX);
    let data = RankMessages::new(process, size, config.window);
    let data = data.map_err(|error| Failure::of_system("get memory for the messages", &error))?;
    let stop = AtomicBool::new(false);
    let mut session = Session {
        control: Box::new(RankControl(process)),
        data: Box::new(data),
        costs: ProcessCosts::with_interfaces(),
        stop: &stop,
        config,
    };
    let failed = |error: EngineError| Failure::new(FailureKind::Connection, error.to_string());
    match process.rank() {
        0 => tell_results(say, |on_point| engine::measure(&mut session, on_point).map_err(failed)),
        _ => engine::serve(&mut session).map_err(failed),
    }?;
    drop(session);
    part(process)
}

/// Maximum time of one interval of work, the work alone included.
pub(super) fn point_timeout(config: &OverlapConfig) -> Duration {
    let overtime = config.duration.to_std().saturating_mul(OVERTIME);
    POINT_GRACE
        .saturating_add(overtime)
        .saturating_add(Overlap.time(config).to_std().saturating_mul(2))
        .min(TIMEOUT_MAX)
}
