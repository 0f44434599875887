//! Messages between two ranks of an MPI job: `mpirun` starts `clearstream-mpi`
//! (`extras/mpi`) on the client's and the server's host, and rank 0 prints a
//! JSON document per line.
//!
//! The job is started by the controller and not by an agent, so that no peer can
//! have a command of its choice started: the client is this host, or one of a lab.

mod failure;
mod iwarp;
mod job;
mod launcher;
mod lines;
mod program;
mod ranks;

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_schema::{
    control::FailureKind,
    flow::Notice,
    message::{
        MessageConfig, MessageKind, MessagePoint, MessageSideSettings, MessageSummary, MessageTransport,
        MpiJob,
    },
};
use clearstream_workload::HostSet;

use crate::{MessageError, MessageEvent, controller, failure};
use job::{Ending, Job};
use launcher::Launcher;
use ranks::Ranks;

/// Maximum time until both ranks have started: ssh logs in.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time of a size in addition to its duration and warm-up.
const SIZE_GRACE: Duration = Duration::from_secs(30);
/// Assumed maximum time of an iteration where the number of them is requested.
const ITERATION_MAX: Duration = Duration::from_secs(1);

/// Whether a configuration is for MPI.
pub(crate) fn is_requested(config: &MessageConfig) -> bool {
    config.transport.is_mpi()
}

/// Runs a job and collects its results.
pub(crate) fn run_on(
    hosts: &mut HostSet<'_>,
    config: &MessageConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(MessageEvent),
) -> Result<MessageSummary, MessageError> {
    let invalid = MessageError::Invalid;
    let launcher = Launcher::find(config.mpirun.as_deref()).map_err(invalid)?;
    let program =
        program::find(config.mpi_program.as_deref(), hosts.program(), launcher.kind).map_err(invalid)?;
    let over_iwarp = config.transport == MessageTransport::MpiIwarp;
    let library = over_iwarp.then(|| iwarp::find_library(hosts.program())).transpose().map_err(invalid)?;
    let fabric =
        library.map(|library| iwarp::options(launcher.kind, &library)).transpose().map_err(invalid)?;
    let ranks = Ranks::of(hosts).map_err(invalid)?;
    let arguments = program_arguments(config);
    let (command, line) =
        launcher.command(&ranks, &fabric.unwrap_or_default(), &program, &arguments).map_err(invalid)?;
    let mut points: Vec<MessagePoint> = Vec::new();
    let sizes = config.message_sizes();
    let job = Job { command, start_timeout: START_TIMEOUT, size_timeout: size_timeout(config) };
    let ended = job.run(stop, &mut |mut point| {
        point.is_perturbed =
            sizes.iter().find(|size| size.bytes == point.size_bytes).is_some_and(|size| size.is_perturbed);
        points.push(point.clone());
        on_event(MessageEvent::Point(point));
    })?;
    if over_iwarp && ended.ending != Ending::Stopped && ended.rdma_connection_count == 0 {
        return Err(MessageError::Failed { name: "MPI job".to_owned(), failure: iwarp::no_connection() });
    }
    let side = |core| MessageSideSettings { core, ..MessageSideSettings::default() };
    Ok(MessageSummary {
        complete: ended.ending != Ending::Stopped && points.len() == sizes.len(),
        client: side(config.client_core),
        server: side(config.server_core),
        notices: notices(config, &points, ended.ending),
        mpi: ended.ranks.map(|found| MpiJob {
            library: found.library,
            standard: found.standard,
            command: line,
            ranks: found.ranks,
        }),
        points,
        requested: config.clone(),
    })
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
fn size_timeout(config: &MessageConfig) -> Duration {
    let warm_up = config.warm_up.to_std().saturating_mul(4);
    let measured = match config.iterations {
        None => config.duration.to_std().saturating_mul(12),
        Some(count) => ITERATION_MAX.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX)),
    };
    SIZE_GRACE.saturating_add(warm_up).saturating_add(measured)
}

fn notices(config: &MessageConfig, points: &[MessagePoint], ending: Ending) -> Vec<Notice> {
    let mut notices = controller::notices_of_points(config, points);
    if ending == Ending::Forced {
        notices.push(Notice {
            id: "mpirun-killed".to_owned(),
            message: "mpirun did not end after the last result (MPI_Finalize), and was ended".to_owned(),
        });
    }
    let carried = |point: &&MessagePoint| {
        let sent = point.interfaces.map_or(0, |bytes| bytes.client_sent_bytes.max(bytes.server_sent_bytes));
        sent < point.server_received_count.saturating_mul(point.size_bytes)
    };
    if let Some(point) = points.iter().find(carried) {
        notices.push(Notice {
            id: "not-on-the-network".to_owned(),
            message: format!(
                "the network interfaces carried fewer bytes than the messages of {} bytes have: the MPI library used \
                 shared memory, loopback or a path around the kernel",
                point.size_bytes
            ),
        });
    }
    notices
}

fn error(kind: FailureKind, message: impl Into<String>) -> MessageError {
    MessageError::Failed { name: "MPI job".to_owned(), failure: failure(kind, message) }
}
