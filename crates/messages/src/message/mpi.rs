//! Messages between two ranks of an MPI job, which measures by itself.

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_mpirun::{Ended, Ending, JobConfig, Line, ending_notice, network_notice, rank_arguments};
use clearstream_schema::{control::Failure, notice::Notice, outcome::Outcome};
use clearstream_sys::mpi::MpiProcess;
use clearstream_workload::{HostSet, TrialError, Workload as _};

use super::{
    Message,
    engine::{self, RankLink},
    sides::kind,
};
use crate::{
    message::{MessageConfig, MessagePoint, MessageSideSettings, MessageSummary, MessageTransport},
    ranks::{Say, introduce, part, tell_results},
};

/// Time of a size in addition to its duration and warm-up.
const SIZE_GRACE: Duration = Duration::from_secs(30);
/// Assumed maximum time of an iteration where the number of them is requested.
const ITERATION_MAX: Duration = Duration::from_secs(1);

/// Runs a job and collects its results.
pub(super) fn run_on(
    hosts: &mut HostSet<'_>,
    config: &MessageConfig,
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(&MessagePoint),
) -> Result<Outcome, TrialError> {
    let mut points: Vec<MessagePoint> = Vec::new();
    let sizes = config.message_sizes();
    let job = JobConfig {
        mpirun: config.mpirun.as_deref(),
        read: Line::parse,
        over_iwarp: config.transport == MessageTransport::MpiIwarp,
        arguments: rank_arguments(Message.name(), config.mpi_library.as_deref(), &of_ranks(config))?,
        point_timeout: size_timeout(config),
        awaited: "result",
    };
    let Ended { ending, job, .. } = job.run(hosts, stop, &mut |mut point: MessagePoint| {
        point.is_perturbed =
            sizes.iter().find(|size| size.bytes == point.size_bytes).is_some_and(|size| size.is_perturbed);
        on_point(&point);
        points.push(point);
    })?;
    let side = |core| MessageSideSettings { core, ..MessageSideSettings::default() };
    let summary = MessageSummary {
        complete: ending != Ending::Stopped && points.len() == sizes.len(),
        client: side(config.client_core),
        server: side(config.server_core),
        notices: notices(config, &points, ending),
        mpi: job,
        points,
        requested: config.clone(),
    };
    Ok(summary.outcome()?)
}

/// What the ranks are told: who starts them is no business of theirs.
fn of_ranks(config: &MessageConfig) -> MessageConfig {
    MessageConfig { mpirun: None, mpi_library: None, ..config.clone() }
}

/// Measures as one of the two ranks of a job; rank 0 says who takes part, and the results.
///
/// # Errors
/// What this rank cannot do, or what it lost.
pub fn rank(process: &MpiProcess, config: &MessageConfig, say: Say<'_, MessagePoint>) -> Result<(), Failure> {
    super::check::check(config)?;
    introduce(process, [config.client_core, config.server_core], say)?;
    let link = RankLink::new(process, config);
    let mut link = link.map_err(|error| Failure::of_system("get memory for the messages", &error))?;
    let failed = |error: engine::EngineError| Failure::new(kind(&error), error.to_string());
    match process.rank() {
        0 => tell_results(say, |on_point| engine::measure(&mut link, config, on_point).map_err(failed)),
        _ => engine::serve(&mut link, config).map_err(failed),
    }?;
    drop(link);
    part(process)
}

/// Maximum time of one size, warm-up included: the ranks bound it by ten
/// times the duration, and its warm-up doubles its iterations.
pub(super) fn size_timeout(config: &MessageConfig) -> Duration {
    let warm_up = config.warm_up.to_std().saturating_mul(4);
    let measured = match config.iterations {
        None => config.duration.to_std().saturating_mul(12),
        Some(count) => ITERATION_MAX.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)),
    };
    SIZE_GRACE.saturating_add(warm_up).saturating_add(measured)
}

fn notices(config: &MessageConfig, points: &[MessagePoint], ending: Ending) -> Vec<Notice> {
    let mut notices = super::notices::notices(config, points);
    notices.extend(ending_notice(ending));
    notices.extend(points.iter().find_map(|point| {
        let sent = point.server_received_count.saturating_mul(point.size_bytes);
        network_notice(point.interfaces, sent, &format!("of {} bytes", point.size_bytes))
    }));
    notices
}
