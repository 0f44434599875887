//! Controller part: starts the server, then the client, and collects the
//! client's results.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_control::{CallEvent as _, Peer, PeerError, PeerEvent};
use clearstream_schema::{
    control::{Cookie, Failure},
    human,
    notice::Notice,
    overlap::{OverlapConfig, OverlapPoint, OverlapSummary},
};
use clearstream_workload::{HostSet, TrialError};

use crate::{
    calls::{Finished, Listen, Listening, PointMeasured, Run, Side, Stop},
    check::check,
    mpi,
};

/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Availability above which the reference, the work alone, must have been disturbed.
const AVAILABILITY_MAX: f64 = 1.05;

/// Events of [`run_on`].
#[derive(Debug, Clone, PartialEq)]
pub enum OverlapEvent {
    /// One interval of work is measured.
    Point(OverlapPoint),
}

/// Errors of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum OverlapError {
    /// The configuration is invalid on any host; nothing was started.
    #[error("{0}")]
    Invalid(Failure),
    /// An agent rejected a call, or was lost.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// An agent was lost, did not reply or could not be stopped after results had come.
    #[error("{source}")]
    Broken {
        /// What happened.
        source: PeerError,
        /// The results until then.
        partial: Box<OverlapSummary>,
    },
    /// A measurement failed at an agent.
    #[error("{name}: {failure}")]
    Failed {
        /// Name of the agent.
        name: String,
        /// Cause.
        failure: Failure,
    },
}

impl OverlapError {
    /// Returns the failure that a host reported, for the exit code.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Invalid(failure) | Self::Failed { failure, .. } => Some(failure),
            Self::Peer(error) | Self::Broken { source: error, .. } => error.failure(),
        }
    }
}

/// Measures overlap at the client of a set of hosts, with messages between it and
/// the server. When `stop` is set the summary contains the intervals of work
/// measured until then and is marked incomplete.
///
/// # Errors
/// [`OverlapError`]; [`OverlapError::Invalid`] also for a set without these hosts.
pub fn run_on(
    hosts: &mut HostSet<'_>,
    config: &OverlapConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(OverlapEvent),
) -> Result<OverlapSummary, OverlapError> {
    check(config).map_err(OverlapError::Invalid)?;
    if config.transport.is_mpi() {
        return mpi::run_on(hosts, config, stop, on_event);
    }
    let invalid = |error: TrialError| OverlapError::Invalid(error.failure);
    let (client, server) = hosts.client_and_server().map_err(invalid)?;
    let server_address = server.known_address().map_err(invalid)?;
    let (client, server) = (&mut *client.peer, &mut *server.peer);
    let test = rand::random();
    let cookie = Cookie(format!("{:032x}", rand::random::<u128>()));
    let config = config.clone();
    let listen =
        Listen { test, cookie: cookie.clone(), address: Some(server_address), config: config.clone() };
    let Listening { port, iwarp_port } = server.call(&listen)?;
    let address = SocketAddr::new(server_address, port);
    let run = Run { test, cookie, server: address, iwarp_port, config: config.clone() };
    if let Err(error) = client.call(&run) {
        // The server may have the cause, such as a limit of its host. If
        // stopping fails too, return the first error.
        let reason = server.call(&Stop { test }).ok().and_then(|side| side.failure);
        return Err(reason.map_or_else(|| error.into(), |failure| failed(server, failure)));
    }
    let mut points = Vec::new();
    let followed = follow(client, (test, mpi::point_timeout(&config)), stop, &mut |point| {
        points.push(point.clone());
        on_event(OverlapEvent::Point(point));
    });
    // Both are stopped in any case, the client first: it closes the connection.
    let client_side = client.call(&Stop { test });
    let server_side = server.call(&Stop { test });
    let is_finished = *followed.as_ref().unwrap_or(&false);
    let (broken, client_side, server_side) = parts(followed, client_side, server_side);
    if let Some((error, peer_closed)) = reason(client, &client_side, server, &server_side)
        && broken.is_none()
        // When both sides are stopped, one sees the other close the connection.
        && (is_finished || !peer_closed)
    {
        return Err(error);
    }
    let notices = notices(&config, &points);
    let summary = OverlapSummary {
        complete: broken.is_none() && is_finished && points.len() == config.work_counts().len(),
        client: client_side.settings,
        server: server_side.settings,
        mpi: None,
        points,
        notices,
        requested: config,
    };
    match broken {
        None => Ok(summary),
        Some(source) if summary.points.is_empty() => Err(source.into()),
        Some(source) => Err(OverlapError::Broken { source, partial: Box::new(summary) }),
    }
}

/// Processes events until the client has finished: true; or until `stop` is
/// set.
fn follow(
    client: &mut Peer,
    (test, within): (u64, Duration),
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(OverlapPoint),
) -> Result<bool, PeerError> {
    let mut heard = Instant::now();
    loop {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        let Some(event) = client.next_event(POLL_INTERVAL)? else {
            client.check_silence(PointMeasured::NAME, heard, within)?;
            continue;
        };
        heard = Instant::now();
        if take(&event, test, on_point)? {
            return Ok(true);
        }
    }
}

/// What was lost first, and what is known of both sides.
fn parts(
    followed: Result<bool, PeerError>,
    client: Result<Side, PeerError>,
    server: Result<Side, PeerError>,
) -> (Option<PeerError>, Side, Side) {
    let mut broken = followed.err();
    let mut side = |side: Result<Side, PeerError>| {
        side.unwrap_or_else(|error| {
            broken.get_or_insert(error);
            Side::default()
        })
    };
    let (client, server) = (side(client), side(server));
    (broken, client, server)
}

/// Processes an event; true for the last one. Events of other tests are
/// ignored.
fn take(event: &PeerEvent, ours: u64, on_point: &mut dyn FnMut(OverlapPoint)) -> Result<bool, PeerError> {
    if let Some(PointMeasured { test, point }) = event.read()?
        && test == ours
    {
        on_point(point);
    }
    Ok(event.read()?.is_some_and(|Finished { test }| test == ours))
}

fn failed(peer: &Peer, failure: Failure) -> OverlapError {
    OverlapError::Failed { name: peer.name().to_owned(), failure }
}

/// Selects the failure with the cause: where one side only saw the connection
/// close, the other has it. True when both only saw that.
fn reason(
    client: &Peer,
    client_side: &Side,
    server: &Peer,
    server_side: &Side,
) -> Option<(OverlapError, bool)> {
    let sides = [(client, client_side), (server, server_side)];
    let own = sides.iter().find(|(_, side)| side.failure.is_some() && !side.peer_closed);
    let (peer, side) = own.or_else(|| sides.iter().find(|(_, side)| side.failure.is_some()))?;
    Some((failed(peer, side.failure.clone()?), side.peer_closed))
}

pub(crate) fn notices(config: &OverlapConfig, points: &[OverlapPoint]) -> Vec<Notice> {
    let mut notices = Vec::new();
    if config.verify {
        notices.push(Notice {
            id: "verified".to_owned(),
            message:
                "every byte was generated and checked within the measured time: compare rates and availability only \
                      with those of other verified runs"
                    .to_owned(),
        });
    }
    let few = |point: &&OverlapPoint| point.client_received_count < u64::from(config.window);
    if let Some(point) = points.iter().find(few) {
        notices.push(Notice {
            id: "few-messages".to_owned(),
            message: format!(
                "only {} messages arrived in {} beside work of {} iterations: a longer duration, or more iterations, \
                 give a bandwidth",
                point.client_received_count,
                human::count(point.cycle_count, "poll"),
                point.work_count
            ),
        });
    }
    if let Some(point) = points.iter().find(|point| point.availability_ratio > AVAILABILITY_MAX) {
        notices.push(Notice {
            id: "work-alone-disturbed".to_owned(),
            message: format!(
                "{} iterations of work took longer alone than beside messages: other programs used the core; pin \
                 the client to a free one (--client-core)",
                point.work_count
            ),
        });
    }
    notices
}

#[cfg(test)]
mod tests;
