//! Overlap between two ranks of an MPI job, which measures by itself.

use std::{sync::atomic::AtomicBool, time::Duration};

use crate::overlap::{
    OverlapConfig, OverlapMethod, OverlapPoint, OverlapSideSettings, OverlapSummary, OverlapTransport,
};
use clearstream_mpirun::{Ended, Ending, JobConfig, Line, RanksProgram, ending_notice, network_notice};
use clearstream_schema::outcome::Outcome;
use clearstream_workload::{HostSet, TrialError, Workload as _};

use super::Overlap;

/// Time of an interval of work in addition to its own.
const POINT_GRACE: Duration = Duration::from_secs(30);
/// The program takes at most ten durations, and the warm-up doubles its cycles.
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
        program: RanksProgram::Messages(config.mpi_program.as_deref()),
        read: Line::parse,
        over_iwarp: config.transport == OverlapTransport::MpiIwarp,
        arguments: program_arguments(config),
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

/// Command line of the ranks.
fn program_arguments(config: &OverlapConfig) -> Vec<String> {
    let kind = match config.method {
        OverlapMethod::Polling => "overlap-polling",
        OverlapMethod::PostWorkWait => "overlap-wait",
    };
    let works: Vec<String> = config.work_counts().iter().map(u64::to_string).collect();
    let core = |core: Option<u32>| core.map_or_else(|| "-".to_owned(), |core| core.to_string());
    let values = [
        ("--kind", kind.to_owned()),
        ("--sizes", config.size.0.to_string()),
        ("--window", config.window.to_string()),
        ("--work", works.join(",")),
        ("--warm-up-ns", config.warm_up.0.to_string()),
        ("--cores", format!("{},{}", core(config.client_core), core(config.server_core))),
        match config.iterations {
            Some(iterations) => ("--iterations", iterations.to_string()),
            None => ("--duration-ns", config.duration.0.to_string()),
        },
    ];
    let mut arguments: Vec<String> =
        values.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
    arguments.extend(config.verify.then(|| "--verify".to_owned()));
    arguments
}

/// Maximum time of one interval of work, the work alone included.
pub(super) fn point_timeout(config: &OverlapConfig) -> Duration {
    let overtime = config.duration.to_std().saturating_mul(OVERTIME);
    POINT_GRACE
        .saturating_add(overtime)
        .saturating_add(Overlap.time(config).to_std().saturating_mul(2))
        .min(TIMEOUT_MAX)
}
