//! Messages between two ranks of an MPI job, which measures by itself.

use std::{sync::atomic::AtomicBool, time::Duration};

use crate::message::{
    MessageConfig, MessageKind, MessagePoint, MessageSideSettings, MessageSummary, MessageTransport,
};
use clearstream_mpirun::{Ended, Ending, JobConfig, Line, RanksProgram, ending_notice, network_notice};
use clearstream_schema::{notice::Notice, outcome::Outcome};
use clearstream_workload::{HostSet, TrialError};

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
        program: RanksProgram::Messages(config.mpi_program.as_deref()),
        read: Line::parse,
        over_iwarp: config.transport == MessageTransport::MpiIwarp,
        arguments: program_arguments(config),
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

/// Command line of the ranks.
fn program_arguments(config: &MessageConfig) -> Vec<String> {
    let kind = match config.kind {
        MessageKind::PingPong => "ping-pong",
        MessageKind::Stream => "stream",
        MessageKind::Bidirectional => "bidirectional",
    };
    let sizes: Vec<String> = config.message_sizes().iter().map(|size| size.bytes.to_string()).collect();
    let core = |core: Option<u32>| core.map_or_else(|| "-".to_owned(), |core| core.to_string());
    let cores = format!("{},{}", core(config.client_core), core(config.server_core));
    let values = [
        ("--kind", kind.to_owned()),
        ("--sizes", sizes.join(",")),
        ("--window", config.window.to_string()),
        ("--warm-up-ns", config.warm_up.0.to_string()),
        ("--cores", cores),
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

/// Maximum time of one size, warm-up included: the program bounds it by ten
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
