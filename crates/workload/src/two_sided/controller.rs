//! Controller part: starts the server, then the client, and collects the client's results.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_control::{CallEvent as _, Peer, PeerError, PeerEvent};
use clearstream_schema::{
    control::{Cookie, Failure},
    notice::Notice,
    outcome::Outcome,
};

use super::{Finished, Listen, PointMeasured, Run, Side, Stop, TwoSided};
use crate::{HostSet, TrialError};

/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What was collected of a measurement, whole or not.
#[derive(Debug)]
pub struct Collected<W: TwoSided> {
    /// Results in the order in which they came.
    pub points: Vec<W::Point>,
    /// The connecting side.
    pub client: Side<W::Settings>,
    /// The listening side.
    pub server: Side<W::Settings>,
    /// Whether the client has measured all that it was to measure.
    pub is_finished: bool,
    /// The agent that was lost, did not reply or could not be stopped after results had come.
    pub broken: Option<PeerError>,
}

impl<W: TwoSided> Collected<W> {
    /// The notices of both sides, with the side before each.
    pub fn notices(&self) -> Vec<Notice> {
        let sides = [("client", &self.client), ("server", &self.server)];
        let of = |(role, side): (&'static str, &Side<W::Settings>)| {
            side.notices.clone().into_iter().map(move |mut notice| {
                notice.message = format!("{role}: {}", notice.message);
                notice
            })
        };
        let [client, server] = sides.map(of);
        client.chain(server).collect()
    }
}

/// The outcome of a measurement, from the document that was made of what was collected.
///
/// # Errors
/// The agent that was lost on the way, with the outcome until then.
pub fn outcome(outcome: Outcome, broken: Option<PeerError>) -> Result<Outcome, TrialError> {
    match broken {
        None => Ok(outcome),
        Some(error) => Err(TrialError::from(error).after(outcome)),
    }
}

/// Measures between the client and the server of a set of hosts, and passes each result to `on_point`. `point_within`
/// is the most that one of them takes. When `stop` is set, what was measured until then is returned.
///
/// # Errors
/// Invalid options, a set without these hosts, an agent that rejects a call, and a measurement that failed at an
/// agent; an agent that was lost before the first result.
pub fn measure<W: TwoSided>(
    hosts: &mut HostSet<'_>,
    config: &W::Config,
    point_within: Duration,
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(&W::Point),
) -> Result<Collected<W>, TrialError> {
    W::check(config)?;
    let (client, server) = hosts.client_and_server()?;
    let server_address = server.known_address()?;
    let (client, server) = (&mut *client.peer, &mut *server.peer);
    let (test, of) = (rand::random(), W::default());
    let cookie = Cookie(format!("{:032x}", rand::random::<u128>()));
    let (address, config) = (Some(server_address), config.clone());
    let listen = Listen::<W> { test, cookie: cookie.clone(), address, config: config.clone() };
    let ports = server.call(&listen)?.ports;
    let addresses = ports.into_iter().map(|port| SocketAddr::new(server_address, port)).collect();
    if let Err(error) = client.call(&Run::<W> { test, cookie, server: addresses, config }) {
        // The server may have the cause, such as a limit of its host. If stopping fails too, return the first error.
        let reason = server.call(&Stop { test, of }).ok().and_then(|side| side.failure);
        return Err(reason.map_or_else(|| error.into(), |failure| failed(server, &failure)));
    }
    let mut points = Vec::new();
    let followed = follow::<W>(client, (test, point_within), stop, &mut |point| {
        on_point(&point);
        points.push(point);
    });
    // Both are stopped in any case, the client first: it closes the connection.
    let client_side = client.call(&Stop { test, of });
    let server_side = server.call(&Stop { test, of });
    let collected = collect(points, followed, client_side, server_side);
    if let Some((error, peer_closed)) = reason(client, server, &collected)
        && collected.broken.is_none()
        // When both sides are stopped, one sees the other close the connection.
        && (collected.is_finished || !peer_closed)
    {
        return Err(error);
    }
    match collected.broken {
        Some(error) if collected.points.is_empty() => Err(error.into()),
        _ => Ok(collected),
    }
}

/// Processes events until the client has finished: true; or until `stop` is set.
fn follow<W: TwoSided>(
    client: &mut Peer,
    (test, within): (u64, Duration),
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(W::Point),
) -> Result<bool, PeerError> {
    let mut heard = Instant::now();
    loop {
        if stop.load(Relaxed) {
            return Ok(false);
        }
        let Some(event) = client.next_event(POLL_INTERVAL)? else {
            client.check_silence(PointMeasured::<W>::NAME, heard, within)?;
            continue;
        };
        heard = Instant::now();
        if take::<W>(&event, test, on_point)? {
            return Ok(true);
        }
    }
}

/// Processes an event; true for the last one. Events of other tests are ignored.
fn take<W: TwoSided>(
    event: &PeerEvent,
    ours: u64,
    on_point: &mut dyn FnMut(W::Point),
) -> Result<bool, PeerError> {
    if let Some(PointMeasured::<W> { test, point }) = event.read()?
        && test == ours
    {
        on_point(point);
    }
    Ok(event.read()?.is_some_and(|Finished::<W> { test, .. }| test == ours))
}

/// What was lost first, and what is known of both sides.
fn collect<W: TwoSided>(
    points: Vec<W::Point>,
    followed: Result<bool, PeerError>,
    client: Result<Side<W::Settings>, PeerError>,
    server: Result<Side<W::Settings>, PeerError>,
) -> Collected<W> {
    let (is_finished, mut broken) = match followed {
        Ok(is_finished) => (is_finished, None),
        Err(error) => (false, Some(error)),
    };
    let mut side = |side: Result<Side<W::Settings>, PeerError>| {
        side.unwrap_or_else(|error| {
            broken.get_or_insert(error);
            Side::default()
        })
    };
    let (client, server) = (side(client), side(server));
    Collected { points, client, server, is_finished, broken }
}

/// A failure of one side, with its name.
fn failed(peer: &Peer, failure: &Failure) -> TrialError {
    Failure { kind: failure.kind, message: format!("{}: {}", peer.name(), failure.message) }.into()
}

/// Selects the failure with the cause: where one side only saw the connection close, the other has it. True when both
/// only saw that.
fn reason<W: TwoSided>(client: &Peer, server: &Peer, collected: &Collected<W>) -> Option<(TrialError, bool)> {
    let sides = [(client, &collected.client), (server, &collected.server)];
    let own = sides.iter().find(|(_, side)| side.failure.is_some() && !side.peer_closed);
    let (peer, side) = own.or_else(|| sides.iter().find(|(_, side)| side.failure.is_some()))?;
    Some((failed(peer, side.failure.as_ref()?), side.peer_closed))
}
